import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { FencedGateway } from '@fenced/client';
import { createGateway, serveGateway } from '@fenced/gateway';
import { Redlock } from '@fenced/lock';
import { type ElectionBoard, type ElectionLock, Elector } from '@fenced/lock/election';
import { EtcdLock } from '@fenced/lock/etcd';
import { PostgresLock } from '@fenced/lock/postgres';
import { ZooKeeperLock } from '@fenced/lock/zookeeper';
import { FencedPostgres } from '@fenced/store/postgres';
import {
  type LocalPostgres,
  type LocalRedisService,
  startEtcd,
  startLocalPostgres,
  startLocalRedis,
  startPgBouncer,
  startZooKeeper,
  TcpProxy,
  WorkerProcess,
} from '@fenced/testbed';
import { Redis } from 'ioredis';
import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';

const parts = new AsyncDisposableStack();
let redis: LocalRedisService;
let postgres: LocalPostgres;
let pool: pg.Pool;
let store: FencedPostgres;
let redlock: Redlock;

beforeAll(async () => {
  [redis, postgres] = await Promise.all([startLocalRedis(3), startLocalPostgres()]);
  parts.use(redis);
  parts.use(postgres);
  pool = openPool(postgres.url);
  store = new FencedPostgres({ pool });
  await store.install();
  await pool.query('CREATE TABLE work (id serial, token bigint)');
  redlock = openRedlock(redis.nodes);
});
afterAll(() => parts.disposeAsync());

function openPool(connectionString: string): pg.Pool {
  const opened = new pg.Pool({ connectionString });
  opened.on('error', () => {});
  parts.defer(() => opened.end());
  return opened;
}

function openRedlock(nodes: readonly { readonly host: string; readonly port: number }[]): Redlock {
  const clients = nodes.map(({ host, port }, at) => {
    const client = new Redis({ host, port });
    parts.defer(() => client.disconnect());
    return { name: 'abcde'.charAt(at), client };
  });
  return new Redlock({ nodes: clients });
}

/** Stores notices as records in Postgres, as the page of leader election shows. */
function boardOf(resource: string): ElectionBoard {
  const notices = store.records('elections');
  return {
    publish: (notice, token) => notices.put(resource, notice, { token }),
    read: async () => (await notices.get(resource))?.body as string | undefined,
  };
}

test('a leader is stopped, and wakes up after its successor has written: its writes are refused', async () => {
  const resource = randomUUID();
  const lines: string[] = [];
  await using leader = await WorkerProcess.start(new URL('harness/leader.ts', import.meta.url), {
    args: [postgres.url, resource, ...redis.nodes.map(({ url }) => url)],
    onLine: (line) => lines.push(line),
  });
  const until = async (line: string): Promise<void> => {
    while (!lines.includes(line)) await sleep(5);
  };
  await until('written');
  await leader.pause();
  const board = boardOf(resource);
  await using elector = new Elector({ lock: redlock, resource, ttlMs: 2_000, board });
  const term = await elector.campaign();
  await store.transaction({ resource, token: term.token }, (tx) =>
    tx.query('INSERT INTO work (token) VALUES ($1)', [String(term.token)]),
  );
  const inserted = 'SELECT token FROM work ORDER BY id DESC LIMIT 1';
  await leader.wake();
  await until('stale-token');
  await until('deposed');
  const { rows } = await pool.query(inserted);
  expect(rows).toEqual([{ token: String(term.token) }]);
  term.ensure();
});

/** Two leaders that write records. The first can lose its lock nodes; then the second follows. */
async function twoLeaders(resource: string) {
  const { hostname, port } = new URL(postgres.url);
  const wire = parts.use(await TcpProxy.start({ host: hostname, port: Number(port) }));
  const far = new URL(postgres.url);
  far.host = `${wire.host}:${wire.port}`;
  const lockWires = await Promise.all(redis.nodes.map((node) => TcpProxy.start(node)));
  for (const lockWire of lockWires) parts.use(lockWire);
  const lock = openRedlock(lockWires);
  const first = await new Elector({ lock, resource, ttlMs: 1_000 }).campaign();
  const records = new FencedPostgres({ pool: openPool(far.href) }).records('led');
  return {
    first: { records, options: { token: first.token } },
    /** The proxy between the first leader and its storage. */
    wire,
    /** Deposes the first leader. */
    async succeed() {
      for (const lockWire of lockWires) lockWire.hold('toServer');
      const elector = parts.use(new Elector({ lock: redlock, resource, ttlMs: 1_000 }));
      const { token } = await elector.campaign();
      expect(first.signal.aborted).toBe(true);
      return { records: store.records('led'), options: { token } };
    },
  };
}

