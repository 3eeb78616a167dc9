import { createHash } from 'node:crypto';
import { FencedGateway } from '@fenced/client';
import { openCredentials } from '@fenced/gateway/credentials';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { configFile, type GatewayProcess, startGateway } from './harness/process.js';
import { type RawReply, requestOf, send, typeOf } from './harness/raw.js';
import { acquire, GatewayWorld, post, until } from './harness/world.js';

let world: GatewayWorld;
const parts = new AsyncDisposableStack();
/** The set-up of the first steps: a process without credentials. */
let gateway: GatewayProcess;

beforeAll(async () => {
  world = parts.use(await GatewayWorld.start());
  // All requests of this file come from one address.
  const env = {
    FENCED_GATEWAY_RATE_PER_ADDRESS_BURST: '1000',
    FENCED_GATEWAY_LIMITS_WAITS_MAX: '2',
  };
  gateway = await startGateway(await configFile(world, parts), { env });
  parts.use(gateway.process);
});

afterAll(() => parts.disposeAsync());

type Header = readonly [name: string, value: string];
const JSON_TYPE: Header = ['Content-Type', 'application/json'];
const TOKEN: Header = ['Fencing-Token', '1'];

/** Every kind of route, with a request that succeeds if the gateway lets it in. */
const REQUESTS = [
  ['POST', '/v1/leases/page', [JSON_TYPE], '{"ttlMs":60000}'],
  ['POST', '/v1/lease-sets', [JSON_TYPE], '{"resources":["page"],"ttlMs":60000}'],
  ['PUT', '/v1/objects/page', [TOKEN], 'x'],
  ['GET', '/v1/objects/page', [], ''],
  ['PUT', '/v1/records/page/1', [TOKEN, JSON_TYPE], '1'],
  ['GET', '/v1/ratchets/s3/page', [], ''],
  ['POST', '/mcp', [JSON_TYPE], '{}'],
  ['GET', '/openapi.json', [], ''],
  ['GET', '/metrics', [], ''],
  ['GET', '/livez', [], ''],
  ['GET', '/nothing', [], ''],
] as const;

async function ask(
  url: string,
  host: string,
  headers: readonly Header[],
  [method, target, own, body]: (typeof REQUESTS)[number] = REQUESTS[9],
): Promise<RawReply | undefined> {
  const request = requestOf(method, target, [...own, ...headers], body).toString();
  return (await send(url, request.replace(/^Host: .*$/m, `Host: ${host}`)))[0];
}

test('without credentials, all callers together may use a whole limit', async () => {
  await acquire(gateway.url, 'shared', { ttlMs: 60_000 });
  const left = new AbortController();
  const waits = ['one', 'two'].map(() =>
    fetch(`${gateway.url}/v1/leases/shared`, {
      method: 'POST',
      signal: left.signal,
      headers: Object.fromEntries([JSON_TYPE]),
      body: '{"ttlMs":1000,"waitMs":30000}',
    }).catch(() => undefined),
  );
  await until(async () =>
    (await (await fetch(`${gateway.url}/metrics`)).text()).includes('in_use{limit="waits"} 2'),
  );
  left.abort();
  await Promise.all(waits);
});

test('without credentials, no route answers a page of another site', async () => {
  const { host, port } = new URL(gateway.url);
  for (const request of REQUESTS) {
    // A rebound domain: to the browser, page and gateway have one origin.
    const rebound: readonly Header[] = [['Origin', `http://evil.example:${port}`]];
    const replies = [
      await ask(gateway.url, `evil.example:${port}`, rebound, request),
      await ask(gateway.url, `evil.example:${port}`, [], request),
      await ask(gateway.url, host, [['Origin', 'https://evil.example']], request),
    ];
    expect([request[1], ...replies.map(typeOf)]).toEqual([
      ...[request[1], 'forbidden', 'forbidden', 'forbidden'],
    ]);
  }
  // Nobody has the lease or the object.
  expect((await post(`${gateway.url}/v1/leases/page`, { ttlMs: 1_000 })).status).toBe(201);
  expect((await fetch(`${gateway.url}/v1/objects/page`)).status).toBe(404);
});

