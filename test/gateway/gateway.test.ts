import { afterAll, beforeAll, expect, test } from 'vitest';
import { acquire, type Front, GatewayWorld, inPath, post, problemOf } from './harness/world.js';

let world: GatewayWorld;
let one: Front;
let two: Front;

beforeAll(async () => {
  world = await GatewayWorld.start();
  one = await world.open();
  two = await world.open();
});

afterAll(async () => {
  await one?.[Symbol.asyncDispose]();
  await two?.[Symbol.asyncDispose]();
  await world?.[Symbol.asyncDispose]();
});

test.each(['at once', 'after a wait in the queue'])(
  'a lease that one gateway granted %s is extended and released by another',
  async (when) => {
    const resource = world.newName();
    if (when !== 'at once') await acquire(one.url, resource, { ttlMs: 500 });
    const lease = await acquire(one.url, resource, { waitMs: 5_000 });
    expect(lease).toMatchObject({ resource, token: expect.stringMatching(/^\d+$/) });
    expect(lease.remainingMs).toBeGreaterThan(5_000);

    const held = await post(`${two.url}/v1/leases/${inPath(resource)}`, { ttlMs: 1_000 });
    expect(held.status).toBe(409);
    expect(Number(held.headers.get('retry-after'))).toBeGreaterThan(0);
    expect(await problemOf(held)).toMatchObject({ type: 'urn:fenced:problem:held', status: 409 });

    const address = `${two.url}/v1/leases/${inPath(resource)}/${lease.leaseId}`;
    const extended = await post(address, { ttlMs: 20_000 }, 'PATCH');
    expect(extended.status).toBe(200);
    const more = (await extended.json()) as typeof lease;
    expect(more).toMatchObject({ leaseId: lease.leaseId, token: lease.token });
    expect(more.remainingMs).toBeGreaterThan(lease.remainingMs);

    const released = await fetch(address, { method: 'DELETE' });
    expect(await released.json()).toMatchObject({ outcome: 'released' });
    const again = await fetch(address, { method: 'DELETE' });
    expect(await again.json()).toMatchObject({ outcome: 'expired' });
    const lost = await post(address, { ttlMs: 1_000 }, 'PATCH');
    expect(await problemOf(lost)).toMatchObject({ type: 'urn:fenced:problem:lease-lost' });

    const next = await acquire(one.url, resource);
    expect(BigInt(next.token)).toBeGreaterThan(BigInt(lease.token));
  },
);

test.each(['objects', 'records'])('%s: a late holder is refused', async (kind) => {
  const name = kind === 'objects' ? world.newName() : 'invoices/ä 1';
  const target = `/v1/${kind}/${inPath(name)}`;
  const write = (url: string, token: string | null, body: string) =>
    fetch(url + target, {
      method: 'PUT',
      body,
      headers: {
        'Content-Type': 'application/json',
        ...(token !== null && { 'Fencing-Token': token }),
      },
    });
  const early = await acquire(one.url, name, { ttlMs: 500 });
  const late = await acquire(two.url, name, { waitMs: 5_000 });

  const missing = await write(one.url, null, '1');
  expect(missing.status).toBe(428);
  expect(await problemOf(missing)).toMatchObject({ type: 'urn:fenced:problem:token-required' });

  const written = await write(two.url, late.token, '{"total":2}');
  expect(written.status).toBe(200);
  expect(written.headers.get('fencing-token')).toBe(late.token);

  const refused = await write(one.url, early.token, '{"total":1}');
  expect(refused.status).toBe(412);
  expect(await problemOf(refused)).toMatchObject({
    type: 'urn:fenced:problem:stale-token',
    presented: early.token,
    highest: late.token,
  });

  const read = await fetch(one.url + target);
  expect(await read.json()).toEqual({ total: 2 });
  expect(read.headers.get('fencing-token')).toBe(late.token);
  expect(read.headers.get('etag')).toBe(written.headers.get('etag'));
  expect(read.headers.get('content-type')).toBe('application/json');
  expect(read.headers.get('content-length')).toBe('11');

  const kindOfRatchet = kind === 'objects' ? 's3' : 'records';
  const ratchet = await fetch(`${one.url}/v1/ratchets/${kindOfRatchet}/${inPath(name)}`);
  expect(await ratchet.json()).toMatchObject({ token: late.token });
});

