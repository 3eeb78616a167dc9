import { createHash, randomBytes } from 'node:crypto';
import { createTokenSigner } from '@fenced/gateway';
import { openCredentials } from '@fenced/gateway/credentials';
import { createMetrics } from '@fenced/gateway/metrics';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Front, GatewayWorld, problemOf, until } from './harness/world.js';

interface LeaseSet {
  readonly resources: readonly string[];
  readonly leaseId: string;
  readonly tokens: readonly { readonly resource: string; readonly token: string }[];
  readonly remainingMs: number;
}

const hash = (text: string): string => createHash('sha256').update(text).digest('hex');
const keys = [
  ['all', ['leases', 'objects']],
  ['some', ['leases/set/a', 'leases/set/b', 'objects']],
] as const;

let world: GatewayWorld;
let one: Front;
let two: Front;
const metrics = createMetrics();
/** True while `count` requests wait for a lease. */
const areWaiting = async (count: number): Promise<boolean> =>
  (await metrics.text()).includes(`fenced_gateway_in_use{limit="waits"} ${count}\n`);

beforeAll(async () => {
  world = await GatewayWorld.start();
  const signer = createTokenSigner([{ id: 'k1', secret: randomBytes(32) }], () => Date.now());
  const credentials = openCredentials({
    keys: keys.map(([name, prefixes]) => ({
      name,
      sha256: hash(name),
      prefixes,
      verbs: ['lease', 'read', 'write'] as const,
    })),
  });
  one = await world.open({ signer, credentials, metrics, onRequest: metrics.observe });
  two = await world.open({ signer, credentials });
});

afterAll(async () => {
  await one?.[Symbol.asyncDispose]();
  await two?.[Symbol.asyncDispose]();
  await world?.[Symbol.asyncDispose]();
});

