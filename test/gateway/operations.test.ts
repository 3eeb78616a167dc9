import { createGateway, createRateLimit, serveGateway } from '@fenced/gateway';
import { CredentialsUnavailableError } from '@fenced/gateway/credentials';
import { createMetrics } from '@fenced/gateway/metrics';
import { Redlock } from '@fenced/lock';
import { startLocalRedis, TcpProxy } from '@fenced/testbed';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { configFile, startGateway } from './harness/process.js';
import { send } from './harness/raw.js';
import { GatewayWorld, post, problemOf, until } from './harness/world.js';

let world: GatewayWorld;
const parts = new AsyncDisposableStack();

beforeAll(async () => {
  world = parts.use(await GatewayWorld.start());
  // The probe of a new bucket may take longer than a check of the dependencies. Other gateways read
  // its certificate.
  await using first = await world.open();
  await until(async () => (await fetch(`${first.url}/readyz`)).status === 200);
});

afterAll(() => parts.disposeAsync());

/** A clock that stands still until it is moved. */
class Clock {
  ms = 0;
  nowMs = (): number => this.ms;
  wallClockMs = (): number => this.ms;
  uniqueId = (): string => crypto.randomUUID();
  after = (delayMs: number, callback: () => void): (() => void) => {
    const timer = setTimeout(callback, delayMs).unref();
    return () => clearTimeout(timer);
  };
}

async function askOften(url: string, times: number): Promise<number[]> {
  const answers = await Promise.all(Array.from({ length: times }, () => fetch(url)));
  await Promise.all(answers.map((answer) => answer.arrayBuffer()));
  return answers.map(({ status }) => status);
}

test.each(['/metrics', '/readyz'])(
  'the nodes are asked once a second, however many clients request %s',
  async (path) => {
    await using own = new AsyncDisposableStack();
    const [node] = world.redis.nodes;
    if (node === undefined) throw new Error('there is no node');
    const proxy = own.use(await TcpProxy.start(node));
    const client = new Redis({ host: proxy.host, port: proxy.port });
    own.defer(() => client.disconnect());
    const redlock = new Redlock({ nodes: [{ name: 'n0', client }], keyPrefix: `{${path}}:` });
    const metrics = createMetrics({
      nodes: () => redlock.status(),
    });
    const clock = new Clock();
    const server = await serveGateway(createGateway({ lock: redlock, metrics }, clock), {
      port: 0,
    });
    own.defer(async () => void (await server.drain()));
    const cost = async (times: number): Promise<number> => {
      const before = proxy.bytes('toServer');
      expect(new Set(await askOften(server.url + path, times))).toEqual(new Set([200]));
      return proxy.bytes('toServer') - before;
    };
    await redlock.readmit();
    await redlock.status();
    const ofOne = await cost(1);
    expect(ofOne).toBeGreaterThan(0);
    clock.ms += 1_001;
    expect(await cost(100)).toBe(ofOne);
    expect(await cost(100)).toBe(0);
    clock.ms += 1_001;
    expect(await cost(100)).toBe(ofOne);
  },
);

test('serveGateway refuses an app that createGateway has not made, because it has no limits', async () => {
  const app = { listen: () => undefined } as never;
  await expect(serveGateway(app, { port: 0 })).rejects.toThrow('made by createGateway');
});

test('the OpenAPI document is built once', async () => {
  await using front = await world.open();
  const stringify = vi.spyOn(JSON, 'stringify');
  try {
    expect(new Set(await askOften(`${front.url}/openapi.json`, 20))).toEqual(new Set([200]));
    const built = stringify.mock.calls.filter(([value]) => Object(value).openapi !== undefined);
    expect(built).toHaveLength(1);
  } finally {
    stringify.mockRestore();
  }
});

/**
 * A rate limit that admits `burst` requests of an address in all, because its clock stands still.
 */
function rateOf(burst: number) {
  return {
    perKey: createRateLimit({ perSecond: 1_000, burst: 1_000 }, () => 0),
    perAddress: createRateLimit({ perSecond: 10, burst }, () => 0),
  };
}

const UNKNOWN = { authenticate: async () => null };
const UNAVAILABLE = { authenticate: () => Promise.reject(new CredentialsUnavailableError()) };