const TYPE = { 'Content-Type': 'text/plain' };

function target(name: string): string {
  return `${one.url}/v1/objects/${inPath(name)}`;
}

async function put(name: string, body: string, headers: Record<string, string>): Promise<Response> {
  return fetch(target(name), { method: 'PUT', body, headers });
}

test('an object comes back with the headers that it was written with', async () => {
  const name = world.newName();
  const headers = {
    'Content-Type': 'text/csv; charset=utf-8',
    'Cache-Control': 'max-age=60',
    'Content-Disposition': 'attachment; filename="a.csv"',
    'Content-Language': 'de',
    'Fencing-Meta-Origin': 'here',
  };
  const written = await put(name, 'a;b', { ...headers, 'Fencing-Token': '7' });
  expect(written.status).toBe(200);
  expect(written.headers.get('cache-control')).toBe('no-store');
  for (const method of ['GET', 'HEAD']) {
    const read = await fetch(target(name), { method });
    expect(read.status).toBe(200);
    for (const [header, value] of Object.entries(headers))
      expect([header, read.headers.get(header)]).toEqual([header, value]);
    expect(read.headers.get('content-length')).toBe('3');
    expect(read.headers.get('accept-ranges')).toBe('bytes');
    expect(read.headers.get('fencing-token')).toBe('7');
    expect(read.headers.get('fencing-write-id')).toBe(written.headers.get('fencing-write-id'));
    expect(await read.text()).toBe(method === 'GET' ? 'a;b' : '');
  }
});

test('reads support ranges and conditions', async () => {
  const name = world.newName();
  const written = await put(name, '0123456789', { ...TYPE, 'Fencing-Token': '1' });
  const etag = written.headers.get('etag') ?? '';
  const read = (headers: Record<string, string>, method = 'GET') =>
    fetch(target(name), { method, headers });
  const cases = [
    [{ Range: 'bytes=2-4' }, 206, '234', 'bytes 2-4/10'],
    [{ Range: 'bytes=-3' }, 206, '789', 'bytes 7-9/10'],
    [{ Range: 'bytes=-10' }, 206, '0123456789', 'bytes 0-9/10'],
    // RFC 9110, 14.1.2: a suffix range that is longer than the body means the whole body.
    [{ Range: 'bytes=-11' }, 206, '0123456789', 'bytes 0-9/10'],
    [{ Range: `bytes=-${'9'.repeat(400)}` }, 206, '0123456789', 'bytes 0-9/10'],
    [{ Range: 'BYTES=7-' }, 206, '789', 'bytes 7-9/10'],
    [{ Range: `bytes=7-${'9'.repeat(400)}` }, 206, '789', 'bytes 7-9/10'],
    [{ Range: 'bytes=-' }, 200, '0123456789', null],
    [{ Range: 'bytes=-1-2' }, 200, '0123456789', null],
    [{ Range: 'bytes=8-99' }, 206, '89', 'bytes 8-9/10'],
    [{ Range: 'bytes=0-0' }, 206, '0', 'bytes 0-0/10'],
    [{ Range: 'bytes=2-4', 'If-Range': etag }, 206, '234', 'bytes 2-4/10'],
    [{ Range: 'bytes=2-4', 'If-Range': '"another"' }, 200, '0123456789', null],
    [{ Range: 'bytes=0-1,4-5' }, 200, '0123456789', null],
    [{ Range: 'lines=2-4' }, 200, '0123456789', null],
    [{ 'If-None-Match': etag }, 304, '', null],
    [{ 'If-None-Match': `W/${etag}` }, 304, '', null],
    [{ 'If-None-Match': '*' }, 304, '', null],
    [{ 'If-None-Match': '"another"' }, 200, '0123456789', null],
    [{ 'If-Match': `"another", ${etag}` }, 200, '0123456789', null],
  ] as const;
  for (const [headers, status, body, range] of cases) {
    const reply = await read(headers);
    const seen = [reply.status, await reply.text(), reply.headers.get('content-range')];
    expect([headers, ...seen]).toEqual([headers, status, body, range]);
    expect(reply.headers.get('etag')).toBe(etag);
    expect(reply.headers.get('fencing-token')).toBe('1');
  }
  for (const Range of ['bytes=10-', 'bytes=-0', 'bytes=4-2']) {
    const beyond = await read({ Range });
    const seen = [beyond.status, beyond.headers.get('content-range')];
    expect([Range, ...seen]).toEqual([Range, 416, 'bytes */10']);
    expect(await problemOf(beyond)).toMatchObject({
      type: 'urn:fenced:problem:range-not-satisfiable',
    });
  }
  const other = await read({ 'If-Match': '"another"' });
  expect(await problemOf(other)).toMatchObject({ type: 'urn:fenced:problem:precondition-failed' });
  expect((await read({ Range: 'bytes=2-4' }, 'HEAD')).status).toBe(200);
  await put(name, '', { ...TYPE, 'Fencing-Token': '1' });
  const empty = await read({ Range: 'bytes=-11' });
  expect([empty.status, await empty.text()]).toEqual([200, '']);
  expect((await read({ Range: 'bytes=0-' })).status).toBe(416);
});

