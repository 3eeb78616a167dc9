import { NAME_PATTERN, SEGMENT_PATTERN } from '@fenced/client/protocol/path';
import * as z from 'zod';
// For the types of `meta`.
import type {} from 'zod-openapi';

/** Parts of requests and answers that several routes share, as the OpenAPI document shows them. */

const DIGITS = /^(0|[1-9][0-9]{0,18})$/;

export const DECIMAL = z.string().regex(DIGITS);

export const TOKEN = DECIMAL.meta({
  id: 'Token',
  description: 'A fencing token, as decimal digits. It may be too large for a JSON number.',
});

export const PRESENTED_TOKEN = z
  .string()
  .regex(/^[1-9][0-9]{0,18}([.][A-Za-z0-9._-]+)?$/)
  .meta({
    id: 'PresentedToken',
    description:
      'Send it as Fencing-Token, unchanged. The digits before the first dot are the token. Its signature follows.',
  });

/** The kind, the id and the encoded key of a write. */
export const WRITE_NAME: RegExp = /^(objects|records)[.]([0-9a-f-]{32,36})[.]([A-Za-z0-9_-]+)$/;

export const WRITE_ID = z.string().regex(WRITE_NAME).meta({
  id: 'WriteId',
  description: 'Names one write for ever. /v1/writes reports its outcome.',
});

const MILLISECONDS = z.int().min(0);

/** The shortest lease that a lock service grants. */
const TTL_MIN_MS = 10;

/** The times of a request for a lease. */
export function timesOf({ limits, maxTtlMs = Number.MAX_SAFE_INTEGER }: TimeLimits) {
  return {
    ttlMs: z.int().min(TTL_MIN_MS).max(maxTtlMs).describe('The time for which the lease lasts.'),
    waitMs: MILLISECONDS.max(limits.waitMsMax)
      .exactOptional()
      .describe('The time to wait if another caller holds the lease.'),
  };
}

interface TimeLimits {
  readonly limits: { readonly waitMsMax: number };
  readonly maxTtlMs?: number;
}

/** The owner of a lease, and its signed token. */
export const LEASE_NAME: RegExp = /^([0-9a-f-]+)[.]([1-9][A-Za-z0-9._-]*)$/;

export const LEASE_ID = z
  .string()
  .regex(LEASE_NAME)
  .describe('From the answer that granted or extended the lease.');

/** Members of every answer that grants or extends a lease. */
export const LEASE_FACTS = {
  leaseId: z
    .string()
    .describe(
      'Extends and releases the lease, at any gateway. The lease id of the latest answer is valid for longest.',
    ),
  remainingMs: MILLISECONDS.describe('The validity of the lease, counted from this answer.'),
  elapsedMs: MILLISECONDS.describe(
    'The time that the gateway took. The lease is valid until remainingMs + 0.99 × elapsedMs - 2 after the request was sent, but for no longer than remainingMs after the answer arrived. The clock of the client must also run while its machine sleeps.',
  ),
};

const NAME_LENGTH_MAX = 1_024;
const NORMAL = 'In UTF-8 and Unicode normal form C.';

/** A name in a path, or in a body. */
export function nameOf(description: string): z.ZodString {
  return named(NAME_PATTERN, description);
}

/** A name without slashes. */
export function segmentOf(description: string): z.ZodString {
  return named(SEGMENT_PATTERN, description);
}

/**
 * The pattern is that of the function which checks paths. Here it only describes, so that a wrong
 * name gets the same problem in a body as in a path.
 */
function named(pattern: RegExp, description: string): z.ZodString {
  return z
    .string()
    .min(1)
    .meta({
      description: `${description} ${NORMAL}`,
      pattern: pattern.source,
      maxLength: NAME_LENGTH_MAX,
    });
}

/** Both forms are the same name, because the gateway decodes a path once, as a whole. */
export const SLASHES = 'Slashes may stand as they are, or as %2F.';

/** Headers of an answer. */
export const WITH_TOKEN = z.object({
  'Fencing-Token': z
    .string()
    .describe('The token that was issued or used, or that the value was written with.')
    .exactOptional(),
});

export const WITH_VERSION = WITH_TOKEN.extend({
  ETag: z.string().describe('The version. Every write makes another one.').exactOptional(),
});

export const WITH_WRITE_ID = WITH_VERSION.extend({ 'Fencing-Write-Id': WRITE_ID.exactOptional() });

export function json(schema: z.ZodType): { 'application/json': { schema: z.ZodType } } {
  return { 'application/json': { schema } };
}
