// An operator replaces five nodes one by one with five others, as docs/changing-nodes.md says.
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { type NextSet, Redlock, type RedlockConfig } from '@fenced/lock';
import { type LocalRedisService, startLocalRedis } from '@fenced/testbed';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { until } from '../lock/harness/redlock-nodes.js';
import { Random } from '../simulation/random.ts';

const BIN = fileURLToPath(new URL('../../packages/fenced/bin/fenced.js', import.meta.url));
const DIES = new URL('harness/dies-at.mjs', import.meta.url).href;
const NODES = 5;
/** Number of runs. A long form: FENCED_ROUNDS=100 FENCED_SEED=7 npx vitest run replace-nodes. */
const ROUNDS = Number(process.env.FENCED_ROUNDS ?? 1);
const seed = Number(process.env.FENCED_SEED ?? 20_261_125);
/** Longer than `LONGEST_WAIT_MS`: the test fails if a move waits until this lease has ended. */
const TTL_MS = 15_000;
/** Clients finish a move after at most 2 s. The rest is for a busy machine. */
const LONGEST_WAIT_MS = 5_000;
const CLIENTS = 3;
const RESOURCES = ['x', 'y'];

let service: LocalRedisService;
const connections: Redis[] = [];
beforeAll(async () => {
  service = await startLocalRedis(2 * NODES);
});
afterAll(async () => {
  for (const client of connections) client.disconnect();
  await service?.stop();
});

test.each(Array.from({ length: ROUNDS }, (_, at) => seed + at))(
  'five nodes are replaced one by one, while the operator is killed at random steps (FENCED_SEED=%i)',
  async (round) => {
    const random = new Random(round, 'operator');
    const prefix = `{${randomUUID()}}:`;
    const sets = Array.from({ length: NODES + 1 }, (_, moved) => ({
      keyPrefix: `${prefix}${moved}:`,
      servers: Array.from({ length: NODES }, (_, at) => (at < moved ? NODES + at : at)),
    }));
    const config = (): RedlockConfig => {
      const [first, ...following] = sets.map(({ keyPrefix, servers }): NextSet => {
        return { keyPrefix, nodes: servers.map((at) => ({ name: `n${at}`, client: connect(at) })) };
      });
      const next = following.reduceRight((after, set) => ({ ...set, next: after }));
      return { nodes: [], ...first, ...(next && { next }) };
    };
    const load = new Load(Array.from({ length: CLIENTS }, () => new Redlock(config())));
    const keeper = new Redlock(config());
    const kept = await keeper.acquire('kept', { ttlMs: TTL_MS, waitMs: 30_000 });
    let deaths = 0;
    for (const [at, next] of sets.slice(1).entries()) {
      const present = sets[at] ?? next;
      const more = load.count + 10;
      await until(() => load.count >= more);
      for (let code: number | null = null; code !== 0; ) {
        // A whole `apply` runs about 70 scripts, so some of them are killed and some are not.
        const diesAt = random.below(100);
        code = await apply(present, next, diesAt);
        if (code === null) deaths += 1;
        else expect([0, 2]).toContain(code);
      }
      await service.nodes[at]?.kill();
      await kept.extend(TTL_MS);
    }
    const more = load.count + 10;
    await until(() => load.count >= more);
    // A program that begins with the old configuration finds the last set.
    await using late = new Redlock(config());
    const waiting = late.acquire('kept', { ttlMs: TTL_MS, waitMs: 30_000 });
    await kept.extend(TTL_MS);
    expect(await kept.release()).toBe('released');
    await using lease = await waiting;
    expect(lease.token).toBeGreaterThan(kept.token);
    await load.end();
    await keeper.close();
    expect(load.longestMs).toBeLessThan(LONGEST_WAIT_MS);
    await Promise.all(service.nodes.slice(0, NODES).map((node) => node.start()));
    if (ROUNDS === 1) return;
    const longest = `longest wait ${load.longestMs.toFixed(0)} ms`;
    process.stdout.write(`seed ${round}: ${load.count} leases, ${deaths} deaths, ${longest}\n`);
  },
  60_000,
);

/** Clients that lock a few resources again and again. */
class Load {
  count = 0;
  longestMs = 0;
  readonly #locks: readonly Redlock[];
  readonly #work: Promise<unknown>;
  /** The highest token of each resource that an acquisition has returned. */
  readonly #tokens = new Map<string, bigint>();
  #isOver = false;

  constructor(locks: readonly Redlock[]) {
    this.#locks = locks;
    this.#work = Promise.all(
      locks.flatMap((lock) => RESOURCES.map((resource) => this.#take(lock, resource))),
    );
    this.#work.catch(() => {});
  }

  async end(): Promise<void> {
    this.#isOver = true;
    await this.#work;
    await Promise.all(this.#locks.map((lock) => lock.close()));
  }

  async #take(lock: Redlock, resource: string): Promise<void> {
    while (!this.#isOver) {
      const before = this.#tokens.get(resource) ?? 0n;
      const startedMs = performance.now();
      const lease = await lock.acquire(resource, { ttlMs: TTL_MS, waitMs: 30_000 });
      this.longestMs = Math.max(this.longestMs, performance.now() - startedMs);
      expect(lease.token).toBeGreaterThan(before);
      expect(lease.token).toBeGreaterThan(this.#tokens.get(resource) ?? 0n);
      this.#tokens.set(resource, lease.token);
      this.count += 1;
      await sleep(1);
      await lease.release();
    }
  }
}

function connect(at: number): Redis {
  const client = new Redis(service.nodes[at]?.port ?? 0, { retryStrategy: () => 50 });
  client.on('error', () => {});
  connections.push(client);
  return client;
}

interface SetPlan {
  readonly keyPrefix: string;
  readonly servers: readonly number[];
}

/** Runs `fenced nodes apply`, which is killed before its n-th script. @returns its exit code */
async function apply(present: SetPlan, next: SetPlan, diesAt: number): Promise<number | null> {
  const list = ({ servers }: SetPlan): string =>
    servers.map((at) => `n${at}=redis://127.0.0.1:${service.nodes[at]?.port}`).join(',');
  const prefixes = ['--key-prefix', present.keyPrefix, '--next-key-prefix', next.keyPrefix];
  const child = spawn(process.execPath, ['--import', DIES, BIN, 'nodes', 'apply', ...prefixes], {
    stdio: 'ignore',
    env: {
      ...process.env,
      FENCED_REDIS: list(present),
      FENCED_REDIS_NEXT: list(next),
      DIES_AT: String(diesAt),
    },
  });
  const [code] = await once(child, 'close');
  return code;
}
