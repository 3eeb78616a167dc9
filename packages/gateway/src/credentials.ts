import './node-version.js';
import { createHash, timingSafeEqual } from 'node:crypto';
import { InvalidArgumentError } from '@fenced/store';
import {
  createLocalJWKSet,
  errors,
  type JSONWebKeySet,
  type JWTPayload,
  type JWTVerifyGetKey,
  type JWTVerifyOptions,
  jwtVerify,
} from 'jose';
import { CredentialsUnavailableError, IssuerKeys } from './issuer-keys.js';
import { type Runtime, systemRuntime } from './runtime.js';

export { CredentialsUnavailableError };

/** The rights of a caller. */
export const VERBS = ['lease', 'read', 'write', 'claim', 'ratchet'] as const;
export type Verb = (typeof VERBS)[number];

/** The first segment of a resource: the one that follows `/v1` in a path. */
const KINDS = ['leases', 'objects', 'records', 'ratchets'] as const;

/**
 * The signature algorithms that a JSON Web Token may have: only asymmetric ones. With a shared
 * secret (`HS256`), every verifier could forge tokens. And an attacker could sign with the public
 * key as the secret (RFC 8725, 2.1).
 */
// biome-ignore format: one family a line
export const JWT_ALGORITHMS = [
  'RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512',
  'ES256', 'ES384', 'ES512', 'EdDSA', 'Ed25519',
] as const;

/** Allows each of these verbs on each of these prefixes. */
interface Grant {
  readonly verbs: readonly Verb[];
  /**
   * Whole path segments: `objects/a` allows `objects/a` and `objects/a/b`, and not `objects/ab`.
   */
  readonly prefixes: readonly string[];
}

export interface ApiKey extends Grant {
  /**
   * The caller's name in the log and for limits. Two keys with one name are one caller, so a key
   * can be replaced without a gap.
   */
  readonly name: string;
  /**
   * The hash of the key, as 64 hexadecimal digits. The key must be long and random, because SHA-256
   * is fast, and does not slow guessing down.
   */
  readonly sha256: string;
}

export interface JwtOptions {
  readonly issuer: string;
  readonly audience: string;
  /** At least one of {@link JWT_ALGORITHMS}. */
  readonly algorithms: readonly string[];
  /** The issuer's public keys, or their URL. */
  readonly jwks: JSONWebKeySet | URL;
  /** The names of the claims. A list is an array of strings, or one string with spaces between. */
  readonly claims?: {
    /** @default 'sub' */
    readonly name?: string;
    /** @default 'fenced_verbs' */
    readonly verbs?: string;
    /** @default 'fenced_prefixes' */
    readonly prefixes?: string;
  };
  /** Seconds by which the issuer's clock may differ. @default 5 */
  readonly clockToleranceS?: number;
  /** Milliseconds for the issuer to answer when its keys are fetched. @default 5000 */
  readonly fetchTimeoutMs?: number;
}

export interface CredentialsOptions {
  readonly keys?: readonly ApiKey[];
  readonly jwt?: JwtOptions;
}

/** The sender of a request. */
export interface Caller {
  /** The name of the API key; `jwt:` and the subject of a JSON Web Token. */
  readonly name: string;
  /**
   * True if the caller has that right.
   *
   * @param resource decoded, without a leading slash: `leases/invoice/42`, `objects/a/b`,
   *   `records/invoices/42`, `ratchets/s3/a/b`
   */
  may(verb: Verb, resource: string): boolean;
}

export interface Credentials {
  /**
   * @param authorization the header of that name
   * @returns null without known credentials
   * @throws {CredentialsUnavailableError} if the key of the token is unknown, and the issuer cannot
   *   be asked now
   */
  authenticate(authorization: string | undefined): Promise<Caller | null>;
}

const CREDENTIAL_CHARS_MAX = 8_192;
/**
 * The limit of OpenID Connect for `sub`. Names are kept in memory and written to logs, so they must
 * be short.
 */
const SUBJECT_CHARS_MAX = 255;

/** @throws {InvalidArgumentError} if a key or an option is invalid */
export function openCredentials(
  options: CredentialsOptions,
  runtime: Runtime = systemRuntime,
): Credentials {
  const { keys = [], jwt } = options;
  if (keys.length === 0 && jwt === undefined)
    throw new InvalidArgumentError('credentials must be API keys, JWT or both');
  const callerOfKey = apiKeys(keys);
  const callerOfJwt = jwt && jsonWebTokens(jwt, runtime);
  return {
    authenticate: async (authorization) => {
      const [, credential] = /^Bearer +([\w.~+/=-]+) *$/i.exec(authorization ?? '') ?? [];
      if (credential === undefined || credential.length > CREDENTIAL_CHARS_MAX) return null;
      return callerOfKey(credential) ?? (await callerOfJwt?.(credential)) ?? null;
    },
  };
}

/** The mistake in a prefix, if there is one. */
export function complaintAboutPrefix(prefix: string): string | null {
  const segments = prefix.split('/');
  if (!KINDS.some((kind) => kind === segments[0])) return `must begin with ${KINDS.join(', ')}`;
  return isPlain(segments)
    ? null
    : 'must have no empty segment, no . or .. as a segment, and no / at its end';
}

