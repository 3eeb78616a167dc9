import { once } from 'node:events';
import { request } from 'node:http';
import { json } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import type { TcpProxy } from '@fenced/testbed';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  BEFORE_THE_WRITE,
  type BehindProxies,
  configFile,
  type GatewayProcess,
  startBehindProxies,
  startGateway,
} from './harness/process.js';
import { acquire, GatewayWorld, inPath, problemOf, until } from './harness/world.js';

/**
 * The stores give up after 10 s and 11 s by themselves. Earlier answers come from this deadline.
 */
const STORE_TIMEOUT_MS = 1_500;
const limits = { storeTimeoutMs: STORE_TIMEOUT_MS, graceMs: 300 };
let world: GatewayWorld;
const parts = new AsyncDisposableStack();
/** A gateway without any fault. */
let other: GatewayProcess;

beforeAll(async () => {
  world = parts.use(await GatewayWorld.start());
  other = await startGateway(await configFile(world, parts));
  parts.use(other.process);
});

afterAll(() => parts.disposeAsync());

type Deed = 'PUT' | 'DELETE' | 'claim' | 'claim-and-get';

/** One write of each kind under that token. */
function call(url: string, path: string, deed: Deed, token: string): Promise<Response> {
  const headers = { 'Content-Type': 'application/json', 'Fencing-Token': token };
  if (deed === 'claim' || deed === 'claim-and-get')
    return fetch(`${url}${path}/${deed}`, { method: 'POST', headers });
  return fetch(url + path, { method: deed, headers, ...(deed === 'PUT' && { body: '"late"' }) });
}

async function settled(url: string, settle: string): Promise<string> {
  const response = await fetch(url + settle);
  if (!response.ok) return `${response.status}`;
  return ((await response.json()) as { outcome: string }).outcome;
}

/** Waits for `count` log lines of requests that ended with this status. Returns the lines. */
async function logged({ log }: GatewayProcess, status: number, count: number) {
  const lines = () => log.filter((line) => line.msg === 'request' && line.status === status);
  await until(() => lines().length >= count);
  return lines();
}

function theOnly<Item>(items: readonly Item[]): Item {
  const [item] = items;
  if (item === undefined || items.length > 1) throw new Error(`there are ${items.length}`);
  return item;
}

/** Sends a write through a gateway, and holds the replies of its store from then on. */
async function holdReplies(
  own: AsyncDisposableStack,
  path: string,
  deed: Deed,
): Promise<BehindProxies & { readonly answer: Promise<Response>; readonly proxy: TcpProxy }> {
  const isObject = path.startsWith('/v1/objects');
  expect((await call(other.url, path, 'PUT', '1')).status).toBe(200);
  const behind = await startBehindProxies(
    world,
    own,
    limits,
    isObject ? BEFORE_THE_WRITE : undefined,
  );
  const { gateway, proxies } = behind;
  const proxy = theOnly(proxies[isObject ? 's3' : 'postgres']);
  if (!isObject) {
    expect((await fetch(gateway.url + path)).status).toBe(200);
    proxy.hold('toClient');
    return { ...behind, proxy, answer: call(gateway.url, path, deed, '2') };
  }
  const answer = call(gateway.url, path, deed, '2');
  await gateway.process.reachedStop();
  proxy.hold('toClient');
  gateway.process.proceed();
  return { ...behind, proxy, answer };
}

test.each([
  ...(['PUT', 'DELETE', 'claim', 'claim-and-get'] as const).map(
    (deed) => ['objects', deed] as const,
  ),
  ...(['PUT', 'DELETE'] as const).map((deed) => ['records', deed] as const),
])(
  'the store of %s stalls during a %s: 504 in time, with a write id that settles it',
  async (kind, deed) => {
    await using own = new AsyncDisposableStack();
    const path = `/v1/${kind}/${kind === 'objects' ? inPath(world.newName()) : `stalled/${deed}`}`;
    const { gateway, proxy, answer } = await holdReplies(own, path, deed);
    await proxy.untilHeld('toClient');
    const problem = await problemOf(await answer);
    expect(problem).toMatchObject({
      type: 'urn:fenced:problem:outcome-unknown',
      status: 504,
      settle: `/v1/writes/${problem.writeId}`,
    });
    const [line] = await logged(gateway, 504, 1);
    expect(line).toMatchObject({ outcome: 'outcome-unknown', writeId: problem.writeId });
    expect(line?.durationMs).toBeLessThan(STORE_TIMEOUT_MS + 2_000);
    proxy.heal();
    // The server had applied the write before the proxy held the reply.
    await until(async () => (await settled(gateway.url, String(problem.settle))) === 'applied');
    expect((await call(other.url, path, 'PUT', '1')).status).toBe(412);
  },
);

