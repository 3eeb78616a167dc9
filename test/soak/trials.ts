import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Lease, Redlock } from '@fenced/lock';
import { startRedis, WorkerProcess } from '@fenced/testbed';
import { Redis } from 'ioredis';
import { each, figure, heapBytesNow, nodesCpuMs, sum } from './figures.ts';

type Figures = Readonly<Record<string, number>>;

const AT_ONCE = 64;
const MINUTES_10_MS = 600_000;

/** Nodes, and one connection to each of them for the measurements. */
class World implements AsyncDisposable {
  readonly keyPrefix: string = `{${randomUUID()}}:`;
  readonly ports: readonly number[];
  readonly admins: readonly Redis[];
  readonly #connections: Redis[] = [];
  readonly #service: AsyncDisposable;

  static async start(count: number): Promise<World> {
    const service = await startRedis(count);
    return new World(
      service,
      service.nodes.map(({ port }) => port),
    );
  }

  private constructor(service: AsyncDisposable, ports: readonly number[]) {
    this.#service = service;
    this.ports = ports;
    this.admins = this.connect();
  }

  /** A new connection to each node. */
  connect(): readonly Redis[] {
    const connections = this.ports.map((port) => new Redis(port));
    this.#connections.push(...connections);
    return connections;
  }

  nodes(): readonly { readonly name: string; readonly client: Redis }[] {
    return this.connect().map((client, at) => ({ name: `n${at}`, client }));
  }

  async nodeBytes(): Promise<number> {
    const bytes = this.admins.map((admin) => figure(admin, 'memory', 'used_memory'));
    return sum(await Promise.all(bytes)) / bytes.length;
  }

  /**
   * Microseconds of the longest command of any node, by the wall clock: time in which the machine
   * ran other processes counts, too.
   */
  async longestUs(): Promise<number> {
    const logs = await Promise.all(this.admins.map((admin) => admin.slowlog('GET', 1_000)));
    return Math.max(0, ...(logs.flat() as [number, number, number][]).map(([, , us]) => us));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const connection of this.#connections) connection.disconnect();
    await this.#service[Symbol.asyncDispose]();
  }
}

/** One process holds all leases at once, extends each once, and releases them. */
export async function leases(count: number): Promise<Figures> {
  await using world = await World.start(3);
  const { keyPrefix } = world;
  await using lock = new Redlock({ nodes: world.nodes(), keyPrefix, maxTtlMs: MINUTES_10_MS });
  const options = { ttlMs: MINUTES_10_MS, waitMs: 10_000 };
  await (await lock.acquire('warm-up', options)).release();
  const [heapBytes, nodeBytes] = [heapBytesNow(), await world.nodeBytes()];
  const held: Lease[] = [];
  const acquireMs = await timed(() =>
    each(count, AT_ONCE, async (at) => void held.push(await lock.acquire(`lease ${at}`, options))),
  );
  const figures = {
    acquireUs: (1_000 * acquireMs) / count,
    heapBytesEach: (heapBytesNow() - heapBytes) / count,
    nodeBytesEach:
      (await world.nodeBytes()) - nodeBytes > 0
        ? ((await world.nodeBytes()) - nodeBytes) / count
        : 0,
  };
  const extendMs = await timed(() =>
    each(count, AT_ONCE, async (at) => held[at]?.extend(MINUTES_10_MS)),
  );
  let released = 0;
  const releaseMs = await timed(() =>
    each(count, AT_ONCE, async (at) => {
      if ((await held[at]?.release()) === 'released') released += 1;
    }),
  );
  held.length = 0;
  return {
    ...figures,
    extendUs: (1_000 * extendMs) / count,
    releaseUs: (1_000 * releaseMs) / count,
    released,
    heapBytesEachReleased: (heapBytesNow() - heapBytes) / count,
    longestScriptMs: (await world.longestUs()) / 1_000,
  };
}

const WAITING = new URL('./waiting.ts', import.meta.url);
const PROCESSES = 10;
/** Time after which `waiting.ts` has measured its waiters. */
const SETTLED_MS = 12_000;

