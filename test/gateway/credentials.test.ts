import { createHash } from 'node:crypto';
import { createRateLimit, createTokenSigner, type TokenSigner } from '@fenced/gateway';
import { type ApiKey, openCredentials } from '@fenced/gateway/credentials';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Front, GatewayWorld, type Granted, problemOf } from './harness/world.js';

const SECRET = Buffer.alloc(32, 7);
const key = (name: string, verbs: ApiKey['verbs'], prefixes: readonly string[]): ApiKey => ({
  name,
  verbs,
  prefixes,
  sha256: createHash('sha256').update(`secret of ${name}`.replaceAll(' ', '-')).digest('hex'),
});
const keys = [
  key(
    'all',
    ['lease', 'read', 'write', 'claim', 'ratchet'],
    ['leases', 'objects', 'records', 'ratchets'],
  ),
  key('reader', ['read'], ['objects/open', 'records/open']),
  key('claimer', ['claim'], ['objects/open', 'records/open']),
  key('writer', ['lease', 'write'], ['leases/open', 'objects/open', 'records/open']),
];

let world: GatewayWorld;
let fronts: Front[];

function signerAt(nowMs: () => number): TokenSigner {
  return createTokenSigner([{ id: 'k1', secret: SECRET }], nowMs);
}

beforeAll(async () => {
  world = await GatewayWorld.start();
  const open = () =>
    world.open({
      credentials: openCredentials({ keys }),
      signer: signerAt(() => Date.now()),
      rate: {
        perKey: createRateLimit({ perSecond: 1_000, burst: 1_000 }, () => performance.now()),
        perAddress: createRateLimit({ perSecond: 1, burst: 40 }, () => performance.now()),
      },
    });
  fronts = [await open(), await open()];
});

afterAll(async () => {
  for (const front of fronts ?? []) await front[Symbol.asyncDispose]();
  await world?.[Symbol.asyncDispose]();
});

interface Call {
  readonly as?: string;
  readonly token?: string;
  readonly headers?: Record<string, string>;
  readonly body?: string;
  readonly front?: number;
}

function call(
  method: string,
  path: string,
  { as, token, headers, body, front = 0 }: Call = {},
): Promise<Response> {
  return fetch((fronts[front]?.url ?? '') + path, {
    method,
    ...(body !== undefined && { body }),
    headers: {
      'Content-Type': 'application/json',
      ...(as !== undefined && { Authorization: `Bearer secret-of-${as}` }),
      ...(token !== undefined && { 'Fencing-Token': token }),
      ...headers,
    },
  });
}

async function acquire(resource: string, as = 'all', ttlMs = 5_000): Promise<Granted> {
  const response = await call('POST', `/v1/leases/${resource}`, {
    as,
    body: JSON.stringify({ ttlMs }),
  });
  expect(response.status).toBe(201);
  return (await response.json()) as Granted;
}

async function typeOf(response: Promise<Response>): Promise<string> {
  const got = await response;
  if (got.status < 400) return String(got.status);
  return String((await problemOf(got)).type).replace('urn:fenced:problem:', '');
}

const EVERYTHING = [
  ['lease', 'POST', '/v1/leases/X'],
  ['lease', 'PATCH', '/v1/leases/X/id'],
  ['lease', 'DELETE', '/v1/leases/X/id'],
  ['read', 'GET', '/v1/objects/X'],
  ['read', 'HEAD', '/v1/objects/X'],
  ['write', 'PUT', '/v1/objects/X'],
  ['write', 'DELETE', '/v1/objects/X'],
  ['claim', 'POST', '/v1/objects/X/claim'],
  ['read', 'GET', '/v1/records/X'],
  ['read', 'HEAD', '/v1/records/X'],
  ['write', 'PUT', '/v1/records/X'],
  ['write', 'DELETE', '/v1/records/X'],
  ['claim', 'POST', '/v1/records/X/claim'],
  ['ratchet', 'GET', '/v1/ratchets/s3/X'],
  [
    'write',
    'GET',
    `/v1/writes/objects.${'0'.repeat(32)}.${Buffer.from('X').toString('base64url')}`,
  ],
] as const;

