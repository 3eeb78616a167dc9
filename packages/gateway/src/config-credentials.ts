import { createLocalJWKSet, type JSONWebKeySet } from 'jose';
import * as z from 'zod';
import { complaintAboutBinding } from './bindings.js';
import { ALWAYS, areDistinct, contents, given, isLoopback } from './config-fields.js';
import { complaintAboutPrefix, JWT_ALGORITHMS, VERBS } from './credentials.js';
import { bounded } from './limits.js';

const secretBytes = z
  .string()
  .regex(/^[A-Za-z0-9+/]{43,}={0,2}$/, 'must be at least 32 random bytes as base64')
  .transform((text) => Uint8Array.from(Buffer.from(text, 'base64')));
const keySet = z.string().transform((text, context): JSONWebKeySet => {
  try {
    const keys = JSON.parse(text) as JSONWebKeySet;
    createLocalJWKSet(keys);
    return keys;
  } catch (error) {
    context.addIssue(`must be a JSON Web Key Set of public keys: ${(error as Error).name}`);
    return z.NEVER;
  }
});

const prefixes = z.array(
  z.string().superRefine((prefix, context) => {
    const complaint = complaintAboutPrefix(prefix);
    if (complaint) context.addIssue(`${complaint} prefix=${JSON.stringify(prefix)}`);
  }),
);

const key = z.strictObject({
  name: z.string().regex(/^[\w.@-]{1,64}$/, 'must be 1 to 64 letters, digits and . _ - @'),
  sha256: z
    .string()
    .regex(/^[0-9a-fA-F]{64}$/, 'must be 64 hexadecimal digits, in quotes')
    .toLowerCase(),
  verbs: z.array(z.enum(VERBS)).min(1),
  prefixes: prefixes.min(1),
});

const jwt = z
  .strictObject({
    issuer: z.string().min(1).describe('The required `iss`.'),
    audience: z
      .string()
      .min(1)
      .describe('The required `aud`. A token with several must have it among them.'),
    algorithms: z
      .array(z.enum(JWT_ALGORITHMS))
      .min(1)
      .describe(`The accepted signature algorithms, some of ${JWT_ALGORITHMS.join(', ')}.`),
    jwksUrl: z
      .string()
      .refine(isSafeUrl, 'must be an https:// URL, or http:// of this machine')
      .exactOptional()
      .describe(
        "The URL of the issuer's public keys. It is asked again every 10 minutes, and if a key is missing, at most every 30 s.",
      ),
    jwksFile: contents
      .pipe(keySet)
      .exactOptional()
      .describe("A file with the issuer's public keys."),
    nameClaim: z.string().min(1).default('sub').describe('The claim with the name of the caller.'),
    verbsClaim: z.string().min(1).default('fenced_verbs').describe('The claim with the verbs.'),
    prefixesClaim: z
      .string()
      .min(1)
      .default('fenced_prefixes')
      .describe('The claim with the prefixes.'),
    clockToleranceS: bounded(0, 300, 5).describe(
      "The largest difference between the issuer's clock and ours.",
    ),
  })
  .refine((fields) => given(fields, 'jwksUrl', 'jwksFile') === 1, {
    error: 'needs either jwksUrl or jwksFile',
    ...ALWAYS,
  })
  .transform(({ jwksUrl, jwksFile, nameClaim, verbsClaim, prefixesClaim, ...rest }) => ({
    ...rest,
    jwks: jwksFile ?? new URL(jwksUrl ?? ''),
    claims: { name: nameClaim, verbs: verbsClaim, prefixes: prefixesClaim },
  }));

/** The callers and their rights. */
export const credentials = z
  .strictObject({
    keys: z
      .array(key)
      .default([])
      .refine((keys) => areDistinct(keys, 'sha256'), { error: 'two keys are the same', ...ALWAYS })
      .describe(
        `The API keys, each \`{name, sha256, verbs, prefixes}\`. Verbs: ${VERBS.join(', ')}. A prefix has whole path segments, such as \`objects/reports\`.`,
      ),
    jwt: jwt.exactOptional(),
  })
  .transform((fields) => ({
    ...fields,
    anonymous: fields.keys.length === 0 && fields.jwt === undefined,
  }));

const signingKey = z
  .strictObject({
    id: z.string().regex(/^[\w-]{1,32}$/, 'must be 1 to 32 letters, digits, _ and -'),
    secret: secretBytes.exactOptional(),
    secretFile: contents.pipe(secretBytes).exactOptional(),
  })
  .refine((fields) => given(fields, 'secret', 'secretFile') === 1, {
    error: 'needs either secret or secretFile',
    ...ALWAYS,
  })
  .transform(({ id, secret, secretFile }) => ({
    id,
    secret: secret ?? secretFile ?? new Uint8Array(),
  }));

/** Rules for the lease that guards a key. */
export const bindings = z
  .array(
    z
      .strictObject({
        keys: z.string(),
        lease: z.string().exactOptional(),
        anyLease: z.boolean().exactOptional(),
      })
      .superRefine((binding, context) => {
        const complaint = complaintAboutBinding(binding);
        if (complaint !== null) context.addIssue(complaint);
      }),
  )
  .describe(
    'Rules for the lease that guards a key, each `{keys, lease}` or `{keys, anyLease: true}`. The first match counts. Without one, the lease of the same name guards it.',
  )
  .default([]);

/** Keys and rules of signed tokens. */
export const signing = z.strictObject({
  required: z
    .boolean()
    .default(true)
    .describe('Accepts only tokens that the gateway signed. If false, bare numbers too.'),
  ttlMs: bounded(1_000, 366 * 86_400_000, 86_400_000).describe(
    'The time for which a signature is valid after its token was issued or its lease extended.',
  ),
  keys: z
    .array(signingKey)
    .min(1)
    .refine((keys) => areDistinct(keys, 'id'), { error: 'two keys have one id', ...ALWAYS })
    .describe(
      'Each `{id, secret}` or `{id, secretFile}`: 32 random bytes as base64. The first one signs, all verify.',
    ),
});

function isSafeUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, hostname } = new URL(text);
  return protocol === 'https:' || (protocol === 'http:' && isLoopback(hostname));
}