test.each([
  ['127.0.0.1.evil.example', 'forbidden'],
  ['evil.example@127.0.0.1', 'forbidden'],
  ['0.0.0.0', 'forbidden'],
  ['[::2]', 'forbidden'],
  ['', 'forbidden'],
  ['localhost', 'status 200'],
  ['LOCALHOST:80', 'status 200'],
  ['127.1.2.3:8080', 'status 200'],
  ['[::1]:8080', 'status 200'],
])('without credentials, a request for the host "%s": %s', async (host, outcome) => {
  expect(typeOf(await ask(gateway.url, host, []))).toBe(outcome);
});

test.each([
  ['Origin', 'null', 'forbidden'],
  ['Origin', 'http://localhost:3000', 'forbidden'],
  ['Sec-Fetch-Site', 'cross-site', 'forbidden'],
  ['Sec-Fetch-Site', 'same-site', 'forbidden'],
  ['Sec-Fetch-Site', 'same-origin', 'status 200'],
  ['Sec-Fetch-Site', 'none', 'status 200'],
  ['Origin', 'http://localhost:8080', 'status 200'],
])('without credentials, a request with %s: %s: %s', async (name, value, outcome) => {
  expect(typeOf(await ask(gateway.url, 'localhost:8080', [[name, value]]))).toBe(outcome);
});

test('with credentials, any host and origin may call, because a page has no key', async () => {
  const sha256 = createHash('sha256').update('secret').digest('hex');
  const credentials = openCredentials({
    keys: [{ name: 'all', sha256, verbs: ['read'], prefixes: ['objects'] }],
  });
  await using guarded = await world.open({ credentials });
  const foreign: readonly Header[] = [['Origin', 'https://evil.example']];
  const read = REQUESTS[3];
  expect(typeOf(await ask(guarded.url, 'gateway.example', foreign, read))).toBe('unauthenticated');
  const key: Header = ['Authorization', 'Bearer secret'];
  expect(typeOf(await ask(guarded.url, 'gateway.example', [...foreign, key], read))).toBe(
    'not-found',
  );
});

test('a browser neither shows a stored body as a page nor guesses its type', async () => {
  const html = '<script>fetch("/v1/leases/a", { method: "POST" })</script>';
  const { token } = await acquire(gateway.url, 'stored/page', { ttlMs: 60_000 });
  const write = (path: string, body: string, headers: Record<string, string> = {}) =>
    fetch(gateway.url + path, {
      method: 'PUT',
      body,
      headers: { 'Fencing-Token': token, ...headers },
    });
  const type = { 'Content-Type': 'text/html' };
  expect((await write('/v1/objects/stored/page', html, type)).status).toBe(200);
  expect(
    (await write('/v1/records/stored/page', '"x"', Object.fromEntries([JSON_TYPE]))).status,
  ).toBe(200);
  const claim = { method: 'POST', headers: { 'Fencing-Token': token } };
  const readOf = (path: string, options: RequestInit = {}) => fetch(gateway.url + path, options);
  for (const answer of [
    await readOf('/v1/objects/stored/page'),
    await readOf('/v1/objects/stored/page', { method: 'HEAD' }),
    await readOf('/v1/objects/stored/page/claim-and-get', claim),
  ]) {
    expect([answer.status, answer.headers.get('content-disposition')]).toEqual([200, 'attachment']);
    expect(answer.headers.get('content-security-policy')).toBe("default-src 'none'; sandbox");
    expect(answer.headers.get('x-content-type-options')).toBe('nosniff');
  }
  for (const path of ['/v1/records/stored/page', '/v1/objects/nothing', '/livez', '/openapi.json'])
    expect((await readOf(path)).headers.get('x-content-type-options')).toBe('nosniff');
  // The client sees that no disposition was stored. A stored one comes back, and the page that it
  // lets a browser show may run no script.
  const client = new FencedGateway({ url: gateway.url });
  expect((await client.objects.get('stored/page'))?.contentDisposition).toBeUndefined();
  await write('/v1/objects/stored/page', html, { ...type, 'Content-Disposition': 'inline' });
  const shown = await fetch(`${gateway.url}/v1/objects/stored/page`);
  expect(shown.headers.get('content-disposition')).toBe('inline');
  expect(shown.headers.get('content-security-policy')).toBe("default-src 'none'; sandbox");
});
