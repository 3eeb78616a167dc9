import { checkName, encodedPath } from '@fenced/client/protocol/path';
import * as z from 'zod';
import { type Answer, jsonAnswer } from '../answer.js';
import { jsonOf } from '../bodies.js';
import { checkAllowed, type Exchange, type Route } from '../exchange.js';
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
  timesOf,
  WITH_TOKEN,
} from '../wire-schemas.js';

const RESOURCES = z
  .array(nameOf('A locked resource.'))
  .min(1)
  .max(256)
  .meta({ description: 'The names of the locked resources, in any order.', uniqueItems: true });
const LEASE_PATH = z.object({ leaseId: LEASE_ID });

const RELEASE = z.strictObject({ resources: RESOURCES });
const LEASE = z
  .object({
    resources: z.array(z.string()),
    tokens: z
      .array(z.object({ resource: z.string(), token: PRESENTED_TOKEN }))
      .describe('The one token of the lease, in the form to present for each resource.'),
    ...LEASE_FACTS,
  })
  .meta({ id: 'LeaseSet' });
const RELEASED = z.object({
  resources: z.array(z.string()),
  outcome: z.enum(['released', 'expired']),
});

/** Leases of several resources: all are locked together, or none. */
export function leaseSetRoutes(services: Services): readonly Route[] {
  const path = '/v1/lease-sets';
  const { ttlMs, waitMs } = timesOf(services);
  const acquiring = z.strictObject({ resources: RESOURCES, ttlMs, waitMs });
  const extending = z.strictObject({ resources: RESOURCES, ttlMs });
  const common = { method: 'post', verb: 'leases', resource: () => 'lease-sets' } as const;
  return [
    {
      ...common,
      path,
      operation: {
        operationId: 'acquireLeaseSet',
        summary: 'Acquire one lease of several resources: of all, or of none',
        requestBody: { required: true, content: json(acquiring) },
        responses: {
          201: { description: 'The lease.', headers: WITH_TOKEN, content: json(LEASE) },
          ...problems([...OF_LOCK, ...OF_BODY, 'held']),
        },
      },
      handle: (exchange) => acquire(services, exchange, acquiring),
    },
    {
      ...common,
      path: `${path}/:leaseId/extend`,
      operation: {
        operationId: 'extendLeaseSet',
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
      path: `${path}/:leaseId/release`,
      operation: {
        operationId: 'releaseLeaseSet',
        summary: 'Release the lease',
        requestParams: { path: LEASE_PATH },
        requestBody: { required: true, content: json(RELEASE) },
        responses: {
          200: {
            description: '`expired`: another caller may have held one of the locks already.',
            headers: WITH_TOKEN,
            content: json(RELEASED),
          },
          ...problems([...OF_LOCK, ...OF_BODY]),
        },
      },
      handle: (exchange) => release(services, exchange),
    },
  ];
}

interface Wanted extends Times {
  readonly resources: readonly string[];
}

async function acquire(
  services: Services,
  exchange: Exchange,
  schema: z.ZodType<Wanted>,
): Promise<Answer> {
  const startedMs = services.runtime.nowMs();
  const { resources, ...times } = await bodyOf(services, exchange, schema);
  const lease = await acquireLease(services, exchange, startedMs, resources, times);
  return answer(201, resources, lease);
}

async function extend(
  services: Services,
  exchange: Exchange,
  schema: z.ZodType<Wanted>,
): Promise<Answer> {
  const startedMs = services.runtime.nowMs();
  const { resources, ttlMs } = await bodyOf(services, exchange, schema);
  const { leaseId = '' } = exchange.names;
  return answer(200, resources, await extendLease(services, startedMs, resources, leaseId, ttlMs));
}

async function release(services: Services, exchange: Exchange): Promise<Answer> {
  const { names } = exchange;
  const { resources } = await bodyOf(services, exchange, RELEASE);
  const { token, outcome } = await releaseLease(services, resources, names.leaseId ?? '');
  return jsonAnswer(200, { resources, outcome }, { 'Fencing-Token': String(token) });
}

/**
 * The body, with its resources sorted. The caller has the right to lease each of them.
 *
 * @throws {Problem} `forbidden`, and those of `jsonOf`
 * @throws {InvalidPathError}
 */
async function bodyOf<Body extends { readonly resources: readonly string[] }>(
  services: Services,
  exchange: Exchange,
  schema: z.ZodType<Body>,
): Promise<Body> {
  const body = await jsonOf(exchange, services, schema);
  for (const name of body.resources) checkName(name);
  exchange.named = body.resources.map((name) => encodedPath(`leases/${name}`)).join();
  for (const name of body.resources) checkAllowed(exchange.caller, 'lease', `leases/${name}`);
  return { ...body, resources: body.resources.toSorted() };
}

function answer(status: number, resources: readonly string[], lease: IssuedLease): Answer {
  const { token, leaseId, remainingMs, elapsedMs, tokenFor } = lease;
  const tokens = resources.map((resource) => ({ resource, token: tokenFor(resource) }));
  return jsonAnswer(
    status,
    { resources, tokens, leaseId, remainingMs, elapsedMs },
    { 'Fencing-Token': String(token) },
  );
}