test.each(['objects', 'records'])(
  '%s: a write may name the version that it replaces',
  async (kind) => {
    const address = `${one.url}/v1/${kind}/conditions/${kind}-1`;
    const write = (token: number, headers: object, method = 'PUT') =>
      fetch(address, {
        method,
        ...(method === 'PUT' && { body: String(token) }),
        headers: { 'Content-Type': 'application/json', 'Fencing-Token': `${token}`, ...headers },
      });
    const mismatch = { type: 'urn:fenced:problem:precondition-failed', status: 412 };
    expect(await problemOf(await write(1, { 'If-Match': '"1"' }))).toMatchObject(mismatch);
    const created = await write(1, { 'If-None-Match': '*' });
    expect(created.status).toBe(200);
    expect(await problemOf(await write(1, { 'If-None-Match': '*' }))).toMatchObject(mismatch);
    const etag = created.headers.get('etag') ?? '';
    expect(etag).toMatch(/^"[^"]+"$/);
    const replaced = await write(2, { 'If-Match': etag });
    expect(replaced.status).toBe(200);
    expect(await problemOf(await write(2, { 'If-Match': etag }))).toMatchObject(mismatch);
    const stale = await write(1, { 'If-Match': replaced.headers.get('etag') });
    expect(await problemOf(stale)).toMatchObject({ type: 'urn:fenced:problem:stale-token' });
    expect(await problemOf(await write(2, { 'If-Match': etag }, 'DELETE'))).toMatchObject(mismatch);
    const current = replaced.headers.get('etag') ?? '';
    expect((await write(2, { 'If-Match': current }, 'DELETE')).status).toBe(200);
    expect((await fetch(address)).status).toBe(404);
    expect(await problemOf(await write(2, { 'If-Match': current }))).toMatchObject(mismatch);
    expect((await write(2, { 'If-None-Match': '*' })).status).toBe(200);
    for (const headers of [
      { 'If-Match': '*' },
      { 'If-Match': 'W/"1"' },
      { 'If-Match': '"1", "2"' },
      { 'If-None-Match': '"1"' },
      { 'If-Match': '"1"', 'If-None-Match': '*' },
    ])
      expect([headers, (await write(2, headers)).status]).toEqual([headers, 400]);
  },
);