/**
 * Lets all waiters wait for one held resource. Then each gets the lock in turn, and releases it.
 */
export async function waiters(count: number): Promise<Figures> {
  await using world = await World.start(3);
  const { keyPrefix, ports, admins } = world;
  await using lock = new Redlock({ nodes: world.nodes(), keyPrefix, maxTtlMs: MINUTES_10_MS });
  const holder = await lock.acquire('hot', { ttlMs: MINUTES_10_MS, waitMs: 10_000 });
  await using parts = new AsyncDisposableStack();
  const order = { ports, keyPrefix, waiters: Math.ceil(count / PROCESSES) };
  const startedMs = performance.now();
  const tokens: bigint[] = [];
  const lines: Record<string, number>[] = [];
  const workers = await Promise.all(
    Array.from({ length: PROCESSES }, () =>
      WorkerProcess.start(WAITING, {
        args: [JSON.stringify(order)],
        onLine: (line) => {
          if (line.startsWith('{')) lines.push(JSON.parse(line));
          else tokens.push(BigInt(line));
        },
      }),
    ),
  );
  for (const worker of workers) parts.use(worker);
  const queue = `${keyPrefix}queue:hot`;
  const queued = async (): Promise<number> =>
    Math.max(...(await Promise.all(admins.map((admin) => admin.zcard(queue)))));
  while ((await queued()) < order.waiters * PROCESSES) {
    await sleep(100);
    if (performance.now() - startedMs > 240_000) break;
  }
  const queuedMs = performance.now() - startedMs;
  const before = await nodesCpuMs(admins);
  const cpuMs = async (): Promise<number> => sum(await nodesCpuMs(admins)) - sum(before);
  await sleep(SETTLED_MS);
  const idleCpuMs = await cpuMs();
  const most = await queued();
  const servedMs = await timed(async () => {
    await holder.release();
    await Promise.all(workers.map(({ exited }) => exited));
  });
  return {
    queuedSeconds: queuedMs / 1_000,
    queued: most,
    nodeProcessorsWaiting: idleCpuMs / admins.length / SETTLED_MS,
    served: tokens.length,
    servedSeconds: servedMs / 1_000,
    differentTokens: new Set(tokens).size,
    failed: sum(lines.map(({ failed = 0 }) => failed)),
    heapBytesEach: sum(lines.map(({ heapBytesEach = 0 }) => heapBytesEach)) / PROCESSES,
    clientProcessorsWaiting: sum(lines.map(({ processors = 0 }) => processors)),
    longestScriptMs: (await world.longestUs()) / 1_000,
  };
}

/** Lets each client acquire and release a lock of its own, ten times. */
export async function clients(count: number): Promise<Figures> {
  await using world = await World.start(3);
  const { keyPrefix, admins } = world;
  const [heapBytes, nodeBytes] = [heapBytesNow(), await world.nodeBytes()];
  const all = Array.from({ length: count }, () => new Redlock({ nodes: world.nodes(), keyPrefix }));
  const options = { ttlMs: 30_000, waitMs: 60_000 };
  const connectMs = await timed(() =>
    Promise.all(all.map(async (lock, at) => (await lock.acquire(`own ${at}`, options)).release())),
  );
  const cycles = 10;
  const cycleMs = await timed(() =>
    each(count * cycles, AT_ONCE, async (at) => {
      await (await all[at % count]?.acquire(`own ${at % count}`, options))?.release();
    }),
  );
  const connections = await Promise.all(
    admins.map((admin) => figure(admin, 'clients', 'connected_clients')),
  );
  const figures = {
    connections: sum(connections),
    connectSeconds: connectMs / 1_000,
    cycleUs: (1_000 * cycleMs) / count / cycles,
    heapBytesEach: (heapBytesNow() - heapBytes) / count,
    nodeBytesEach: ((await world.nodeBytes()) - nodeBytes) / count,
  };
  await Promise.all(all.map((lock) => lock.close()));
  return figures;
}

async function timed(run: () => Promise<unknown>): Promise<number> {
  const startedMs = performance.now();
  await run();
  return performance.now() - startedMs;
}