test.each(EVERYTHING)(
  '%s: %s %s needs credentials, that verb, and that prefix',
  async (verb, method, path) => {
    const address = (name: string): string =>
      path
        .replace('X', name)
        .replace(Buffer.from('X').toString('base64url'), Buffer.from(name).toString('base64url'));
    const status = async (name: string, as?: string): Promise<number> =>
      (
        await call(method, address(name), {
          ...(as !== undefined && { as }),
          ...(method === 'PUT' && { body: '1' }),
        })
      ).status;
    expect(await status('open/a', 'all')).not.toBe(403);
    expect(await status('open/a', 'nobody')).toBe(401);
    for (const caller of keys.slice(1)) {
      const may = caller.verbs.includes(verb) && (verb !== 'lease' || caller.name === 'writer');
      expect([caller.name, (await status('open/a', caller.name)) !== 403]).toEqual([
        caller.name,
        may,
      ]);
      for (const name of ['opened/a', 'closed/a'])
        expect(await status(name, caller.name)).toBe(403);
    }
  },
);

test("without credentials only the gateway's state is public, and guessing is slowed down", async () => {
  for (const path of ['/livez', '/readyz', '/openapi.json'])
    expect((await call('GET', path)).status).toBe(200);
  expect((await call('GET', '/metrics')).status).toBe(404);
  const refused = await call('GET', '/v1/objects/open/a');
  expect(refused.headers.get('www-authenticate')).toMatch(/^Bearer/);
  const answers = await Promise.all(
    Array.from({ length: 60 }, (_, at) => call('GET', '/v1/objects/a', { as: `guess-${at}` })),
  );
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([401, 429]));
  const limited = answers.find(({ status }) => status === 429);
  expect(limited && (await problemOf(limited))).toMatchObject({
    type: 'urn:fenced:problem:too-many-requests',
    retryAfterMs: expect.any(Number),
  });
  expect(Number(limited?.headers.get('retry-after'))).toBeGreaterThan(0);
  expect((await call('GET', '/v1/objects/open/a', { as: 'reader' })).status).toBe(404);
});

test('a signed token is valid for its resource at every gateway, and no other token is accepted', async () => {
  const { token, leaseId } = await acquire('open/signed');
  expect(token).toMatch(/^\d{16}\.k1\./);
  const write = (given: string, path = '/v1/objects/open/signed', headers = {}) =>
    typeOf(call('PUT', path, { as: 'writer', token: given, headers, body: '1', front: 1 }));
  expect(await write(token)).toBe('200');
  const [digits = '', ...rest] = token.split('.');
  const poison = String(2n ** 53n - 1n);
  for (const forged of [
    digits,
    poison,
    [poison, ...rest].join('.'),
    `${token}x`,
    token.replace('.k1.', '.k2.'),
  ])
    expect([forged, await write(forged)]).toEqual([forged, 'invalid-token']);
  expect(await write(token, '/v1/objects/open/other')).toBe('invalid-token');
  expect(await write(token, '/v1/records/open/signed')).toBe('200');
  for (const path of ['open%2f..%2fsigned', 'open/../signed', 'open//signed', '%ff'])
    expect(await write(token, '/v1/objects/open/other', { 'Fencing-Resource': path })).toMatch(
      /^invalid-path$/,
    );
  // A read shows the token without a signature, so a reader cannot present it.
  const read = await call('GET', '/v1/objects/open/signed', { as: 'reader' });
  expect(read.headers.get('fencing-token')).toBe(digits);
  const claimAndGet = '/v1/objects/open/signed/claim-and-get';
  for (const as of ['reader', 'claimer'])
    expect(await typeOf(call('POST', claimAndGet, { as, token }))).toBe('forbidden');
  expect(await typeOf(call('POST', claimAndGet, { as: 'all', token }))).toBe('200');
  expect(await typeOf(call('GET', '/v1/objects/open/signed', { as: 'all', token }))).toBe(
    'invalid-request',
  );

  const extend = (id: string, resourceName = 'open/signed') =>
    typeOf(
      call('PATCH', `/v1/leases/${resourceName}/${id}`, {
        as: 'all',
        body: '{"ttlMs":5000}',
        front: 1,
      }),
    );
  expect(await extend(leaseId)).toBe('200');
  const owner = leaseId.split('.')[0] ?? '';
  for (const forged of [
    `${owner}.${token}`,
    `${owner}.${poison}`,
    leaseId.replace(/\.\d+\./, `.${poison}.`),
    owner,
  ])
    expect(await extend(forged)).toMatch(/^invalid-(token|request)$/);
  expect(await extend(leaseId, 'open/other')).toBe('invalid-token');
});

