import './node-version.js';
import { createHash, timingSafeEqual } from 'node:crypto';
import { InvalidArgumentError } from '@fenced/store';
import {
  createLocalJWKSet,
  createRemoteJWKSet,
  errors,
  type JSONWebKeySet,
  type JWTPayload,
  type JWTVerifyGetKey,
  type JWTVerifyOptions,
  jwtVerify,
} from 'jose';

/** What a caller may do. */
export const VERBS = ['lease', 'read', 'write', 'claim', 'ratchet'] as const;
export type Verb = (typeof VERBS)[number];

/** What the first segment of a resource can be: what the paths of the gateway begin with behind `/v1`. */
const KINDS = ['leases', 'objects', 'records', 'ratchets'] as const;

/**
 * The signatures that a JSON Web Token may have: those whose verifier cannot sign. With a shared secret (`HS256`) whoever can
 * check a token could make one, and a public key taken for a secret is how `alg` is confused (RFC 8725, 2.1).
 */
// biome-ignore format: one family a line
export const JWT_ALGORITHMS = [
  'RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512',
  'ES256', 'ES384', 'ES512', 'EdDSA', 'Ed25519',
] as const;

/** What may be done, and to what: every verb to every prefix. */
interface Grant {
  readonly verbs: readonly Verb[];
  /** Whole path segments: `objects/a` allows `objects/a` and `objects/a/b`, and not `objects/ab`. */
  readonly prefixes: readonly string[];
}

export interface ApiKey extends Grant {
  /** For logs and limits. Two keys of one name are one caller: so a key is replaced without a gap. */
  readonly name: string;
  /** Of the key's bytes, as 64 hexadecimal digits. The key itself must be a random one: nothing here slows guessing down. */
  readonly sha256: string;
}

export interface JwtOptions {
  readonly issuer: string;
  readonly audience: string;
  /** At least one of {@link JWT_ALGORITHMS}. */
  readonly algorithms: readonly string[];
  /** The issuer's public keys, or where they can be fetched. */
  readonly jwks: JSONWebKeySet | URL;
  /** Which claim has what. Lists are arrays of strings, or one string with spaces between. */
  readonly claims?: {
    /** @default 'sub' */
    readonly name?: string;
    /** @default 'fenced_verbs' */
    readonly verbs?: string;
    /** @default 'fenced_prefixes' */
    readonly prefixes?: string;
  };
  /** How far the issuer's clock may be from ours. @default 5 */
  readonly clockToleranceS?: number;
  /** How long the issuer is waited for where its keys are fetched. @default 5000 */
  readonly fetchTimeoutMs?: number;
}

export interface KeysOptions {
  readonly keys?: readonly ApiKey[];
  readonly jwt?: JwtOptions;
  /** Everybody may do everything, with no credentials at all. Not beside keys or JWT. @default false */
  readonly anonymous?: boolean;
}

/** Who is asking. */
export interface Caller {
  /** The name of the API key; `jwt:` and the subject of a JSON Web Token; `anonymous`. */
  readonly name: string;
  /** @param resource decoded, without a slash in front: `leases/invoice/42`, `objects/a/b`, `records/invoices/42`, `ratchets/s3/a/b` */
  may(verb: Verb, resource: string): boolean;
}

export interface Credentials {
  /**
   * @param authorization the header of that name
   * @returns null where there are no credentials, or none that are known
   * @throws {CredentialsUnavailableError} where the issuer's keys cannot be had, so that nobody can tell
   */
  authenticate(authorization: string | undefined): Promise<Caller | null>;
}

/** The keys of the issuer of JSON Web Tokens cannot be fetched. The caller may try again later. */
export class CredentialsUnavailableError extends Error {
  constructor(options?: { readonly cause?: unknown }) {
    super("the issuer's keys cannot be fetched, so the JSON Web Token cannot be checked", options);
    this.name = 'CredentialsUnavailableError';
  }
}

const CREDENTIAL_CHARS_MAX = 8_192;
/** As OpenID Connect has it for `sub`: names are kept in memory and written to logs. */
const SUBJECT_CHARS_MAX = 255;

/** @throws {InvalidArgumentError} where a key or an option is not what it should be. */
export function openCredentials(options: KeysOptions): Credentials {
  const { keys = [], jwt, anonymous = false } = options;
  if (anonymous !== (keys.length === 0 && jwt === undefined))
    throw new InvalidArgumentError('credentials must be API keys, JWT or both; or else anonymous');
  if (anonymous) return { authenticate: async () => ({ name: 'anonymous', may: () => true }) };
  const callerOfKey = apiKeys(keys);
  const callerOfJwt = jwt && jsonWebTokens(jwt);
  return {
    authenticate: async (authorization) => {
      const [, credential] = /^Bearer +([\w.~+/=-]+) *$/i.exec(authorization ?? '') ?? [];
      if (credential === undefined || credential.length > CREDENTIAL_CHARS_MAX) return null;
      return callerOfKey(credential) ?? (await callerOfJwt?.(credential)) ?? null;
    },
  };
}

/** What is wrong with a prefix, where something is. */
export function complaintAboutPrefix(prefix: string): string | null {
  const segments = prefix.split('/');
  if (!KINDS.some((kind) => kind === segments[0])) return `must begin with ${KINDS.join(', ')}`;
  return isPlain(segments)
    ? null
    : 'must have no empty segments, none that is . or .., no / at its end';
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
    // Compared with every key, also behind a match: the time tells nothing about which one it was or how close.
    return known.filter((key) => timingSafeEqual(key.hash, hash))[0]?.caller;
  };
}

function jsonWebTokens(options: JwtOptions): (credential: string) => Promise<Caller | null> {
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
  // jose checks an issuer or an audience only where it is given one.
  if (issuer === '' || audience === '')
    throw new InvalidArgumentError('issuer and audience must not be empty');
  const keySet =
    jwks instanceof URL
      ? createRemoteJWKSet(jwks, { timeoutDuration: fetchTimeoutMs })
      : localKeySet(jwks);
  const checks = {
    ...{ issuer, audience, algorithms: [...algorithms], clockTolerance: clockToleranceS },
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

/** @returns null where the token is not to be believed */
async function verifiedClaims(
  token: string,
  keySet: JWTVerifyGetKey,
  checks: JWTVerifyOptions,
): Promise<JWTPayload | null> {
  try {
    return (await jwtVerify(token, keySet, checks)).payload;
  } catch (error) {
    if (error instanceof errors.JWKSMultipleMatchingKeys) {
      // A set that is being rotated may have several keys without a name of their own.
      for await (const key of error) {
        const claims = await verifiedClaims(token, async () => key, checks);
        if (claims !== null) return claims;
      }
      return null;
    }
    if (isRefusal(error)) return null;
    throw new CredentialsUnavailableError({ cause: error });
  }
}

/** Whether the token is at fault, and not the way to the issuer's keys or what is found there. */
function isRefusal(error: unknown): boolean {
  return (
    error instanceof errors.JOSEError &&
    !(error instanceof errors.JWKSTimeout) &&
    !(error instanceof errors.JWKSInvalid) &&
    // What jose throws where the issuer answered with something else than keys.
    error.code !== 'ERR_JOSE_GENERIC'
  );
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

/** Whether no segment could be taken for a way up or be left out by whoever reads the path behind us. */
function isPlain(segments: readonly string[]): boolean {
  return segments.every((segment) => !['', '.', '..'].includes(segment));
}
