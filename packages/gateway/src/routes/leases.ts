import { encodedPath } from '@fenced/client/protocol/path';
import * as z from 'zod';
import { type Answer, jsonAnswer } from '../answer.js';
import { jsonOf } from '../bodies.js';
import type { Exchange, Route } from '../exchange.js';
import {
  acquireLease,
  extendLease,
  type IssuedLease,
  releaseLease,
  type Times,
} from '../leasing.js';
import { OF_BODY, OF_LOCK, problems } from '../problem-schemas.js';
import type { Services } from '../services.js';
import {
  json,
  LEASE_FACTS,
  LEASE_ID,
  nameOf,
  PRESENTED_TOKEN,
  SLASHES,
  timesOf,
  WITH_TOKEN,
} from '../wire-schemas.js';

const RESOURCE = nameOf(`The locked resource. ${SLASHES}`);
const LEASE_PATH = z.object({ resource: RESOURCE, leaseId: LEASE_ID });

const LEASE = z
  .object({ resource: z.string(), token: PRESENTED_TOKEN, ...LEASE_FACTS })
  .meta({ id: 'Lease' });
const RELEASED = z.object({ resource: z.string(), outcome: z.enum(['released', 'expired']) });

/**
 * Acquires, extends and releases leases. A lease id contains all that a gateway needs to extend or
 * release the lease, so gateways keep no state of it.
 */
export function leaseRoutes(services: Services): readonly Route[] {
  const path = '/v1/leases/*resource';
  const { ttlMs, waitMs } = timesOf(services);
  const acquiring = z.strictObject({ ttlMs, waitMs });
  const extending = z.strictObject({ ttlMs });
  const common = { verb: 'lease', resource: ({ resource = '' }) => `leases/${resource}` } as const;
  return [
    {
      ...common,
      method: 'post',
      path,
      operation: {
        operationId: 'acquireLease',
        summary: 'Acquire a lease',
        requestParams: { path: z.object({ resource: RESOURCE }) },
        requestBody: { required: true, content: json(acquiring) },
        responses: {
          201: {
            description: 'The lease. Location has its address.',
            headers: WITH_TOKEN,
            content: json(LEASE),
          },
          ...problems([...OF_LOCK, ...OF_BODY, 'held']),
        },
      },
      handle: (exchange) => acquire(services, exchange, acquiring),
    },
    {
      ...common,
      method: 'patch',
      path: `${path}/:leaseId`,
      operation: {
        operationId: 'extendLease',
        summary: 'Let the lease last at least ttlMs from now on',
        requestParams: { path: LEASE_PATH },
        requestBody: { required: true, content: json(extending) },
        responses: {
          200: {
            description: 'The same lease, with the same token.',
            headers: WITH_TOKEN,
            content: json(LEASE),
          },
          ...problems([...OF_LOCK, ...OF_BODY, 'lease-lost']),
        },
      },
      handle: (exchange) => extend(services, exchange, extending),
    },
    {
      ...common,
      method: 'delete',
      path: `${path}/:leaseId`,
      operation: {
        operationId: 'releaseLease',
        summary: 'Release the lease',
        requestParams: { path: LEASE_PATH },
        responses: {
          200: {
            description: '`expired`: another caller may have held the lock already.',
            headers: WITH_TOKEN,
            content: json(RELEASED),
          },
          ...problems(OF_LOCK),
        },
      },
      handle: (exchange) => release(services, exchange),
    },
  ];
}

async function acquire(
  services: Services,
  exchange: Exchange,
  schema: z.ZodType<Times>,
): Promise<Answer> {
  const startedMs = services.runtime.nowMs();
  const { resource = '' } = exchange.names;
  const times = await jsonOf(exchange, services, schema);
  const lease = await acquireLease(services, exchange, startedMs, resource, times);
  return answer(201, resource, lease);
}

async function extend(
  services: Services,
  exchange: Exchange,
  schema: z.ZodType<Times>,
): Promise<Answer> {
  const startedMs = services.runtime.nowMs();
  const { resource = '', leaseId = '' } = exchange.names;
  const { ttlMs } = await jsonOf(exchange, services, schema);
  return answer(200, resource, await extendLease(services, startedMs, resource, leaseId, ttlMs));
}

async function release(services: Services, { names }: Exchange): Promise<Answer> {
  const { resource = '', leaseId = '' } = names;
  const { token, outcome } = await releaseLease(services, resource, leaseId);
  return jsonAnswer(200, { resource, outcome }, { 'Fencing-Token': String(token) });
}

function answer(status: number, resource: string, lease: IssuedLease): Answer {
  const { leaseId, remainingMs, elapsedMs, tokenFor } = lease;
  const token = tokenFor(resource);
  return jsonAnswer(
    status,
    { resource, leaseId, token, remainingMs, elapsedMs },
    { 'Fencing-Token': token, Location: `/v1/leases/${encodedPath(resource)}/${leaseId}` },
  );
}