describe('the lease that guards a key', () => {
  const write = (front: Front, path: string, token: string, resource?: string) =>
    fetch(`${front.url}/v1/${path}`, {
      method: 'PUT',
      body: '1',
      headers: {
        Authorization: 'Bearer secret-of-writer',
        'Fencing-Token': token,
        'Content-Type': 'application/json',
        ...(resource !== undefined && { 'Fencing-Resource': resource }),
      },
    });

  test("has the key's name: rights on the key and on another lease make no holder stale", async () => {
    const [front] = fronts;
    if (front === undefined) throw new Error('there is no gateway');
    const holder = await acquire('open/x');
    const attacker = await acquire('open/y', 'writer');
    for (const path of ['objects/open/x', 'records/open/x']) {
      const refused = await write(front, path, attacker.token, 'open/y');
      expect(await problemOf(refused)).toMatchObject({
        type: 'urn:fenced:problem:wrong-lease',
        status: 403,
        resource: path,
        lease: 'open/x',
        detail: expect.stringContaining('bindings'),
      });
      const unnamed = await write(front, path, attacker.token);
      expect(await problemOf(unnamed)).toMatchObject({
        type: 'urn:fenced:problem:invalid-token',
        fault: 'refused',
        lease: 'open/x',
      });
      for (const [method, name] of [
        ['DELETE', path],
        ['POST', `${path}/claim`],
        ['POST', `${path}/claim-and-get`],
      ] as const) {
        const headers = { 'Fencing-Resource': 'open/y' };
        const options = { as: 'all', token: attacker.token, headers };
        expect([method, await typeOf(call(method, `/v1/${name}`, options))]).toEqual([
          ...[method, 'wrong-lease'],
        ]);
      }
      expect((await write(front, path, holder.token)).status).toBe(200);
      expect((await write(front, path, holder.token, 'open%2Fx')).status).toBe(200);
    }
  });

  test('is the lease that a rule names, and no other lease', async () => {
    await using front = await world.open({
      credentials: openCredentials({ keys }),
      signer: signerAt(() => Date.now()),
      bindings: [
        { keys: 'objects/open/{year}/*', lease: 'open/{year}' },
        { keys: 'records/open/*', anyLease: true },
      ],
    });
    const of2026 = (await acquire('open/2026')).token;
    const ofOne = (await acquire('open/2026/a')).token;
    expect((await write(front, 'objects/open/2026/a', of2026)).status).toBe(200);
    expect((await write(front, 'objects/open/2026/b/c', of2026, 'open/2026')).status).toBe(200);
    const typesOf = (...args: Parameters<typeof write>) => typeOf(write(...args));
    expect(await typesOf(front, 'objects/open/2026/a', ofOne)).toBe('invalid-token');
    expect(await typesOf(front, 'objects/open/2026/a', ofOne, 'open/2026/a')).toBe('wrong-lease');
    expect(await typesOf(front, 'objects/open/2026', of2026)).toBe('200');
    // A key without a rule is guarded by its own lease. Under `anyLease`, any lease is accepted
    // that the caller has the right to take.
    expect(await typesOf(front, 'records/open/9', of2026, 'open/2026')).toBe('200');
    expect(await typesOf(front, 'records/open/9', of2026)).toBe('invalid-token');
    const foreign = (await acquire('closed/2026')).token;
    expect(await typesOf(front, 'records/open/9', foreign, 'closed/2026')).toBe('forbidden');
    expect(await typesOf(front, 'records/open/9', foreign, 'open/2026')).toBe('invalid-token');
  });
});

