import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { exportJWK, generateKeyPair, SignJWT } from 'jose';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openCredentials } from './credentials.js';
import { createGateway, serveGateway } from './index.js';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

let issuer: Server;
/** The key ids that the issuer answers with; null if it does not answer. */
let published: readonly string[] | null;
let asked = 0;
const parts = new AsyncDisposableStack();
const { publicKey, privateKey } = await generateKeyPair('ES256');
const jwk = await exportJWK(publicKey);

beforeAll(async () => {
  issuer = createServer((request, response) => {
    asked += 1;
    if (published === null) request.socket.destroy();
    else
      response.end(
        JSON.stringify({ keys: published.map((kid) => ({ ...jwk, kid, alg: 'ES256' })) }),
      );
  }).listen(0, '127.0.0.1');
  await once(issuer, 'listening');
  parts.defer(() => void issuer.close());
});

afterAll(() => parts.disposeAsync());

/** A gateway at a clock of its own. Its lock is never asked: the callers may only read. */
async function gateway(own: AsyncDisposableStack) {
  const clock = { ms: 0 };
  const { port } = issuer.address() as AddressInfo;
  const jwks = new URL(`http://127.0.0.1:${port}/jwks`);
  const jwt = { issuer: 'https://issuer.example', audience: 'fenced', algorithms: ['ES256'], jwks };
  const runtime = {
    nowMs: () => clock.ms,
    wallClockMs: () => Date.now(),
    uniqueId: () => crypto.randomUUID(),
    after: () => () => undefined,
  };
  const credentials = openCredentials({ jwt }, runtime);
  const server = await serveGateway(createGateway({ lock: {} as never, credentials }), { port: 0 });
  own.defer(async () => void (await server.drain()));
  const answer = async (kid: string): Promise<Response> => {
    const claims = { iss: jwt.issuer, aud: jwt.audience, sub: 'ada' };
    const token = await new SignJWT(claims)
      .setProtectedHeader({ alg: 'ES256', kid })
      .setExpirationTime('2h')
      .sign(privateKey);
    const headers = { Authorization: `Bearer ${token}` };
    return fetch(`${server.url}/v1/leases/a/id`, { method: 'DELETE', headers });
  };
  /** 403: the caller is known. */
  return { clock, answer, statusOf: async (kid: string) => (await answer(kid)).status };
}

test('an outage of the issuer locks out nobody whose key is known, for a day', async () => {
  await using own = new AsyncDisposableStack();
  const { clock, statusOf } = await gateway(own);
  published = ['one'];
  expect(await statusOf('one')).toBe(403);
  published = null;
  for (const ms of [11 * MINUTE_MS, HOUR_MS, 24 * HOUR_MS]) {
    clock.ms = ms;
    expect([ms, await statusOf('one')]).toEqual([ms, 403]);
  }
  clock.ms = 24 * HOUR_MS + 5_000;
  expect(await statusOf('one')).toBe(503);
  published = ['one'];
  clock.ms += 1_000;
  expect(await statusOf('one')).toBe(403);
});

test('a failing issuer is asked once a second, not for each request', async () => {
  await using own = new AsyncDisposableStack();
  const { clock, statusOf } = await gateway(own);
  published = null;
  asked = 0;
  for (let at = 0; at < 10; at++) expect(await statusOf('one')).toBe(503);
  expect(asked).toBe(1);
  published = ['one'];
  clock.ms += 1_000;
  expect(await statusOf('one')).toBe(403);
  published = null;
  clock.ms += 11 * MINUTE_MS;
  asked = 0;
  for (let at = 0; at < 10; at++) expect(await statusOf('one')).toBe(403);
  await expect.poll(() => asked).toBe(1);
  clock.ms += 1_000;
  for (let at = 0; at < 10; at++) expect(await statusOf('new')).toBe(503);
  expect(asked).toBe(2);
});

test('a new key has to wait until the issuer may be asked again; a withdrawn one is refused then', async () => {
  await using own = new AsyncDisposableStack();
  const { clock, answer, statusOf } = await gateway(own);
  published = ['one'];
  expect(await statusOf('one')).toBe(403);
  published = ['two'];
  clock.ms += 10_000;
  const early = await answer('two');
  expect([early.status, early.headers.get('retry-after')]).toEqual([503, '20']);
  clock.ms += 20_000;
  expect(await statusOf('two')).toBe(403);
  clock.ms += 30_000;
  expect(await statusOf('one')).toBe(401);
  // In the background, without an unknown key.
  published = ['three'];
  clock.ms += 11 * MINUTE_MS;
  await statusOf('two');
  await expect.poll(() => statusOf('two')).toBe(503);
  expect(await statusOf('three')).toBe(403);
});