test.each(['claim', 'claim-and-get'] as const)(
  'Postgres stalls during a %s: 504 in time, never "nothing was written", and another claim settles it',
  async (deed) => {
    await using own = new AsyncDisposableStack();
    const path = `/v1/records/stalled/${inPath(deed)}`;
    const { proxy, answer, gateway } = await holdReplies(own, path, deed);
    const problem = await problemOf(await answer);
    expect(problem).toMatchObject({ type: 'urn:fenced:problem:outcome-unknown', status: 504 });
    expect(problem.detail).toContain('Claim again');
    proxy.heal();
    await until(async () => (await call(gateway.url, path, 'claim', '2')).status === 200);
    expect((await call(other.url, path, 'PUT', '1')).status).toBe(412);
  },
);

test('a write that never reached the stalled server is settled as not applied', async () => {
  await using own = new AsyncDisposableStack();
  const path = `/v1/objects/${inPath(world.newName())}`;
  const { gateway, proxies } = await startBehindProxies(world, own, limits);
  expect((await call(gateway.url, path, 'PUT', '1')).status).toBe(200);
  const proxy = theOnly(proxies.s3);
  proxy.hold('toServer');
  const problem = await problemOf(await call(gateway.url, path, 'PUT', '2'));
  expect(problem).toMatchObject({ type: 'urn:fenced:problem:outcome-unknown' });
  proxy.cut();
  proxy.heal();
  await until(async () => (await settled(gateway.url, String(problem.settle))) === 'not-applied');
  expect(await (await fetch(other.url + path)).json()).toBe('late');
  expect((await fetch(other.url + path)).headers.get('fencing-token')).toBe('2');
});

test.each([
  ['objects', 's3'],
  ['records', 'postgres'],
] as const)('%s: while nothing was sent to the stalled store, 503 in time', async (kind, name) => {
  await using own = new AsyncDisposableStack();
  const { gateway, proxies } = await startBehindProxies(world, own, limits);
  const path = `/v1/${kind}/nothing/${kind}`;
  expect((await fetch(gateway.url + path)).status).toBe(404);
  theOnly(proxies[name]).hold('toClient');
  const reads = [path, `/v1/ratchets/${kind === 'objects' ? 's3' : kind}/nothing/${kind}`];
  const answers = await Promise.all(reads.map((read) => fetch(gateway.url + read)));
  // A conditional write of an object begins with a read, which stalls, so nothing was written. The
  // write of a record is one statement, which may have been applied.
  if (kind === 'objects') {
    const headers = { 'Fencing-Token': '1', 'If-None-Match': '*' };
    answers.push(await fetch(gateway.url + path, { method: 'PUT', headers, body: '1' }));
  }
  for (const answer of answers)
    expect(await problemOf(answer)).toMatchObject({ type: 'urn:fenced:problem:unavailable' });
  for (const { durationMs } of await logged(gateway, 503, answers.length))
    expect(durationMs).toBeLessThan(STORE_TIMEOUT_MS + 2_000);
  theOnly(proxies[name]).heal();
  expect((await fetch(other.url + path)).status).toBe(404);
});

test('a client that disconnects during a write is logged and counted as 499, with the write id', async () => {
  await using own = new AsyncDisposableStack();
  const path = `/v1/objects/${inPath(world.newName())}`;
  const { gateway, proxies } = await startBehindProxies(world, own, limits);
  expect((await call(gateway.url, path, 'PUT', '1')).status).toBe(200);
  const proxy = theOnly(proxies.s3);
  proxy.hold('toClient');
  const client = request(gateway.url + path, {
    method: 'PUT',
    headers: { 'Fencing-Token': '2', 'Content-Length': 1 },
  });
  client.on('error', () => undefined);
  client.end('2');
  await proxy.untilHeld('toClient');
  client.destroy();
  const gone = () => gateway.log.find(({ outcome }) => outcome === 'client-gone');
  await until(() => gone() !== undefined);
  expect(gone()).toMatchObject({ status: 499, writeId: expect.stringMatching(/^objects\./) });
  proxy.heal();
  const settle = `/v1/writes/${gone()?.writeId}`;
  await until(async () => (await settled(gateway.url, settle)) === 'applied');
  const metrics = await (await fetch(`${gateway.url}/metrics`)).text();
  expect(metrics).toMatch(/requests_total\{.*method="PUT",status="499",outcome="client-gone"\} 1/);
});

test("the store's time limit does not count a slow upload, or a wait for a lease", async () => {
  await using front = await world.open({ limits: { storeTimeoutMs: 3_000 } });
  // Probes the S3 server beforehand, because the probe takes time before the first write.
  await front.objects.probe();
  const held = await acquire(front.url, 'slow/1', { ttlMs: 6_000 });
  const next = acquire(front.url, 'slow/1', { ttlMs: 1_000, waitMs: 20_000 });
  const upload = request(`${front.url}/v1/objects/slow/1`, {
    method: 'PUT',
    headers: { 'Fencing-Token': held.token, 'Transfer-Encoding': 'chunked' },
  });
  const answered = once(upload, 'response');
  for (let sent = 0; sent < 4; sent++) {
    upload.write('piece');
    await sleep(1_000);
  }
  upload.end();
  const [response] = await answered;
  expect([response.statusCode, await json(response)]).toEqual([200, expect.anything()]);
  expect(BigInt((await next).token)).toBeGreaterThan(BigInt(held.token));
});