function post(front: Front, path: string, body: unknown, as = 'all'): Promise<Response> {
  return fetch(`${front.url}/v1/lease-sets${path}`, {
    method: 'POST',
    body: JSON.stringify(body),
    headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${as}` },
  });
}

async function acquire(resources: readonly string[], options: object = {}): Promise<LeaseSet> {
  const response = await post(one, '', { resources, ttlMs: 10_000, waitMs: 5_000, ...options });
  expect(response.status).toBe(201);
  return (await response.json()) as LeaseSet;
}

async function codeOf(asked: Promise<Response>): Promise<unknown> {
  const response = await asked;
  if (response.ok) return response.status;
  return String((await problemOf(response)).type).replace('urn:fenced:problem:', '');
}

const release = (set: LeaseSet, resources = set.resources, as = 'all'): Promise<Response> =>
  post(two, `/${set.leaseId}/release`, { resources }, as);

test('all resources are locked together or none, and any gateway extends and releases them', async () => {
  const set = await acquire(['set/b', 'set/a']);
  expect(set.resources).toEqual(['set/a', 'set/b']);
  const numbers = set.tokens.map(({ token }) => token.split('.')[0]);
  expect(new Set(numbers).size).toBe(1);
  for (const resources of [['set/a'], ['set/c', 'set/b']])
    expect(await codeOf(post(two, '', { resources, ttlMs: 1_000 }))).toBe('held');
  await acquire(['set/c'], { ttlMs: 100 });

  const extended = await post(two, `/${set.leaseId}/extend`, {
    resources: ['set/b', 'set/a'],
    ttlMs: 30_000,
  });
  expect(extended.status).toBe(200);
  const more = (await extended.json()) as LeaseSet;
  expect(more.remainingMs).toBeGreaterThan(20_000);
  expect(more.tokens.map(({ token }) => token.split('.')[0])).toEqual(numbers);

  const waiting = acquire(['set/b', 'set/d']);
  await until(() => areWaiting(1));
  expect(await (await release(more)).json()).toMatchObject({ outcome: 'released' });
  const next = await waiting;
  expect(BigInt(next.tokens[0]?.token.split('.')[0] ?? 0)).toBeGreaterThan(BigInt(numbers[0] ?? 0));
  expect(await (await release(set)).json()).toMatchObject({ outcome: 'expired' });
  const late = post(two, `/${set.leaseId}/extend`, { resources: set.resources, ttlMs: 1_000 });
  expect(await codeOf(late)).toBe('lease-lost');
  await release(next);
  expect(await metrics.text()).toMatch(/lease_requests_total\{outcome="acquired"\} [1-9]/);
});

test('the token of each resource is good for the keys of that resource only', async () => {
  const set = await acquire(['set/a', 'set/b']);
  const put = (key: string, token: string | undefined) =>
    codeOf(
      fetch(`${two.url}/v1/objects/${key}`, {
        method: 'PUT',
        body: '1',
        headers: { 'Fencing-Token': `${token}`, Authorization: 'Bearer all' },
      }),
    );
  const [a, b] = set.tokens;
  expect([a?.resource, b?.resource]).toEqual(['set/a', 'set/b']);
  expect(await put('set/a', a?.token)).toBe(200);
  expect(await put('set/b', b?.token)).toBe(200);
  expect(await put('set/a', b?.token)).toBe('invalid-token');
  expect(await put('set/c', a?.token)).toBe('invalid-token');
  await release(set);
  // The next holder of `set/b` makes the token of the set stale for `set/b`, and not for `set/a`.
  const next = await acquire(['set/b']);
  expect(await put('set/b', next.tokens[0]?.token)).toBe(200);
  expect(await put('set/b', b?.token)).toBe('stale-token');
  expect(await put('set/a', a?.token)).toBe(200);
  await release(next);
});

describe('rights', () => {
  test('a set needs the right to lease each of its resources', async () => {
    const ask = (resources: readonly string[], as?: string) =>
      codeOf(post(one, '', { resources, ttlMs: 100 }, as));
    expect(await ask(['set/a', 'set/b'], 'some')).toBe(201);
    for (const resources of [['set/a', 'set/c'], ['set/c'], ['set/ab', 'set/a'], ['set']])
      expect([resources, await ask(resources, 'some')]).toEqual([resources, 'forbidden']);
    expect(await ask(['set/a'], 'nobody')).toBe('unauthenticated');
  });

  test('the id of a set is good for exactly its resources', async () => {
    const set = await acquire(['set/a', 'set/b', 'set/c']);
    // The caller has rights on `set/a` and `set/b` only, and has got the id of another caller.
    for (const resources of [['set/a'], ['set/a', 'set/b']])
      expect(await codeOf(release(set, resources, 'some'))).toBe('invalid-token');
    expect(await codeOf(release(set, set.resources, 'some'))).toBe('forbidden');
    const single = await fetch(`${one.url}/v1/leases/set/a/${set.leaseId}`, {
      method: 'DELETE',
      headers: { Authorization: 'Bearer all' },
    });
    expect(await codeOf(Promise.resolve(single))).toBe('invalid-token');
    expect(await codeOf(post(one, '', { resources: ['set/b'], ttlMs: 100 }))).toBe('held');
    expect(await codeOf(release(set))).toBe(200);
  });
});

test.each([
  ['no resources', [], 'invalid-request'],
  ['an empty name', ['a', ''], 'invalid-request'],
  ['one name twice', ['a', 'a'], 'invalid-request'],
  ['257 names', Array.from({ length: 257 }, (_, at) => `a/${at}`), 'invalid-request'],
  ['a name that is too long', ['a', 'b'.repeat(1_025)], 'invalid-request'],
  ['a number', ['a', 1], 'invalid-request'],
  ['one name alone', 'a', 'invalid-request'],
  ['the way up', ['a', 'set/../a'], 'invalid-path'],
  ['an empty segment', ['a', 'set//a'], 'invalid-path'],
  ['a control character', ['a', 'a\0'], 'invalid-path'],
  ['a backslash', ['a', 'a\\b'], 'invalid-path'],
  ['a name that is not NFC', ['a', 'a\u0308'], 'invalid-path'],
  ['half a surrogate pair', ['a', '\ud800'], 'invalid-path'],
])('resources are refused that are no names: %s', async (_, resources, code) => {
  for (const [path, more] of [
    ['', { ttlMs: 1_000 }],
    ['/id/extend', { ttlMs: 1_000 }],
    ['/id/release', {}],
  ] as const) {
    const found = await codeOf(post(one, path, { resources, ...more }));
    expect([path, found]).toEqual([path, code]);
  }
});

test('the facts for the log name all resources of a set, also if it is refused', async () => {
  const resources = ['log/a', 'log/b, c'];
  const granted = await post(two, '', { resources, ttlMs: 10_000 });
  const { leaseId } = (await granted.json()) as LeaseSet;
  await post(two, `/${leaseId}/release`, { resources });
  await post(two, '', { resources, ttlMs: 10_000 }, 'some');
  const named = 'leases/log/a,leases/log/b%2C%20c';
  await expect
    .poll(() => two.ended.map(({ resource, status }) => [resource, status]).slice(-3))
    .toEqual([
      [named, 201],
      [named, 200],
      [named, 403],
    ]);
});

test('a resource may have a name with a meaning in JavaScript, such as __proto__', async () => {
  const resources = ['__proto__', 'constructor'];
  const set = await acquire(resources);
  expect(set.tokens.map(({ resource }) => resource)).toEqual(resources);
  expect(await codeOf(release(set))).toBe(200);
});

test('times beyond the limits are refused', async () => {
  const resources = ['set/times'];
  expect(await codeOf(post(one, '', { resources, ttlMs: 1_000, waitMs: 30_001 }))).toBe(
    'invalid-request',
  );
  expect(await codeOf(post(one, '', { resources, ttlMs: 60_001 }))).toBe('invalid-request');
  expect(await codeOf(post(one, '', { resources, ttlMs: 1_000, more: 1 }))).toBe('invalid-request');
  expect(await codeOf(post(one, '', { resources }))).toBe('invalid-request');
});

test('a client that goes away while it waits gets no lease', async () => {
  const set = await acquire(['set/gone', 'set/gone/2']);
  const gone = new AbortController();
  const waiting = fetch(`${one.url}/v1/lease-sets`, {
    method: 'POST',
    signal: gone.signal,
    body: JSON.stringify({ resources: ['set/gone'], ttlMs: 30_000, waitMs: 20_000 }),
    headers: { 'Content-Type': 'application/json', Authorization: 'Bearer all' },
  }).catch(() => 'gone');
  await until(() => areWaiting(1));
  gone.abort();
  expect(await waiting).toBe('gone');
  await until(() => areWaiting(0));
  await release(set);
  await release(await acquire(['set/gone']));
});