test.concurrent('the packet of a leader is late, and arrives after its successor has written: refused', async () => {
  const id = randomUUID();
  const { first, wire, succeed } = await twoLeaders(id);
  // Opens the connection, so that only the packets of the write are held.
  await first.records.get(id);
  wire.hold('toServer');
  const late = first.records.put(id, 'first', first.options);
  await wire.untilHeld('toServer');
  const second = await succeed();
  await second.records.put(id, 'second', second.options);
  wire.release('toServer');
  await expect(late).rejects.toMatchObject({ code: 'stale-token', highest: second.options.token });
  expect((await second.records.get(id))?.body).toBe('second');
});

test.concurrent('both leaders have read, and the first writes first: with claims it is refused', async () => {
  const id = randomUUID();
  const { first, succeed } = await twoLeaders(id);
  expect(await first.records.claimAndGet(id, first.options)).toBeNull();
  const second = await succeed();
  expect(await second.records.claimAndGet(id, second.options)).toBeNull();
  const late = first.records.put(id, 'first', first.options);
  await expect(late).rejects.toMatchObject({ code: 'stale-token', highest: second.options.token });
  await second.records.put(id, 'second', second.options);
  expect((await second.records.get(id))?.body).toBe('second');
});

/** The leader over `a` resigns, and the one over `b` follows. An observer sees both. */
async function expectSuccession(a: ElectionLock, b: ElectionLock): Promise<void> {
  const resource = randomUUID();
  const options = { resource, ttlMs: 1_000, board: boardOf(resource) };
  await using first = new Elector({ ...options, lock: a, candidate: 'a' });
  await using second = new Elector({ ...options, lock: b, candidate: 'b' });
  const term = await first.campaign();
  const campaign = second.campaign();
  await sleep(1_500);
  term.ensure();
  expect(second.leadership).toBeNull();
  await first.resign();
  const next = await campaign;
  expect(next.token).toBeGreaterThan(term.token);
  for await (const { state, candidate, token } of first.observe({ everyMs: 50 })) {
    if (state !== 'led') continue;
    expect([candidate, token]).toEqual(['b', next.token]);
    break;
  }
}

test.concurrent('over Redis nodes', () => expectSuccession(redlock, redlock));

test.concurrent('over Postgres behind a pooler of transactions', async () => {
  await new PostgresLock({ pool }).install();
  const { url } = parts.use(await startPgBouncer(postgres.url));
  const open = (): PostgresLock => new PostgresLock({ pool: openPool(url) });
  await expectSuccession(open(), open());
});

test.concurrent('over etcd', async () => {
  const { nodes } = parts.use(await startEtcd());
  const endpoints = nodes.map(({ url }) => url);
  await expectSuccession(new EtcdLock({ endpoints }), new EtcdLock({ endpoints }));
});

test.concurrent('over ZooKeeper', async () => {
  const { addresses: servers } = parts.use(await startZooKeeper(3));
  const open = (): ZooKeeperLock => parts.use(new ZooKeeperLock({ servers }));
  await expectSuccession(open(), open());
});

test.concurrent('over a gateway', async () => {
  const app = createGateway({ lock: redlock });
  const server = await serveGateway(app, { port: 0 });
  parts.defer(async () => void (await server.drain()));
  const open = (): FencedGateway => new FencedGateway({ url: server.url });
  await expectSuccession(open(), open());
});

test.concurrent('the program of the page leads, writes and resigns', async () => {
  const page = await readFile(new URL('../../docs/leader-election.md', import.meta.url), 'utf8');
  const [, program = ''] = /```ts\n(.*?)```/s.exec(page) ?? [];
  const pasted = redis.nodes
    .reduce((text, { url }, at) => text.replace(`Redis(700${at + 1})`, `Redis('${url}')`), program)
    .replace('pg.Pool()', `pg.Pool({ connectionString: '${postgres.url}' })`);
  // In this folder, so that it finds the packages as a user's program does.
  const file = new URL(`pasted-${randomUUID()}.ts`, import.meta.url);
  await writeFile(file, pasted);
  try {
    const { stdout } = await promisify(execFile)(process.execPath, [file.pathname]);
    expect(stdout).toBe('leads: true\nno leader any more\n');
  } finally {
    await rm(file);
  }
});
