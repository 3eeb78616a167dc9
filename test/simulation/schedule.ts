import { afterPromises } from './platform.ts';

interface Entry {
  readonly atMs: number;
  readonly order: number;
  readonly run: () => void | Promise<void>;
}

/** Queue of events by virtual time, then in the order in which they were planned. A binary heap. */
export class Schedule {
  readonly #heap: Entry[] = [];
  #nowMs = 0;
  #order = 0;

  get nowMs(): number {
    return this.#nowMs;
  }

  at(atMs: number, run: () => void | Promise<void>): void {
    const entry = { atMs: Math.max(atMs, this.#nowMs), order: this.#order, run };
    this.#order += 1;
    const heap = this.#heap;
    let place = heap.length;
    while (place > 0) {
      const parent = heap[(place - 1) >> 1];
      if (!parent || isBefore(parent, entry)) break;
      heap[place] = parent;
      place = (place - 1) >> 1;
    }
    heap[place] = entry;
  }

  /** Runs the next event. Returns false if there is none. */
  async step(): Promise<boolean> {
    const next = this.#take();
    if (!next) return false;
    this.#nowMs = next.atMs;
    const going = next.run();
    // Saves time: many events involve no client, and an `await` costs a turn of promises.
    if (going !== undefined) await going;
    return true;
  }

  #take(): Entry | undefined {
    const heap = this.#heap;
    const first = heap[0];
    const last = heap.pop();
    if (!last || heap.length === 0) return first;
    let place = 0;
    for (;;) {
      const left = heap[2 * place + 1];
      const right = heap[2 * place + 2];
      const isRight = left !== undefined && right !== undefined && isBefore(right, left);
      const child = isRight ? right : left;
      if (!child || isBefore(last, child)) break;
      heap[place] = child;
      place = 2 * place + (isRight ? 2 : 1);
    }
    heap[place] = last;
    return first;
  }
}

function isBefore(a: Entry, b: Entry): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);
}

/**
 * Resolves after all reactions of promises that can run now. It uses a tick: Node runs a tick that
 * a reaction requests only after the last reaction. No real event happens before.
 */
export function settled(): Promise<void> {
  return new Promise(afterPromises);
}
