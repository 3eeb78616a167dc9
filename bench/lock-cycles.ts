import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import type { CyclesOrder, CyclesReport } from './lock-orders.ts';
import type { Acquire } from './lock-subject.ts';

/** Acquires and releases until the time is over. */
export async function cycles(
  acquire: Acquire,
  clients: readonly Redis[],
  order: CyclesOrder,
): Promise<CyclesReport> {
  const { readsHeap = false } = order;
  const heapBytes = readsHeap ? usedHeapBytes() : 0;
  const run = new Run(acquire, order);
  const workers = Array.from({ length: order.workers }, (_, worker) => run.work(worker));
  const patience = new AbortController();
  const { signal } = patience;
  await Promise.race([
    Promise.all(workers),
    sleep(order.durationMs + order.patienceMs, null, { signal }).catch(() => {}),
  ]);
  patience.abort();
  const report = run.report();
  const queuedCommands = Math.max(...clients.map(queued));
  const heapGrowthBytes = readsHeap ? usedHeapBytes() - heapBytes : 0;
  return { ...report, queuedCommands, heapGrowthBytes };
}

class Run {
  readonly #acquire: Acquire;
  readonly #order: CyclesOrder;
  readonly #startedMs = performance.now();
  readonly #durationsMs: number[] = [];
  readonly #served: number[];
  /** When the one began that is being measured, of each worker. */
  readonly #begunMs = new Map<number, number>();
  #failures = 0;
  #isOver = false;

  constructor(acquire: Acquire, order: CyclesOrder) {
    this.#acquire = acquire;
    this.#order = order;
    this.#served = Array.from({ length: order.workers }, () => 0);
  }

  /** At least once, however long this process had to wait for its turn on the machine. */
  async work(worker: number): Promise<void> {
    const { durationMs, resource } = this.#order;
    // Others run on the same nodes.
    const own = resource ?? `bench/${process.pid}/${worker}`;
    do {
      try {
        await this.#once(worker, own);
      } catch {
        this.#failures += 1;
        this.#begunMs.delete(worker);
        // One that fails at once is not to keep the process from everything else.
        await sleep(1);
      }
    } while (!this.#isOver && performance.now() - this.#startedMs < durationMs);
  }

  async #once(worker: number, resource: string): Promise<void> {
    const { holdMs } = this.#order;
    this.#begunMs.set(worker, performance.now());
    const release = await this.#acquire(resource);
    if (holdMs !== null) {
      this.#end(worker);
      await sleep(holdMs);
    }
    await release();
    if (holdMs === null) this.#end(worker);
  }

  #end(worker: number): void {
    const begunMs = this.#begunMs.get(worker);
    if (begunMs === undefined || this.#isOver) return;
    this.#begunMs.delete(worker);
    this.#durationsMs.push(performance.now() - begunMs);
    this.#served[worker] = (this.#served[worker] ?? 0) + 1;
  }

  report(): Omit<CyclesReport, 'queuedCommands' | 'heapGrowthBytes'> {
    this.#isOver = true;
    const nowMs = performance.now();
    const unfinishedMs = [...this.#begunMs.values()].map((begunMs) => nowMs - begunMs);
    return {
      durationsMs: [...this.#durationsMs, ...unfinishedMs],
      elapsedMs: nowMs - this.#startedMs,
      served: this.#served,
      failures: this.#failures,
      unfinished: unfinishedMs.length,
    };
  }
}

/** What the client has not been able to send, or has sent and heard nothing of. The first has no public name. */
function queued(client: Redis): number {
  const offlineQueue: { readonly length: number } = Reflect.get(client, 'offlineQueue');
  return client.commandQueue.length + offlineQueue.length + client.autoPipelineQueueSize;
}

/** 0 where the process was started without `--expose-gc`. */
export function usedHeapBytes(): number {
  if (globalThis.gc === undefined) return 0;
  globalThis.gc();
  return process.memoryUsage().heapUsed;
}
