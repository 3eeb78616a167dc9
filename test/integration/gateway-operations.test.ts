import { Redlock } from '@fenced/lock';
import { createGateway, createRateLimit, serveGateway } from '@fenced/store/gateway';
import { createMetrics } from '@fenced/store/gateway/metrics';
import { TcpProxy } from '@fenced/testbed';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { configFile, startGateway } from './gateway-process.js';
import { send } from './gateway-raw.js';
import { GatewayWorld, problemOf, until } from './gateway-world.js';

let world: GatewayWorld;
const parts = new AsyncDisposableStack();

beforeAll(async () => {
  world = parts.use(await GatewayWorld.start());
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
  'however many ask for %s, the nodes are asked once a second',
  async (path) => {
    await using own = new AsyncDisposableStack();
    const [node] = world.redis.nodes;
    if (node === undefined) throw new Error('there is no node');
    const proxy = own.use(await TcpProxy.start(node));
    const client = new Redis({ host: proxy.host, port: proxy.port });
    own.defer(() => client.disconnect());
    const redlock = new Redlock({ nodes: [{ name: 'n0', client }], keyPrefix: `{${path}}:` });
    const metrics = createMetrics({
      nodes: async () => (await redlock.status()).map(({ name }) => ({ name, admitted: true })),
    });
    const clock = new Clock();
    const server = await serveGateway(createGateway({ redlock, metrics }, clock), { port: 0 });
    own.defer(async () => void (await server.drain()));
    const cost = async (times: number): Promise<number> => {
      const before = proxy.bytes('toServer');
      expect(new Set(await askOften(server.url + path, times))).toEqual(new Set([200]));
      return proxy.bytes('toServer') - before;
    };
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

test('of requests that a client sends without waiting for answers, none is looked at behind a refusal', async () => {
  const rate = {
    perKey: createRateLimit({ perSecond: 1_000, burst: 1_000 }, () => 0),
    perAddress: createRateLimit({ perSecond: 10, burst: 3 }, () => 0),
  };
  const text = vi.fn(async () => 'up 1\n');
  const metrics = { contentType: 'text/plain', text };
  await using gateway = await world.open({
    rate,
    metrics,
    keys: { authenticate: async () => null },
  });
  const pipelined = 'GET /metrics HTTP/1.1\r\nHost: gateway\r\n\r\n'.repeat(100);
  const answers = await send(gateway.url, pipelined);
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 429]);
});

test('what needs no credentials is limited by address, by itself, and probes are not', async () => {
  const rate = () => ({
    perKey: createRateLimit({ perSecond: 1_000, burst: 1_000 }, () => 0),
    perAddress: createRateLimit({ perSecond: 1, burst: 3 }, () => 0),
  });
  const metrics = { contentType: 'text/plain', text: async () => 'up 1\n' };
  const keys = { authenticate: async () => null };
  await using front = await world.open({ rate: rate(), metrics, keys });
  expect(await askOften(`${front.url}/metrics`, 2)).toEqual([200, 200]);
  const answers = await askOften(`${front.url}/openapi.json`, 3);
  expect(answers.toSorted()).toEqual([200, 429, 429]);
  const refused = await fetch(`${front.url}/metrics`);
  expect(refused.headers.get('retry-after')).toBe('1');
  expect(await problemOf(refused)).toMatchObject({ type: 'urn:fenced:problem:too-many-requests' });
  for (const path of ['/livez', '/readyz'])
    expect(new Set(await askOften(front.url + path, 10))).toEqual(new Set([200]));
  // Guessing keys has an allowance of its own.
  expect((await fetch(`${front.url}/v1/objects/a`)).status).toBe(401);

  const from = (url: string, address: string) =>
    fetch(`${url}/metrics`, { headers: { 'X-Forwarded-For': address } });
  expect((await from(front.url, '192.0.2.1')).status).toBe(429);
  await using behind = await world.open({
    ...{ rate: rate(), metrics },
    trustedProxies: ['127.0.0.1'],
  });
  for (let at = 0; at < 3; at++) expect((await from(behind.url, '192.0.2.1')).status).toBe(200);
  expect((await from(behind.url, '192.0.2.1')).status).toBe(429);
  expect((await from(behind.url, '192.0.2.2')).status).toBe(200);
  // What a client wrote itself stands before what the proxy has added.
  expect((await from(behind.url, '192.0.2.9, 192.0.2.1')).status).toBe(429);
});

test('operations have a port of their own where one is configured, also while the gateway drains', async () => {
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

test('a gateway whose second port cannot be had ends, and leaves the first one free', async () => {
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
