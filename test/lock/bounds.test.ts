import { setImmediate } from 'node:timers/promises';
import {
  AcquireTimeoutError,
  type IoredisClient,
  NoQuorumError,
  Redlock,
  type Runtime,
} from '@fenced/lock';
import { EtcdLock, type Fetch } from '@fenced/lock/etcd';
import { PostgresLock } from '@fenced/lock/postgres';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { LockWorld } from './harness/world.js';

/** After `waitMs`, a call may wait so long for the answers to its last acquisition. */
const LAST_ANSWERS_MS = 250;

type Lock = Pick<Redlock, 'acquire' | 'tryAcquire'>;

/** A clock that stands still until it is put forward, millisecond by millisecond. */
class Clock implements Runtime {
  #nowMs = 0;
  #timers: { readonly dueMs: number; readonly callback: () => void }[] = [];
  #ids = 0;

  nowMs = (): number => this.#nowMs;
  wallClockMs = (): number => this.#nowMs;
  random = (): number => 0.5;
  uniqueId = (): string => {
    this.#ids += 1;
    return `${this.#ids}`.padStart(36, '0');
  };
  soon = (callback: () => void): void => queueMicrotask(callback);
  after = (delayMs: number, callback: () => void): (() => void) => {
    const timer = { dueMs: this.#nowMs + delayMs, callback };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer);
    };
  };

  /** Moves the clock until the call settles. Returns the time. */
  async timeOf(call: Promise<unknown>): Promise<number> {
    let isSettled = false;
    const settle = (): void => {
      isSettled = true;
    };
    void call.then(settle, settle);
    for (;;) {
      await setImmediate();
      if (isSettled) return this.#nowMs;
      if (this.#nowMs > 10_000) throw new Error('not settled after 10 s');
      this.#nowMs += 1;
      const due = this.#timers.filter(({ dueMs }) => dueMs <= this.#nowMs);
      this.#timers = this.#timers.filter(({ dueMs }) => dueMs > this.#nowMs);
      for (const { callback } of due) callback();
    }
  }
}

const never = (): Promise<never> => new Promise(() => undefined);
const says = (reply: string) => async (): Promise<unknown> => reply;
const hung: { status: string } & Pick<IoredisClient, 'evalsha' | 'eval'> = {
  status: 'ready',
  evalsha: never,
  eval: never,
};
const retrying = { ...hung, status: 'reconnecting', on: () => undefined };
const waiting = { ...hung, evalsha: says('not-voting'), eval: says('not-voting') };

const untilAborted: Fetch = (_, { signal }) =>
  new Promise((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason));
  });

function redlock(...clients: (typeof hung)[]): (clock: Clock) => Lock {
  const nodes = clients.map((client, at) => ({ name: `node-${at}`, client: { ...client } }));
  return (clock) => new Redlock({ nodes }, clock);
}

describe.each<[string, (clock: Clock) => Lock]>([
  ['nodes that hang', redlock(hung, hung, hung)],
  ['nodes whose clients go on trying to connect', redlock(retrying, retrying, retrying)],
  ['a node that is to be readmitted, and two that hang', redlock(waiting, hung, hung)],
  ['nodes that all are to be readmitted, and cannot be', redlock(waiting, waiting, waiting)],
  [
    'a database that hangs',
    (clock) => new PostgresLock({ pool: { connect: () => undefined, query: never } }, clock),
  ],
  [
    'an etcd whose members hang',
    (clock) =>
      new EtcdLock({ endpoints: ['http://a:1', 'http://b:1'], fetch: untilAborted }, clock),
  ],
])('with %s', (nodes, open) => {
  test.each([1, 50, 300, 3_000])(
    'an acquire settles when its wait of %i ms is over',
    async (waitMs) => {
      for (const ttlMs of [100, 1_000, 10_000]) {
        const clock = new Clock();
        const settledMs = await clock.timeOf(open(clock).acquire('x', { ttlMs, waitMs }));
        expect(settledMs).toBeGreaterThanOrEqual(Math.min(waitMs, ttlMs / 2));
        expect(settledMs).toBeLessThanOrEqual(waitMs + LAST_ANSWERS_MS + 1);
      }
    },
  );

  test('without a wait, an acquisition settles after 2.25 s, or after half of its TTL if no node is to be readmitted', async () => {
    for (const ttlMs of [100, 1_000, 10_000]) {
      for (const attempt of ['tryAcquire', 'acquire'] as const) {
        const clock = new Clock();
        const settledMs = await clock.timeOf(open(clock)[attempt]('x', { ttlMs }));
        expect(settledMs).toBeLessThanOrEqual(2_000 + LAST_ANSWERS_MS + 1);
        if (!nodes.includes('readmitted')) expect(settledMs).toBeLessThanOrEqual(ttlMs / 2 + 1);
      }
    }
  });
});

describe('on real nodes', () => {
  /** Slack for a busy machine. It is less than the 2 s after which a hanging node is given up. */
  const SLACK_MS = 1_000;
  let world: LockWorld;
  beforeAll(async () => {
    world = await LockWorld.start(3);
  });
  afterAll(() => world?.[Symbol.asyncDispose]());
  beforeEach(() => world.renew());
  afterEach(async () => {
    for (const server of world.servers) await server.wake();
  });

  async function tookMs(call: () => Promise<unknown>): Promise<number> {
    const startedMs = performance.now();
    await call();
    return performance.now() - startedMs;
  }

  test('a wait for a lock that is held ends in time', async () => {
    const [one, two] = [await world.connected(), await world.connected()];
    await using _ = await one.lock.acquire('x', { ttlMs: 30_000 });
    for (const waitMs of [300, 1_500]) {
      const ms = await tookMs(() =>
        expect(two.lock.acquire('x', { ttlMs: 10_000, waitMs })).rejects.toThrow(
          AcquireTimeoutError,
        ),
      );
      expect(ms).toBeGreaterThanOrEqual(waitMs - 1);
      expect(ms).toBeLessThan(waitMs + LAST_ANSWERS_MS + SLACK_MS);
    }
  });

  test.each([
    ['refuses connections', 'refuse'],
    ['hangs', 'pause'],
  ] as const)(
    'if a majority %s, all calls end in time and leave nothing behind',
    async (_, fault) => {
      const side = await world.connected();
      const [a, b] = [0, 1];
      for (const at of [a, b]) {
        if (fault === 'refuse') side.doors[at]?.shut();
        else await world.servers[at]?.pause();
      }
      const acquire = (): Promise<unknown> =>
        expect(side.lock.acquire('x', { ttlMs: 10_000, waitMs: 300 })).rejects.toThrow(
          NoQuorumError,
        );
      expect(await tookMs(acquire)).toBeLessThan(300 + LAST_ANSWERS_MS + SLACK_MS);
      const attempt = (): Promise<unknown> => side.lock.tryAcquire('x', { ttlMs: 600 });
      expect(await tookMs(attempt)).toBeLessThan(300 + SLACK_MS);
      side.heal();
      for (const server of world.servers) await server.wake();
      await world.untilClean();
      const other = await world.connected();
      await using _lease = await other.lock.acquire('x', { ttlMs: 10_000, waitMs: 5_000 });
    },
  );
});
