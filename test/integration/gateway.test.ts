import { afterAll, beforeAll, expect, test } from 'vitest';
import { acquire, type Front, GatewayWorld, inPath, post, problemOf } from './gateway-world.js';

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

test('a lease that one gateway granted is extended and released by another', async () => {
  const resource = world.newName();
  const lease = await acquire(one.url, resource);
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
});

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
  const early = await acquire(one.url, name, { ttlMs: 100 });
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