test("the signature of a lease id cannot be presented as a token, nor a token's as a lease id", async () => {
  const { leaseId, token } = await acquire('open/purpose');
  const [, owner = '', signed = ''] = /^([^.]+)\.(.+)$/.exec(leaseId) ?? [];
  // The signature would fit this name if it did not cover the purpose, too.
  const name = `${owner}@open/purpose`;
  const presented = call('PUT', `/v1/objects/${name}`, { as: 'all', token: signed, body: '1' });
  expect(await typeOf(presented)).toBe('invalid-token');
  const headers = { 'Fencing-Resource': name };
  const named = { as: 'all', token: signed, body: '1', headers };
  expect(await typeOf(call('PUT', '/v1/objects/open/purpose', named))).toBe('wrong-lease');
  const other = await acquire(name);
  for (const id of [`${owner}.${other.token}`, `${owner}.${token}`])
    expect(await typeOf(call('DELETE', `/v1/leases/open/purpose/${id}`, { as: 'all' }))).toBe(
      'invalid-token',
    );
});

test('an extension issues a new signature before the old one ends', async () => {
  let nowMs = Date.now();
  await using front = await world.open(
    { signer: signerAt(() => nowMs), signatureTtlMs: 1_000 },
    world.addresses,
  );
  const begun = await fetch(`${front.url}/v1/leases/open/ends`, {
    method: 'POST',
    body: '{"ttlMs":9000}',
    headers: { 'Content-Type': 'application/json' },
  });
  const lease = (await begun.json()) as Granted;
  const put = (token: string) =>
    typeOf(
      fetch(`${front.url}/v1/objects/open/ends`, {
        method: 'PUT',
        body: '1',
        headers: { 'Fencing-Token': token },
      }),
    );
  expect(await put(lease.token)).toBe('200');
  const again = await fetch(`${front.url}/v1/leases/open/ends/${lease.leaseId}`, {
    method: 'PATCH',
    body: '{"ttlMs":9000}',
    headers: { 'Content-Type': 'application/json' },
  });
  const more = (await again.json()) as Granted;
  expect(more.token.split('.')[0]).toBe(lease.token.split('.')[0]);
  nowMs += 60_000;
  expect(await put(lease.token)).toBe('invalid-token');
});

test('facts about requests name caller and token, without credentials or signatures', async () => {
  const front = fronts[0];
  if (front === undefined) throw new Error('there is no gateway');
  front.ended.length = 0;
  const { token } = await acquire('open/facts');
  await call('PUT', '/v1/objects/open/facts?secret=1', { as: 'writer', token, body: '1' });
  await call('PUT', '/v1/objects/open/facts', { as: 'nobody', token, body: '1' });
  expect(
    front.ended.map(({ caller, route, resource, outcome, token: logged }) => ({
      caller,
      route,
      resource,
      outcome,
      logged,
    })),
  ).toEqual([
    {
      caller: 'all',
      route: '/v1/leases/{resource}',
      resource: 'leases/open/facts',
      outcome: 'ok',
      logged: BigInt(token.split('.')[0] ?? ''),
    },
    {
      caller: 'writer',
      route: '/v1/objects/{key}',
      resource: 'objects/open/facts',
      outcome: 'ok',
      logged: BigInt(token.split('.')[0] ?? ''),
    },
    {
      caller: null,
      route: '/v1/objects/{key}',
      resource: null,
      outcome: expect.stringMatching(/unauthenticated|too-many/),
      logged: BigInt(token.split('.')[0] ?? ''),
    },
  ]);
  const text = JSON.stringify(front.ended, (_, value) =>
    typeof value === 'bigint' ? String(value) : value,
  );
  expect(text).not.toMatch(/secret|\.k1\./);
});
