import { encodedPath } from '@fenced/client/protocol/path';
import * as z from 'zod';
import { jsonOf } from '../bodies.js';
import { type Exchange, type Route, reply } from '../exchange.js';
import type { GrantedLease, Parts } from '../parts.js';
import { Problem } from '../problem.js';
import { OF_BODY, OF_LOCK, problems } from '../problem-schemas.js';
import {
  json,
  MILLISECONDS,
  PRESENTED_TOKEN,
  pathName,
  SLASHES,
  WITH_TOKEN,
} from '../wire-schemas.js';

const RETRY_AFTER_MS = 1_000;

const RESOURCE = pathName(`The locked resource. ${SLASHES}`);
const LEASE_PATH = z.object({
  resource: RESOURCE,
  leaseId: pathName('From the answer that granted or extended the lease.'),
});

const ACQUIRE = z.strictObject({ ttlMs: MILLISECONDS, waitMs: MILLISECONDS.exactOptional() });
const EXTEND = z.strictObject({ ttlMs: MILLISECONDS });
const LEASE = z
  .object({
    resource: z.string(),
    leaseId: z
      .string()
      .describe(
        'Extends and releases the lease, at any gateway. The latest answer has the one that is valid for longest.',
      ),
    token: PRESENTED_TOKEN,
    remainingMs: MILLISECONDS.describe('The validity of the lease, counted from this answer.'),
    elapsedMs: MILLISECONDS.describe(
      'The time that the gateway took. The lease is valid until remainingMs + elapsedMs after the request was sent.',
    ),
  })
  .meta({ id: 'Lease' });
const RELEASED = z.object({ resource: z.string(), outcome: z.enum(['released', 'expired']) });

/**
 * Acquires, extends and releases leases. A lease id holds all that any gateway needs to know of its
 * lease.
 */
export function leaseRoutes(parts: Parts): readonly Route[] {
  const path = '/v1/leases/*resource';
  const common = { verb: 'lease', resource: ({ resource = '' }) => `leases/${resource}` } as const;
  return [
    {
      ...{ ...common, method: 'post', path },
      operation: {
        operationId: 'acquireLease',
        summary: 'Acquire a lease',
        requestParams: { path: z.object({ resource: RESOURCE }) },
        requestBody: { required: true, content: json(ACQUIRE) },
        responses: {
          201: {
            ...{ description: 'The lease. Location has its address.', headers: WITH_TOKEN },
            content: json(LEASE),
          },
          ...problems([...OF_LOCK, ...OF_BODY, 'held']),
        },
      },
      handle: (exchange) => acquire(parts, exchange),
    },
    {
      ...{ ...common, method: 'patch', path: `${path}/:leaseId` },
      operation: {
        operationId: 'extendLease',
        summary: 'Let the lease last at least ttlMs from now on',
        requestParams: { path: LEASE_PATH },
        requestBody: { required: true, content: json(EXTEND) },
        responses: {
          200: {
            ...{ description: 'The same lease, with the same token.', headers: WITH_TOKEN },
            content: json(LEASE),
          },
          ...problems([...OF_LOCK, ...OF_BODY, 'lease-lost']),
        },
      },
      handle: (exchange) => extend(parts, exchange),
    },
    {
      ...{ ...common, method: 'delete', path: `${path}/:leaseId` },
      operation: {
        operationId: 'releaseLease',
        summary: 'Release the lease',
        requestParams: { path: LEASE_PATH },
        responses: {
          200: {
            description: '`expired`: another caller may have held the lock already.',
            ...{ headers: WITH_TOKEN, content: json(RELEASED) },
          },
          ...problems(OF_LOCK),
        },
      },
      handle: (exchange) => release(parts, exchange),
    },
  ];
}

async function acquire(parts: Parts, exchange: Exchange): Promise<void> {
  const { redlock, limits, runtime, draining } = parts;
  const startedMs = runtime.nowMs();
  const { signal, names } = exchange;
  const { resource = '' } = names;
  const { ttlMs, waitMs = 0 } = await jsonOf(exchange, parts, ACQUIRE);
  if (waitMs > limits.waitMsMax)
    throw new Problem(
      'invalid-request',
      `waitMs may be at most ${limits.waitMsMax} value=${waitMs}`,
    );
  const ended = draining ? AbortSignal.any([signal, draining]) : signal;
  const ask = (): Promise<GrantedLease> =>
    redlock.acquire(resource, { ttlMs, waitMs, signal: ended });
  const lease = waitMs === 0 ? await ask() : await whileWaiting(parts, exchange, waitMs, ask);
  if (signal.aborted) {
    // The client does not know of this lease, which would only keep others waiting.
    await lease.release();
    throw signal.reason;
  }
  exchange.response.status(201);
  const { owner, token } = lease;
  answer(parts, exchange, startedMs, { owner, token, remainingMs: lease.remainingMs() });
}

async function extend(parts: Parts, exchange: Exchange): Promise<void> {
  const startedMs = parts.runtime.nowMs();
  const { resource, owner, token } = leaseIn(exchange, parts);
  const { ttlMs } = await jsonOf(exchange, parts, EXTEND);
  const remainingMs = await parts.redlock.extend({ resource, owner }, ttlMs);
  if (remainingMs < 1)
    throw new Problem('no-quorum', 'the lock nodes answered too late: the lease may be over', {
      retryAfterMs: 1,
    });
  answer(parts, exchange, startedMs, { owner, token, remainingMs });
}

async function release(parts: Parts, exchange: Exchange): Promise<void> {
  const { resource, owner, token } = leaseIn(exchange, parts);
  const outcome = await parts.redlock.release({ resource, owner });
  if (outcome === 'unknown')
    throw new Problem('no-quorum', 'too few lock nodes answered; the lease ends by itself', {
      retryAfterMs: RETRY_AFTER_MS,
    });
  exchange.response.set('Fencing-Token', String(token));
  reply(exchange.response, { resource, outcome });
}

/** Waits for a lease. The request counts as a wait only, and the time is not the store's. */
async function whileWaiting<Outcome>(
  { rooms }: Parts,
  { caller, deadline, leave }: Exchange,
  waitMs: number,
  wait: () => Promise<Outcome>,
): Promise<Outcome> {
  const leaveWaits = rooms.waits.enter(caller.name);
  leave();
  deadline.restart(waitMs);
  return wait().finally(leaveWaits);
}

function answer(
  { signer, runtime, signatureTtlMs }: Parts,
  { response, names }: Exchange,
  startedMs: number,
  lease: { readonly owner: string; readonly token: bigint; readonly remainingMs: number },
): void {
  const { resource = '' } = names;
  const { owner, remainingMs } = lease;
  const endMs = runtime.wallClockMs() + signatureTtlMs;
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

/**
 * The lease that the path names.
 *
 * @throws {Problem} if no gateway gave out that id for this resource
 */
function leaseIn({ names }: Exchange, { signer }: Parts) {
  const { resource = '', leaseId = '' } = names;
  const [, owner = '', signed = ''] = /^([0-9a-f-]+)\.(.+)$/.exec(leaseId) ?? [];
  if (owner === '')
    throw new Problem('invalid-request', 'this is not the leaseId of an answer of this gateway');
  return { resource, owner, token: signer.verify(signed, { purpose: 'lease', resource, owner }) };
}