test.each([
  ['metrics', 'GET /metrics', UNKNOWN, 200, 429],
  ['credentials that are wrong', 'GET /v1/objects/a', UNKNOWN, 401, 429],
  ['credentials that cannot be checked', 'GET /v1/objects/a', UNAVAILABLE, 503, 429],
  ['an unknown path', 'GET /nothing', UNKNOWN, 404, 429],
  ['a method that the path does not have', 'TRACE /v1/objects/a', UNKNOWN, 405, 429],
  ['an invalid name', 'GET /v1/objects/a/%2e%2e', UNKNOWN, 400, 429],
  ['a target that is not a path', 'OPTIONS *', UNKNOWN, 400, 429],
  ['a repeated header', 'GET /livez HTTP/1.1\r\nRange: a\r\nRange: b\r\nX:', UNKNOWN, 400, 429],
  ['livez', 'GET /livez', UNKNOWN, 200, 200],
  ['readyz', 'GET /readyz', UNKNOWN, 200, 200],
])(
  'pipelined requests for %s beyond the rate of their address are not examined',
  async (_, start, credentials, within, beyond) => {
    const metrics = { contentType: 'text/plain', text: async () => 'up 1\n' };
    await using gateway = await world.open({ rate: rateOf(3), metrics, credentials });
    const one = `${start} HTTP/1.1\r\nHost: localhost\r\n\r\n`;
    const answers = await send(gateway.url, one.repeat(100));
    expect(answers.map(({ status }) => status)).toEqual([within, within, within, beyond]);
    expect(answers.at(-1)?.headers.connection).toBe('close');
    await until(() => gateway.ended.length === 4);
    // The limit of an address does not count requests with good credentials.
    const good = { authenticate: async () => ({ name: 'good', may: () => true }) };
    await using other = await world.open({ rate: rateOf(1), metrics, credentials: good });
    expect(await askOften(`${other.url}/nothing`, 2)).toEqual([404, 429]);
    expect(new Set(await askOften(`${other.url}/v1/objects/nothing`, 20))).toEqual(new Set([404]));
  },
);

test('a gateway is not ready while demoted masters leave no majority, and serves again from the new ones', async () => {
  await using own = new AsyncDisposableStack();
  const args = ['--repl-diskless-sync-delay', '0'];
  const { nodes } = own.use(await startLocalRedis(5, { args }));
  const admins = nodes.map(({ port }) => new Redis(port));
  for (const admin of admins) own.defer(() => admin.disconnect());
  const doors = await Promise.all(nodes.slice(0, 3).map((node) => TcpProxy.start(node)));
  for (const door of doors) own.use(door);
  // The last two nodes are replicas of the first two.
  const pairs = [0, 1].map((at) => ({ at, old: admins[at], next: admins[at + 3] }));
  for (const { at, next } of pairs) await next?.replicaof('127.0.0.1', nodes[at]?.port ?? 0);
  const hasSynced = async ({ next }: (typeof pairs)[number]): Promise<boolean> =>
    (await next?.info('replication'))?.includes('master_link_status:up') ?? false;
  await until(async () => (await Promise.all(pairs.map(hasSynced))).every(Boolean));

  const config = await configFile(world, own, { ...world.addresses, redis: doors });
  const gateway = await startGateway(config);
  own.use(gateway.process);
  const lease = () => post(`${gateway.url}/v1/leases/x`, { ttlMs: 1_000, waitMs: 5_000 });
  expect((await lease()).status).toBe(201);
  for (const { at, old, next } of pairs) {
    await next?.replicaof('NO', 'ONE');
    await old?.replicaof('127.0.0.1', nodes[at + 3]?.port ?? 0);
  }
  const ready = async () => {
    const answer = await fetch(`${gateway.url}/readyz`);
    return { status: answer.status, text: await answer.text() };
  };
  await until(async () => (await ready()).text.includes('1 of 3 nodes vote'));
  expect((await ready()).status).toBe(503);
  for (const [at, door] of doors.slice(0, 2).entries()) {
    const { host, port } = nodes[at + 3] ?? { host: '', port: 0 };
    door.lead({ host, port });
  }
  // Only the checks ask the nodes, as behind a load balancer that waits for them.
  await until(async () => (await ready()).status === 200);
  expect((await lease()).status).toBe(201);
});

