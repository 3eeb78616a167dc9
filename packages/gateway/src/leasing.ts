import type { Exchange } from './exchange.js';
import { Problem } from './problem.js';
import type { GrantedLease, Services } from './services.js';
import { LEASE_NAME } from './wire-schemas.js';

const RETRY_AFTER_MS = 1_000;

/** One resource, or the sorted resources of a set. */
export type Locked = string | readonly string[];

/** The times of a lease, as a request asks for them. */
export interface Times {
  readonly ttlMs: number;
  readonly waitMs?: number;
}

/** A lease as a caller gets it. */
export interface IssuedLease {
  readonly token: bigint;
  /**
   * Contains all that a gateway needs to extend or release the lease, so gateways keep no state.
   */
  readonly leaseId: string;
  readonly remainingMs: number;
  readonly elapsedMs: number;
  /** The token, signed for one of the resources. */
  tokenFor(resource: string): string;
}

/**
 * Acquires a lease.
 *
 * @param startedMs when the request began
 * @throws {Problem} and the errors of the lock service
 */
export async function acquireLease(
  services: Services,
  exchange: Exchange,
  startedMs: number,
  locked: Locked,
  { ttlMs, waitMs = 0 }: Times,
): Promise<IssuedLease> {
  const { lock, drain } = services;
  const { signal } = exchange;
  const ended = AbortSignal.any([signal, drain.closing.signal]);
  const ask = (): Promise<GrantedLease> => lock.acquire(locked, { ttlMs, waitMs, signal: ended });
  const lease = waitMs === 0 ? await ask() : await whileWaiting(services, exchange, waitMs, ask);
  if (signal.aborted) {
    // The client has gone, or has another answer already. So nobody else would release this lease.
    await lease.release();
    throw signal.reason;
  }
  const { owner, token } = lease;
  return issued(services, startedMs, locked, { owner, token, remainingMs: lease.remainingMs() });
}

/** Extends a lease, with the parameters and errors of {@link acquireLease}. */
export async function extendLease(
  services: Services,
  startedMs: number,
  locked: Locked,
  leaseId: string,
  ttlMs: number,
): Promise<IssuedLease> {
  const { owner, token } = leaseOf(services, locked, leaseId);
  const remainingMs = await services.lock.extend({ resource: locked, owner, token }, ttlMs);
  if (remainingMs < 1)
    throw new Problem('no-quorum', 'the lock nodes answered too late: the lease may be over', {
      retryAfterMs: 1,
    });
  return issued(services, startedMs, locked, { owner, token, remainingMs });
}

/**
 * Releases a lease.
 *
 * @throws {Problem} `no-quorum` if too few nodes answered; `invalid-request` for a malformed id
 * @throws {SignatureError} if no gateway issued the id for these resources
 */
export async function releaseLease(
  services: Services,
  locked: Locked,
  leaseId: string,
): Promise<{ readonly token: bigint; readonly outcome: 'released' | 'expired' }> {
  const { owner, token } = leaseOf(services, locked, leaseId);
  const outcome = await services.lock.release({ resource: locked, owner });
  if (outcome === 'unknown')
    throw new Problem('no-quorum', 'too few lock nodes answered; the lease ends by itself', {
      retryAfterMs: RETRY_AFTER_MS,
    });
  return { token, outcome };
}

/**
 * Waits for a lease. The request then counts against the limit of waits, and not of running
 * requests. Its deadline becomes later by `waitMs`.
 */
async function whileWaiting<Outcome>(
  { concurrency }: Services,
  { caller, deadline, leave }: Exchange,
  waitMs: number,
  wait: () => Promise<Outcome>,
): Promise<Outcome> {
  const leaveWaits = concurrency.waits.enter(caller.name);
  leave();
  deadline.restart(waitMs);
  return wait().finally(leaveWaits);
}

function issued(
  { signer, runtime, signatureTtlMs }: Services,
  startedMs: number,
  locked: Locked,
  lease: { readonly owner: string; readonly token: bigint; readonly remainingMs: number },
): IssuedLease {
  const { owner, token, remainingMs } = lease;
  const endMs = runtime.wallClockMs() + signatureTtlMs;
  const signed = signer.sign(token, { purpose: 'lease', resource: locked, owner }, endMs);
  return {
    token,
    leaseId: `${owner}.${signed}`,
    remainingMs: Math.floor(remainingMs),
    elapsedMs: Math.floor(runtime.nowMs() - startedMs),
    tokenFor: (resource) => signer.sign(token, { purpose: 'token', resource }, endMs),
  };
}

/**
 * Parses a lease id.
 *
 * @throws {Problem} or {SignatureError} if no gateway issued it for these resources
 */
function leaseOf({ signer }: Services, locked: Locked, leaseId: string) {
  const [, owner = '', signed = ''] = LEASE_NAME.exec(leaseId) ?? [];
  if (owner === '')
    throw new Problem('invalid-request', 'this is not the leaseId of an answer of this gateway');
  return { owner, token: signer.verify(signed, { purpose: 'lease', resource: locked, owner }) };
}