function apiKeys(keys: readonly ApiKey[]): (credential: string) => Caller | undefined {
  const known = keys.map(({ name, sha256, ...grant }) => {
    if (!/^[0-9a-f]{64}$/i.test(sha256))
      throw new InvalidArgumentError(`sha256 must be 64 hexadecimal digits key=${name}`);
    return { hash: Buffer.from(sha256, 'hex'), caller: callerOf(name, grant) };
  });
  if (new Set(known.map(({ hash }) => hash.toString('hex'))).size < known.length)
    throw new InvalidArgumentError('the same sha256 is given twice');
  return (credential) => {
    const hash = createHash('sha256').update(credential).digest();
    // Compares with every key, also after a match, so that the time reveals nothing about the keys.
    return known.filter((key) => timingSafeEqual(key.hash, hash))[0]?.caller;
  };
}

function jsonWebTokens(
  options: JwtOptions,
  runtime: Runtime,
): (credential: string) => Promise<Caller | null> {
  const {
    issuer,
    audience,
    algorithms,
    jwks,
    clockToleranceS = 5,
    fetchTimeoutMs = 5_000,
  } = options;
  const {
    name = 'sub',
    verbs = 'fenced_verbs',
    prefixes = 'fenced_prefixes',
  } = options.claims ?? {};
  const unknown = algorithms.find((one) => !JWT_ALGORITHMS.some((known) => known === one));
  if (unknown !== undefined || algorithms.length === 0)
    throw new InvalidArgumentError(`algorithms must be some of ${JWT_ALGORITHMS.join(', ')}`);
  // jose checks issuer and audience only if they are not empty.
  if (issuer === '' || audience === '')
    throw new InvalidArgumentError('issuer and audience must not be empty');
  const keySet =
    jwks instanceof URL
      ? new IssuerKeys(jwks, { timeoutDuration: fetchTimeoutMs }, runtime).find
      : localKeySet(jwks);
  const checks = {
    issuer,
    audience,
    algorithms: [...algorithms],
    clockTolerance: clockToleranceS,
    requiredClaims: ['exp', name],
  };
  return async (credential) => {
    if (credential.split('.').length !== 3) return null;
    const claims = await verifiedClaims(credential, keySet, checks);
    const subject = claims?.[name];
    if (claims === null || typeof subject !== 'string') return null;
    if (subject === '' || subject.length > SUBJECT_CHARS_MAX) return null;
    const grant = {
      verbs: VERBS.filter((verb) => listOf(claims[verbs]).includes(verb)),
      prefixes: listOf(claims[prefixes]).filter((prefix) => complaintAboutPrefix(prefix) === null),
    };
    return callerOf(`jwt:${subject}`, grant);
  };
}

/** @throws {InvalidArgumentError} */
function localKeySet(jwks: JSONWebKeySet): JWTVerifyGetKey {
  try {
    return createLocalJWKSet(jwks);
  } catch (error) {
    throw new InvalidArgumentError(
      `jwks must be a set of public keys: ${(error as Error).message}`,
    );
  }
}

/** @returns null for a token that cannot be trusted */
async function verifiedClaims(
  token: string,
  keySet: JWTVerifyGetKey,
  checks: JWTVerifyOptions,
): Promise<JWTPayload | null> {
  try {
    return (await jwtVerify(token, keySet, checks)).payload;
  } catch (error) {
    if (error instanceof errors.JWKSMultipleMatchingKeys) {
      // During a rotation, a set may have several keys without ids.
      for await (const key of error) {
        const claims = await verifiedClaims(token, async () => key, checks);
        if (claims !== null) return claims;
      }
      return null;
    }
    if (error instanceof errors.JOSEError) return null;
    if (error instanceof CredentialsUnavailableError) throw error;
    // A key of the issuer that cannot be read says nothing about the token.
    throw new CredentialsUnavailableError({ cause: error });
  }
}

function listOf(claim: unknown): string[] {
  if (typeof claim === 'string') return claim.split(' ');
  return Array.isArray(claim) ? claim.filter((entry) => typeof entry === 'string') : [];
}

/** @throws {InvalidArgumentError} */
function callerOf(name: string, { verbs, prefixes }: Grant): Caller {
  for (const prefix of prefixes) {
    const complaint = complaintAboutPrefix(prefix);
    if (complaint)
      throw new InvalidArgumentError(`prefix ${complaint} key=${name} prefix=${prefix}`);
  }
  return {
    name,
    may: (verb, resource) =>
      verbs.includes(verb) &&
      isPlain(resource.split('/')) &&
      prefixes.some((prefix) => resource === prefix || resource.startsWith(`${prefix}/`)),
  };
}

/**
 * True if no segment is empty, `.` or `..`: a later reader of the path could resolve such segments.
 */
function isPlain(segments: readonly string[]): boolean {
  return segments.every((segment) => !['', '.', '..'].includes(segment));
}
