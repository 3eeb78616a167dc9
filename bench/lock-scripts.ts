import { Redlock } from '@fenced/lock';
import { startRedis } from '@fenced/testbed';
import { Redis } from 'ioredis';
import { type BenchOptions, inTurn, measure, type Round, type Row, row } from './measure.ts';

const BENCH = 'lock-scripts';
/** Longer than any load lasts. */
const TTL_MS = 60_000;
const OPTIONS = { ttlMs: TTL_MS, waitMs: TTL_MS };
/** The most resources that one call may lock. */
const RESOURCES_MAX = 256;
/** Sets of resources. Together they have more wait queues than one script may inspect. */
const APART = 48;
/** Time for which the waiters stay enqueued and ask the node again and again. */
const ASKING_MS = 1_500;
/** Length of the node's slow log: more entries than any load makes. */
const SLOWLOG_MAX = 100_000;

interface Load {
  readonly name: string;
  /** @param lock a new client of the node */
  run(lock: () => Redlock): Promise<void>;
}

/** How long does one script block a node, at most? */
export async function benchScripts({ isQuick }: BenchOptions): Promise<Row[]> {
  await using redis = await startRedis(1);
  const [size, many, apart] = isQuick ? [16, 50, 16] : [RESOURCES_MAX, 1_000, APART];
  const loads: Load[] = [
    { name: '64 locks of one resource in a batch', run: (lock) => batch(lock(), 64, 1) },
    { name: `64 locks of ${size} resources in a batch`, run: (lock) => batch(lock(), 64, size) },
    { name: '20 waiters for 40 resources', run: (lock) => waiting(lock(), lock(), 20, 40) },
    { name: `20 waiters for ${size} resources`, run: (lock) => waiting(lock(), lock(), 20, size) },
    {
      name: `${many} waiters for ${size} resources`,
      run: (lock) => waiting(lock(), lock(), many, size),
    },
    {
      name: `a release of ${size} resources, ${apart} sets of ${size} wait`,
      run: (lock) => releaseToMany(lock(), lock(), apart, size),
    },
  ];
  const port = redis.nodes[0]?.port ?? 0;
  const results = await inTurn(loads, isQuick ? 1 : 3, (load) => scriptsOf(port, load));
  const all = results.map(([{ name }, rounds]) =>
    measure(name, rounds, (some) => ({
      longestScriptMs: Math.max(...some.flatMap(({ durationsMs }) => durationsMs)),
    })),
  );
  const [baseline] = all;
  return baseline ? all.map((one) => row(BENCH, one, baseline, 'longestScriptMs')) : [];
}

/** Returns the durations of all scripts of a load, by the node's clock. */
async function scriptsOf(port: number, load: Load): Promise<Round> {
  await using stack = new AsyncDisposableStack();
  const connect = (): Redis => stack.adopt(new Redis(port), (client) => client.disconnect());
  const admin = connect();
  await admin.flushall();
  await admin.config('SET', 'slowlog-max-len', SLOWLOG_MAX, 'slowlog-log-slower-than', 0);
  const lock = (): Redlock => stack.use(new Redlock({ nodes: [{ name: 'n', client: connect() }] }));
  // Readmits the node and loads the scripts.
  await batch(lock(), 2, 2);
  await admin.call('SLOWLOG', 'RESET');
  const startedMs = performance.now();
  await load.run(lock);
  const elapsedMs = performance.now() - startedMs;
  const log = (await admin.call('SLOWLOG', 'GET', SLOWLOG_MAX)) as [
    id: number,
    time: number,
    us: number,
    command: string[],
  ][];
  const scripts = log.filter(([, , , [name]]) => name === 'evalsha' || name === 'eval');
  return { durationsMs: scripts.map(([, , us]) => us / 1_000), elapsedMs };
}

async function batch(lock: Redlock, calls: number, size: number): Promise<void> {
  const sets = Array.from({ length: calls }, (_, at) => resources(size, `${at}/`));
  const leases = await Promise.all(sets.map((set) => lock.acquire(set, OPTIONS)));
  await Promise.all(leases.map((lease) => lease.release()));
}

/** Lets waiters wait for a set of resources of which only the last is held. */
async function waiting(
  holder: Redlock,
  lock: Redlock,
  waiters: number,
  size: number,
): Promise<void> {
  const set = resources(size);
  const lease = await holder.acquire(set.slice(-1), OPTIONS);
  const signal = AbortSignal.timeout(ASKING_MS);
  const gaveUp = Array.from({ length: waiters - 1 }, () =>
    lock.acquire(set, { ...OPTIONS, signal }).catch(() => {}),
  );
  const served = lock.acquire(set, OPTIONS);
  await Promise.all(gaveUp);
  await lease.release();
  await (await served).release();
}

/** Releases resources that have different first waiters, each of which waits for more resources. */
async function releaseToMany(
  holder: Redlock,
  lock: Redlock,
  apart: number,
  size: number,
): Promise<void> {
  const set = resources(size);
  const lease = await holder.acquire(set, OPTIONS);
  const served = set.slice(0, apart).map(async (resource) => {
    const own = await lock.acquire([resource, ...resources(size - 1, `${resource}/`)], OPTIONS);
    await own.release();
  });
  await new Promise((resolve) => setTimeout(resolve, ASKING_MS));
  await lease.release();
  await Promise.all(served);
}

function resources(count: number, prefix = ''): string[] {
  return Array.from({ length: count }, (_, at) => `${prefix}${String(at).padStart(3, '0')}`);
}