test.each(['objects', 'records'])(
  '%s: a claim, and a claim that reads, keep earlier holders out',
  async (kind) => {
    const address = `${one.url}/v1/${kind}/claims/${kind}-1`;
    const call = (token: string, path = '', method = 'PUT') =>
      fetch(address + path, {
        method,
        ...(method === 'PUT' && { body: token }),
        headers: { 'Content-Type': 'application/json', 'Fencing-Token': token },
      });
    expect((await call('3')).status).toBe(200);
    const claimed = await call('5', '/claim', 'POST');
    expect([claimed.status, await claimed.json()]).toEqual([200, { token: '5' }]);
    expect(await problemOf(await call('4'))).toMatchObject({ presented: '4', highest: '5' });
    const refused = await problemOf(await call('6', '', 'GET'));
    expect(refused).toMatchObject({ type: 'urn:fenced:problem:invalid-request' });
    expect(refused.detail).toContain(`POST /v1/${kind}/claims/${kind}-1/claim-and-get`);
    const read = await call('6', '/claim-and-get', 'POST');
    expect([await read.text(), read.headers.get('fencing-token')]).toEqual(['3', '6']);
    expect(await problemOf(await call('5'))).toMatchObject({ presented: '5', highest: '6' });
    const late = await problemOf(await call('5', '/claim-and-get', 'POST'));
    expect(late).toMatchObject({ highest: '6' });
    expect((await call('7', '', 'DELETE')).status).toBe(200);
    expect(await problemOf(await call('6'))).toMatchObject({ highest: '7' });
  },
);

test('every gateway reports the outcome of a write', async () => {
  for (const address of ['/v1/objects/writes/1', '/v1/records/writes/1']) {
    const written = await fetch(one.url + address, {
      method: 'PUT',
      body: '1',
      headers: { 'Content-Type': 'application/json', 'Fencing-Token': '1' },
    });
    const { writeId } = (await written.json()) as { writeId: string };
    const found = await fetch(`${two.url}/v1/writes/${writeId}`);
    expect(await found.json()).toEqual({ writeId, outcome: 'applied' });
    const other = writeId.replace(/\.[0-9a-f]{8}/, '.00000000');
    const unknown = await fetch(`${two.url}/v1/writes/${other}`);
    expect(await unknown.json()).toEqual({ writeId: other, outcome: 'unknown' });
  }
  for (const id of ['x', 'objects.0.x', `objects.${'0'.repeat(32)}.YS8uLi9i`])
    expect((await fetch(`${one.url}/v1/writes/${id}`)).status).toBe(400);
});

test('numbers that a double cannot hold are refused', async () => {
  const write = (body: string) =>
    fetch(`${one.url}/v1/records/numbers/1`, {
      method: 'PUT',
      body,
      headers: { 'Content-Type': 'application/json', 'Fencing-Token': '1' },
    });
  for (const body of ['9007199254740993', '[-9007199254740993]', '1e999', '{"a":{"b":-1e999}}'])
    expect([body, (await write(body)).status]).toEqual([body, 400]);
  for (const body of [
    '9007199254740992',
    '100000000000000000000',
    '0.1',
    '1e300',
    '"9007199254740993"',
    'null',
  ])
    expect([body, (await write(body)).status]).toEqual([body, 200]);
  expect(await (await fetch(`${one.url}/v1/records/numbers/1`)).text()).toBe('null');
});

test('readiness and liveness answer the checks of platforms', async () => {
  expect(await (await fetch(`${one.url}/livez`)).text()).toBe('ok\n');
  const ready = await fetch(`${one.url}/readyz`);
  expect([ready.status, await ready.text()]).toEqual([
    200,
    '[+]lock 3 of 3 nodes vote, 3 answer\n[+]s3 ok\n[+]postgres ok\n',
  ]);
});
