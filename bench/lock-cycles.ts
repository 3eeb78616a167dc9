import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import type { Acquire } from './lock-subject.ts';
import type { CyclesReport, CyclesTask } from './lock-tasks.ts';

/** Acquires and releases locks until the time is over. */
export async function cycles(
  acquire: Acquire,
  clients: readonly Redis[],
  task: CyclesTask,
): Promise<CyclesReport> {
  const { readsHeap = false } = task;
  const heapBytes = readsHeap ? usedHeapBytes() : 0;
  const run = new Run(acquire, task);
  const workers = Array.from({ length: task.workers }, (_, worker) => run.work(worker));
  const overtime = new AbortController();
  const { signal } = overtime;
  await Promise.race([
    Promise.all(workers),
    sleep(task.durationMs + task.overtimeMs, null, { signal }).catch(() => {}),
  ]);
  overtime.abort();
  const report = run.report();
  const queuedCommands = Math.max(...clients.map(queued));
  const heapGrowthBytes = readsHeap ? usedHeapBytes() - heapBytes : 0;
  return { ...report, queuedCommands, heapGrowthBytes };
}

class Run {
  readonly #acquire: Acquire;
  readonly #task: CyclesTask;
  readonly #startedMs = performance.now();
  readonly #durationsMs: number[] = [];
  readonly #served: number[];
  /** For each worker, the time at which its present cycle began. */
  readonly #beginsMs = new Map<number, number>();
  #failures = 0;
  #isOver = false;

  constructor(acquire: Acquire, task: CyclesTask) {
    this.#acquire = acquire;
    this.#task = task;
    this.#served = Array.from({ length: task.workers }, () => 0);
  }

  /** Runs at least one cycle, even if this process had to wait for a processor. */
  async work(worker: number): Promise<void> {
    const { durationMs, resource } = this.#task;
    // The process id keeps the name apart from those of other processes on the same nodes.
    const own = resource ?? `bench/${process.pid}/${worker}`;
    do {
      try {
        await this.#once(worker, own);
      } catch {
        this.#failures += 1;
        this.#beginsMs.delete(worker);
        // A lock that fails at once must not block the event loop.
        await sleep(1);
      }
    } while (!this.#isOver && performance.now() - this.#startedMs < durationMs);
  }

  async #once(worker: number, resource: string): Promise<void> {
    const { holdMs } = this.#task;
    this.#beginsMs.set(worker, performance.now());
    const release = await this.#acquire(resource);
    if (holdMs !== null) {
      this.#end(worker);
      await sleep(holdMs);
    }
    await release();
    if (holdMs === null) this.#end(worker);
  }

  #end(worker: number): void {
    const beginMs = this.#beginsMs.get(worker);
    if (beginMs === undefined || this.#isOver) return;
    this.#beginsMs.delete(worker);
    this.#durationsMs.push(performance.now() - beginMs);
    this.#served[worker] = (this.#served[worker] ?? 0) + 1;
  }

  report(): Omit<CyclesReport, 'queuedCommands' | 'heapGrowthBytes'> {
    this.#isOver = true;
    const nowMs = performance.now();
    const unfinishedMs = [...this.#beginsMs.values()].map((beginMs) => nowMs - beginMs);
    return {
      durationsMs: [...this.#durationsMs, ...unfinishedMs],
      elapsedMs: nowMs - this.#startedMs,
      served: this.#served,
      failures: this.#failures,
      unfinished: unfinishedMs.length,
    };
  }
}

/**
 * Counts the client's commands without a reply, sent or not. ioredis has no public property for its
 * offline queue.
 */
function queued(client: Redis): number {
  const offlineQueue: { readonly length: number } = Reflect.get(client, 'offlineQueue');
  return client.commandQueue.length + offlineQueue.length + client.autoPipelineQueueSize;
}

/** Returns 0 if the process was started without `--expose-gc`. */
export function usedHeapBytes(): number {
  if (globalThis.gc === undefined) return 0;
  globalThis.gc();
  return process.memoryUsage().heapUsed;
}
