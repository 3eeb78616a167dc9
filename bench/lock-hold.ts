import { createHook } from 'node:async_hooks';
import { setImmediate as immediate, setTimeout as sleep } from 'node:timers/promises';
import { usedHeapBytes } from './lock-cycles.ts';
import type { Acquire, Release } from './lock-subject.ts';
import type { HoldReport, HoldTask } from './lock-tasks.ts';

const AT_ONCE = 64;
const TIMED = 50;
const SAMPLES = 5;
const SAMPLE_EVERY_MS = 60;
const SETTLED_MS = 300;

/** Holds many locks at once, releases them, then lets many waiters wait for one. */
export async function hold(acquire: Acquire, { leases, waiters }: HoldTask): Promise<HoldReport> {
  await all(TIMED, async (index) => {
    const release = await acquire(`${process.pid}/warm/${index}`);
    await release();
  });
  const timersPerLease = await timersOfLease(acquire);
  const durationsMs = new Array<number>(leases).fill(0);
  const emptyBytes = await restingHeapBytes();
  const startedMs = performance.now();
  const releases = await all(leases, async (index) => {
    const beginMs = performance.now();
    const release = await acquire(`${process.pid}/held/${index}`);
    durationsMs[index] = performance.now() - beginMs;
    return release;
  });
  const elapsedMs = performance.now() - startedMs;
  const heldBytes = await restingHeapBytes();
  const sockets = openSockets();
  await all(leases, async (index) => releases[index]?.());
  releases.length = 0;
  const releasedBytes = await restingHeapBytes();
  return {
    durationsMs,
    elapsedMs,
    bytesPerLease: (heldBytes - emptyBytes) / leases,
    bytesPerLeaseReleased: (releasedBytes - emptyBytes) / leases,
    timersPerLease,
    sockets,
    ...(await wait(acquire, waiters)),
  };
}

/** Lets `waiters` wait for a lock that is never released. They wait until the process ends. */
async function wait(acquire: Acquire, waiters: number) {
  const resource = `${process.pid}/awaited`;
  await acquire(resource);
  const start = (count: number): Promise<unknown>[] =>
    Array.from({ length: count }, () => acquire(resource).catch(() => {}));
  const timersPerWaiter = await timersOf(() => start(TIMED));
  const emptyBytes = usedHeapBytes();
  const waiting = start(waiters);
  const samples: number[] = [];
  for (let sample = 0; sample < SAMPLES; sample += 1) {
    await sleep(SAMPLE_EVERY_MS);
    samples.push((usedHeapBytes() - emptyBytes) / waiting.length);
  }
  return { bytesPerWaiter: middle(samples), timersPerWaiter, socketsWaiting: openSockets() };
}

/** Returns the heap's size after all late replies. */
async function restingHeapBytes(): Promise<number> {
  await sleep(SETTLED_MS);
  return usedHeapBytes();
}

async function timersOfLease(acquire: Acquire): Promise<number> {
  let releases: readonly Release[] = [];
  const timers = await timersOf(async () => {
    releases = await all(TIMED, (index) => acquire(`${process.pid}/timed/${index}`));
  });
  await Promise.all(releases.map((release) => release()));
  return timers;
}

/**
 * Returns the timers for each of the `TIMED` operations of `start`. Runs apart from measurements of
 * memory, because hooks take memory.
 */
async function timersOf(start: () => unknown): Promise<number> {
  const timers = new Timers();
  await start();
  // Lets the operations settle. Hooks report the end of a timer late, also of the one of `sleep`.
  await sleep(SETTLED_MS);
  await immediate();
  timers.stop();
  return timers.alive / TIMED;
}

/** Counts timers that were started and neither fired nor were cleared, unreferenced ones too. */
class Timers {
  readonly #ids = new Set<number>();
  readonly #hook = createHook({
    init: (id, type) => {
      if (type === 'Timeout') this.#ids.add(id);
    },
    destroy: (id) => {
      this.#ids.delete(id);
    },
  });

  constructor() {
    this.#hook.enable();
  }

  get alive(): number {
    return this.#ids.size;
  }

  stop(): void {
    this.#hook.disable();
  }
}

function openSockets(): number {
  return process.getActiveResourcesInfo().filter((type) => type === 'TCPSocketWrap').length;
}

/** Runs `AT_ONCE` operations at once, as a busy process does. Returns the results in order. */
async function all<Result>(
  count: number,
  run: (index: number) => Promise<Result>,
): Promise<Result[]> {
  const results = new Array<Result>(count);
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < count) {
      const index = next;
      next += 1;
      results[index] = await run(index);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return results;
}

function middle(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}
