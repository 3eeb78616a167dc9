import { encodedPath } from '@fenced/client/protocol/path';
import { jsonOf } from '../bodies.js';
import { type Exchange, type Route, reply } from '../exchange.js';
import type { AllLimits } from '../limits.js';
import type { GrantedLease, LeaseService } from '../parts.js';
import { Problem } from '../problem.js';
import type { Runtime } from '../runtime.js';
import type { TokenSigner } from '../token-signer.js';

const RETRY_AFTER_MS = 1_000;

export interface LeaseParts {
  readonly redlock: LeaseService;
  readonly signer: TokenSigner;
  readonly limits: AllLimits;
  readonly runtime: Runtime;
  /** Ends waits for leases. */
  readonly draining?: AbortSignal;
}

/** Acquire, extend and release. The id of a lease has all that any gateway needs to know of it. */
export function leaseRoutes(parts: LeaseParts): readonly Route[] {
  const resource = ({ resource = '' }): string => `leases/${resource}`;
  return [
    {
      path: '/v1/leases/*resource',
      resource,
      methods: { post: { verb: 'lease', handle: (exchange) => acquire(parts, exchange) } },
    },
    {
      path: '/v1/leases/*resource/:leaseId',
      resource,
      methods: {
        patch: { verb: 'lease', handle: (exchange) => extend(parts, exchange) },
        delete: { verb: 'lease', handle: (exchange) => release(parts, exchange) },
      },
    },
  ];
}

async function acquire(parts: LeaseParts, exchange: Exchange): Promise<void> {
  const startedMs = parts.runtime.nowMs();
  const { response, names, signal } = exchange;
  const { resource = '' } = names;
  const { ttlMs, waitMs = 0 } = await timesOf(parts, exchange, ['ttlMs', 'waitMs']);
  const { waitMsMax } = parts.limits;
  if (waitMs > waitMsMax)
    throw new Problem('invalid-request', `waitMs may be ${waitMsMax} at most waitMs=${waitMs}`);
  const ended = parts.draining ? AbortSignal.any([signal, parts.draining]) : signal;
  const ask = (): Promise<GrantedLease> =>
    parts.redlock.acquire(resource, { ttlMs, waitMs, signal: ended });
  const lease = waitMs === 0 ? await ask() : await exchange.whileWaiting(waitMs, ask);
  if (signal.aborted) {
    // Whoever asked for it does not know of it, and would only be in the way of others.
    await lease.release();
    throw signal.reason;
  }
  response.status(201);
  const { owner, token } = lease;
  answer(parts, exchange, startedMs, { owner, token, remainingMs: lease.remainingMs() });
}

async function extend(parts: LeaseParts, exchange: Exchange): Promise<void> {
  const startedMs = parts.runtime.nowMs();
  const { resource, owner, token } = named(parts.signer, exchange);
  const { ttlMs } = await timesOf(parts, exchange, ['ttlMs']);
  const remainingMs = await parts.redlock.extend({ resource, owner }, ttlMs);
  if (remainingMs < 1)
    throw new Problem('no-quorum', 'the lock nodes answered too late to rely on what they said', {
      retryAfterMs: 1,
    });
  answer(parts, exchange, startedMs, { owner, token, remainingMs });
}

async function release(parts: LeaseParts, exchange: Exchange): Promise<void> {
  const { resource, owner, token } = named(parts.signer, exchange);
  const outcome = await parts.redlock.release({ resource, owner });
  if (outcome === 'unknown')
    throw new Problem('no-quorum', 'too few lock nodes answered; the lease ends by itself', {
      retryAfterMs: RETRY_AFTER_MS,
    });
  exchange.response.set('Fencing-Token', String(token));
  reply(exchange.response, { resource, outcome });
}

function answer(
  { signer, runtime, limits }: LeaseParts,
  { response, names }: Exchange,
  startedMs: number,
  lease: { readonly owner: string; readonly token: bigint; readonly remainingMs: number },
): void {
  const { resource = '' } = names;
  const { owner, remainingMs } = lease;
  const endMs = runtime.wallClockMs() + limits.signatureTtlMs;
  const signed = signer.sign(lease.token, { purpose: 'lease', resource, owner }, endMs);
  const leaseId = `${owner}.${signed}`;
  const token = signer.sign(lease.token, { purpose: 'token', resource }, endMs);
  response.set('Fencing-Token', token);
  response.set('Location', `/v1/leases/${encodedPath(resource)}/${leaseId}`);
  reply(response, {
    ...{ resource, leaseId, token, remainingMs: Math.floor(remainingMs) },
    elapsedMs: Math.floor(runtime.nowMs() - startedMs),
  });
}

/** The lease that the path names. @throws {Problem} where no gateway gave out that id for this resource */
function named(signer: TokenSigner, { names }: Exchange) {
  const { resource = '', leaseId = '' } = names;
  const [, owner = '', signed = ''] = /^([0-9a-f-]+)\.(.+)$/.exec(leaseId) ?? [];
  if (owner === '')
    throw new Problem('invalid-request', 'this is not the leaseId of an answer of this gateway');
  return { resource, owner, token: signer.verify(signed, { purpose: 'lease', resource, owner }) };
}

/** The milliseconds that a body names, `ttlMs` always. Their ranges are for the lock service to check. */
async function timesOf(
  { limits, runtime }: LeaseParts,
  exchange: Exchange,
  names: readonly string[],
): Promise<{ readonly ttlMs: number; readonly waitMs?: number }> {
  const { recordBytesMax: bytesMax } = limits;
  const body = await jsonOf(exchange, { bytesMax, pace: limits }, runtime);
  if (typeof body !== 'object' || body === null || Array.isArray(body))
    throw new Problem('invalid-request', 'the body must be an object');
  for (const [name, value] of Object.entries(body)) {
    if (!names.includes(name))
      throw new Problem('invalid-request', `the body may have ${names.join(', ')} name=${name}`);
    if (!Number.isSafeInteger(value) || Number(value) < 0)
      throw new Problem('invalid-request', `${name} must be a whole number of milliseconds`);
  }
  const { ttlMs, waitMs } = body as { ttlMs?: number; waitMs?: number };
  if (ttlMs === undefined) throw new Problem('invalid-request', 'ttlMs is missing');
  return { ttlMs, ...(waitMs !== undefined && { waitMs }) };
}
