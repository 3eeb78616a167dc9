import { createHook } from 'node:async_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { usedHeapBytes } from './lock-cycles.ts';
import type { HoldOrder, HoldReport } from './lock-orders.ts';
import type { Acquire, Release } from './lock-subjects.ts';

const AT_ONCE = 64;
const TIMED = 50;
const SAMPLES = 5;
const SAMPLE_EVERY_MS = 60;

/** Holds many locks at once, gives them back, then lets many wait for one. */
export async function hold(acquire: Acquire, { leases, waiters }: HoldOrder): Promise<HoldReport> {
  await all(TIMED, async (index) => (await acquire(`${process.pid}/warm/${index}`))());
  const timersPerLease = await countTimers(acquire);
  const durationsMs = new Array<number>(leases).fill(0);
  const releases = new Array<Release>(leases);
  const emptyBytes = usedHeapBytes();
  const startedMs = performance.now();
  await all(leases, async (index) => {
    const begunMs = performance.now();
    releases[index] = await acquire(`${process.pid}/held/${index}`);
    durationsMs[index] = performance.now() - begunMs;
  });
  const elapsedMs = performance.now() - startedMs;
  const heldBytes = usedHeapBytes();
  const sockets = openSockets();
  await all(leases, async (index) => releases[index]?.());
  releases.length = 0;
  const releasedBytes = usedHeapBytes();
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

/** Lets `waiters` wait for a lock that is not given back. They wait for as long as the process lives. */
async function wait(acquire: Acquire, waiters: number) {
  await acquire(`${process.pid}/awaited`);
  const emptyBytes = usedHeapBytes();
  const timers = new Timers();
  const waiting = Array.from({ length: waiters }, () =>
    acquire(`${process.pid}/awaited`).catch(() => {}),
  );
  const samples: number[] = [];
  const counts: number[] = [];
  for (let sample = 0; sample < SAMPLES; sample += 1) {
    await sleep(SAMPLE_EVERY_MS);
    samples.push((usedHeapBytes() - emptyBytes) / waiting.length);
    counts.push(timers.alive / waiting.length);
  }
  timers.stop();
  return {
    bytesPerWaiter: middle(samples),
    timersPerWaiter: middle(counts),
    socketsWaiting: openSockets(),
  };
}

async function countTimers(acquire: Acquire): Promise<number> {
  const timers = new Timers();
  const releases = await Promise.all(
    Array.from({ length: TIMED }, (_, index) => acquire(`${process.pid}/timed/${index}`)),
  );
  // Of those that were cleared the hook hears later.
  await sleep(SAMPLE_EVERY_MS);
  timers.stop();
  await Promise.all(releases.map((release) => release()));
  return timers.alive / TIMED;
}

/** The timers that were started since and neither fired nor were cleared; also those that would not keep a process alive. */
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

/** As many at once as a busy process might. */
async function all(count: number, run: (index: number) => Promise<unknown>): Promise<void> {
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < count) {
      const index = next;
      next += 1;
      await run(index);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

function middle(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}
