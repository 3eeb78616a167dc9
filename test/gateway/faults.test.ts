import { connect } from 'node:net';
import { TcpProxy } from '@fenced/testbed';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Load } from './harness/load.js';
import { type Front, GatewayWorld, until } from './harness/world.js';

let world: GatewayWorld;
let front: Front;
const parts = new AsyncDisposableStack();
const redis: TcpProxy[] = [];
let s3: TcpProxy;
let postgres: TcpProxy;

beforeAll(async () => {
  world = parts.use(await GatewayWorld.start());
  const before = async (address: string | { host: string; port: number }): Promise<TcpProxy> => {
    const { hostname: host, port } =
      typeof address === 'string'
        ? new URL(address)
        : { hostname: address.host, port: address.port };
    return parts.use(await TcpProxy.start({ host, port: Number(port) }));
  };
  for (const node of world.redis.nodes) redis.push(await before(node));
  s3 = await before(world.s3.endpoint);
  postgres = await before(world.postgres.url);
  const url = new URL(world.postgres.url);
  url.host = `${postgres.host}:${postgres.port}`;
  front = parts.use(
    await world.open({}, { redis, s3: `http://${s3.host}:${s3.port}`, postgres: url.href }),
  );
});

afterAll(() => parts.disposeAsync());

async function readiness(): Promise<string> {
  const response = await fetch(`${front.url}/readyz`);
  return `${response.status}\n${await response.text()}`;
}

interface Fault {
  begin(proxy: TcpProxy): void;
  readonly isGone: boolean;
}

const FAULTS: Readonly<Record<string, Fault>> = {
  down: { begin: (proxy) => proxy.shut(), isGone: true },
  silent: { begin: (proxy) => proxy.hold('toClient'), isGone: true },
  slow: { begin: (proxy) => proxy.delay('toClient', 60), isGone: false },
  restarted: { begin: (proxy) => proxy.cut(), isGone: false },
};

describe.each(['objects', 'records'] as const)('%s under load', (kind) => {
  const dependency = { objects: 's3', records: 'postgres' }[kind];
  const proxiesOf = (name: string): readonly TcpProxy[] =>
    name === 'lock' ? redis : [name === 's3' ? s3 : postgres];

  test.each(
    (kind === 'records' ? [dependency, 'lock'] : [dependency]).flatMap((name) =>
      Object.keys(FAULTS).map((fault) => [name, fault] as const),
    ),
  )(
    '%s is %s: no acknowledged write is lost, nothing hangs, and the gateway recovers',
    async (name, fault) => {
      const { begin, isGone } = FAULTS[fault] as Fault;
      const proxies = proxiesOf(name);
      const load = new Load(() => [front.url], kind, 3);
      try {
        await until(() => load.applied >= 3);
        for (const proxy of proxies) begin(proxy);
        if (isGone) await until(async () => /^503\n/.test(await readiness()));
        if (isGone) expect(await readiness()).toContain(`[-]${name} `);
        else await until(async () => (await readiness()).startsWith('200'));
        const before = load.applied;
        if (isGone) {
          await until(() => load.answers.has(503));
          for (const proxy of proxies) proxy.heal();
        }
        await until(async () => (await readiness()).startsWith('200'));
        await until(() => load.applied >= before + 3);
      } finally {
        for (const proxy of proxies) proxy.heal();
        await load.stop();
      }
      expect(await load.verdict()).toEqual([]);
      expect(load.slowestMs).toBeLessThan(20_000);
      for (const status of load.answers.keys())
        expect([0, 200, 201, 404, 409, 410, 412, 503, 504]).toContain(status);
      expect(load.answers.has(0)).toBe(false);
      await until(() => front.pool.idleCount === front.pool.totalCount);
      expect([front.pool.waitingCount, front.pool.totalCount <= 20]).toEqual([0, true]);
    },
    60_000,
  );
});

test('the gateway works without one lock node', async () => {
  redis[0]?.shut();
  const load = new Load(() => [front.url], 'records', 3);
  await until(() => load.applied >= 5);
  await load.stop();
  await until(async () => /^200\n\[\+\]lock 2 of 3 nodes vote/.test(await readiness()));
  redis[0]?.heal();
  expect(await load.verdict()).toEqual([]);
});

test('readiness fails as soon as the gateway shuts down, while requests are still accepted', async () => {
  await using draining = await world.open({ limits: { drainDelayMs: 6_000, graceMs: 1_000 } });
  const drained = draining.server.drain();
  const response = await fetch(`${draining.url}/readyz`);
  expect([response.status, await response.text()]).toEqual([503, '[-]gateway shutting down\n']);
  expect(response.headers.get('connection')).toBe('close');
  expect((await fetch(`${draining.url}/v1/objects/none`)).status).toBe(404);
  expect(await drained).toBe(true);
  await expect(fetch(`${draining.url}/readyz`)).rejects.toThrow();
});

test('connections that never sent a request do not delay the shutdown', async () => {
  await using draining = await world.open({ limits: { graceMs: 5_000 } });
  const port = Number(new URL(draining.url).port);
  const sockets = ['', 'GET /livez HTT'].map((bytes) => {
    const socket = connect(port, '127.0.0.1');
    socket.on('error', () => undefined);
    socket.write(bytes);
    return socket;
  });
  await fetch(`${draining.url}/livez`);
  await until(() => sockets.every((socket) => !socket.connecting));
  expect(await draining.server.drain()).toBe(true);
  await until(() => sockets.every((socket) => socket.closed));
});