test('all requests of an address without credentials count together, and probes are answered beyond the rate', async () => {
  const metrics = { contentType: 'text/plain', text: async () => 'up 1\n' };
  await using front = await world.open({ rate: rateOf(4), metrics, credentials: UNKNOWN });
  const statusOf = async (path: string) => (await fetch(front.url + path)).status;
  expect(await statusOf('/metrics')).toBe(200);
  expect(await statusOf('/openapi.json')).toBe(200);
  expect(await statusOf('/livez')).toBe(200);
  expect(await statusOf('/v1/objects/a')).toBe(401);
  expect(await statusOf('/nothing')).toBe(404);
  for (const path of ['/metrics', '/openapi.json', '/v1/objects/a', '/nothing']) {
    const refused = await fetch(front.url + path);
    expect(refused.headers.get('retry-after')).toBe('1');
    expect(await problemOf(refused)).toMatchObject({
      type: 'urn:fenced:problem:too-many-requests',
    });
  }
  for (const path of ['/livez', '/readyz'])
    expect(new Set(await askOften(front.url + path, 10))).toEqual(new Set([200]));

  await using behind = await world.open({
    rate: rateOf(3),
    metrics,
    trustedProxies: ['127.0.0.1'],
  });
  const from = (url: string, address: string) =>
    fetch(`${url}/metrics`, { headers: { 'X-Forwarded-For': address } });
  expect((await from(front.url, '192.0.2.1')).status).toBe(429);
  for (let at = 0; at < 3; at++) expect((await from(behind.url, '192.0.2.1')).status).toBe(200);
  expect((await from(behind.url, '192.0.2.1')).status).toBe(429);
  expect((await from(behind.url, '192.0.2.2')).status).toBe(200);
  // A client cannot hide behind a forged header: the address that the proxy appended counts.
  expect((await from(behind.url, '192.0.2.9, 192.0.2.1')).status).toBe(429);
});

test('operations can have a port of their own, also while the gateway drains', async () => {
  await using own = new AsyncDisposableStack();
  const config = await configFile(world, own, world.addresses, { drainDelayMs: 3_000 });
  const env = { FENCED_GATEWAY_OPERATIONS_PORT: '0' };
  const gateway = await startGateway(config, { env });
  own.use(gateway.process);
  const { url, operationsUrl } = gateway;
  expect(operationsUrl).not.toBe(url);
  for (const path of ['/livez', '/readyz', '/metrics']) {
    expect((await fetch(operationsUrl + path)).status).toBe(200);
    expect(await problemOf(await fetch(url + path))).toMatchObject({
      type: 'urn:fenced:problem:no-such-route',
    });
  }
  for (const path of ['/openapi.json', '/v1/objects/a', '/v1/leases/a'])
    expect((await fetch(operationsUrl + path)).status).toBe(404);
  expect((await fetch(`${url}/v1/objects/a`)).status).toBe(404);
  const counted = /^fenced_gateway_requests_total\{route="\/v1\/objects\/\{key\}"/m;
  await until(async () => counted.test(await (await fetch(`${operationsUrl}/metrics`)).text()));
  const document = (await (await fetch(`${url}/openapi.json`)).json()) as { paths: object };
  expect(Object.keys(document.paths)).not.toContain('/metrics');
  const ended = gateway.process.kill('SIGTERM');
  await until(async () => (await fetch(`${operationsUrl}/readyz`)).status === 503);
  expect((await fetch(`${operationsUrl}/livez`)).status).toBe(200);
  expect(await ended).toMatchObject({ code: 0 });
});

test('a gateway whose second port is taken ends, and frees the first one', async () => {
  await using own = new AsyncDisposableStack();
  const config = await configFile(world, own);
  const taken = await startGateway(config, { env: { FENCED_GATEWAY_OPERATIONS_PORT: '0' } });
  own.use(taken.process);
  for (const [name, url] of [
    ['OPERATIONS', taken.url],
    ['LISTEN', taken.operationsUrl],
  ] as const) {
    const env = {
      FENCED_GATEWAY_OPERATIONS_PORT: '0',
      [`FENCED_GATEWAY_${name}_PORT`]: new URL(url).port,
    };
    await expect(startGateway(config, { env })).rejects.toThrow('EADDRINUSE');
  }
});
