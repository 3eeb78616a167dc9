import { InvalidArgumentError } from '@fenced/store';
import { checkObject } from '@fenced/store/internal';
import * as z from 'zod';

const MIB = 2 ** 20;
const GIB = 2 ** 30;

/** A whole number of the configuration, with its default. */
export function bounded(min: number, max: number, fallback: number) {
  return z.int().min(min).max(max).default(fallback);
}

/** The limits of a gateway and its server, in bytes and milliseconds. */
export const limitsSchema = z.strictObject({
  bodyBytesMax: bounded(0, 5_000 * GIB, 5 * GIB).describe('The largest object.'),
  recordBytesMax: bounded(1, 256 * MIB, MIB).describe('The largest record, and any other JSON.'),
  headerBytesMax: bounded(1_024, MIB, 16_384).describe('All headers of a request together.'),
  connectionsMax: bounded(1, 1_000_000, 10_000).describe('Connections from callers.'),
  connectionsPerAddressMax: z
    .int()
    .min(1)
    .max(1_000_000)
    .exactOptional()
    .describe(
      'Connections from one address. By default an address never uses more than it leaves free for others.',
    ),
  requestsMax: bounded(1, 100_000, 1_000).describe(
    'Requests that run at once. A key never uses more than it leaves free for others.',
  ),
  waitsMax: bounded(1, 100_000, 4_000).describe(
    'Requests that wait for a lease at once, shared in the same way. Keep it below `connectionsMax`.',
  ),
  uploadsMax: bounded(1, 10_000, 64).describe(
    'Objects that are written at once, shared in the same way. Each has at most six parts of 8 MiB in memory.',
  ),
  storeTimeoutMs: bounded(100, 600_000, 50_000).describe(
    'The time that Redis, S3 and Postgres have for their part of a request, besides a wait for a lease. Keep it below the time limit of the load balancer.',
  ),
  waitMsMax: bounded(0, 600_000, 30_000).describe('The longest wait of a request for a lease.'),
  headersTimeoutMs: bounded(100, 600_000, 10_000).describe(
    'The time for the headers of a request to arrive.',
  ),
  bytesPerSecondMin: bounded(0, GIB, 16_384).describe(
    'The bytes that a client must send or read in a second, on average over `idleTimeoutMs`; 0 for no limit.',
  ),
  idleTimeoutMs: bounded(100, 3_600_000, 30_000).describe(
    'The time over which `bytesPerSecondMin` is averaged. Within it, a client must send or read its bytes, or the rest of the body.',
  ),
  drainDelayMs: bounded(0, 600_000, 0).describe(
    'The time after SIGTERM in which requests are still accepted, so that load balancers notice the failing readiness.',
  ),
  graceMs: bounded(0, 3_600_000, 10_000).describe(
    'The time for running requests to end, after `drainDelayMs`.',
  ),
});

/**
 * Bytes and milliseconds, each described with its range and default in
 * docs/gateway-configuration.md.
 */
export type Limits = z.input<typeof limitsSchema>;
export type AllLimits = z.output<typeof limitsSchema>;

/** Fills in the defaults. @throws {InvalidArgumentError} with every mistake */
export function resolveLimits(given: Limits = {}): AllLimits {
  checkObject('limits', given);
  const { data, error } = limitsSchema.safeParse(given);
  if (data !== undefined) return data;
  const mistakes = error.issues.map(
    ({ path, message }) => `${z.core.toDotPath(['limits', ...path])}: ${message}`,
  );
  throw new InvalidArgumentError(mistakes.join('; '));
}
