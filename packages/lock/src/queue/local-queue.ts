import type { NodeAnswer } from '../core/answers.js';
import type { Successor } from '../redlock/held-lock.js';
import type { Runtime } from '../runtime/runtime.js';

/** The maximum number of hand-overs within this process before the nodes are asked again. */
const FOLLOWERS_MAX = 16;
/**
 * Two processes hardly ever have the same id. If they do, waiters may be served a little out of
 * order.
 */
const PROCESS_ID_LENGTH = 8;
/** Minimum gap between the enqueue times of two waiters, in milliseconds. */
const ENQUEUE_STEP_MS = 0.001;
/** Milliseconds for which the estimate of the nodes' clock by the fastest answer is kept. */
const CLOCK_MS = 1_000;

interface LocalWaiter extends Successor {
  /** Releases a lock that was handed over, but not yet taken. */
  releaseHandedOver(): Promise<unknown>;
}

/** In-process FIFO of waiters, and the clock for their enqueue times. */
export class LocalQueue<W extends LocalWaiter> {
  /** The beginning of the owner ids of waiters that may hand over a lock to each other. */
  readonly processId: string;
  readonly #runtime: Runtime;
  readonly #waiters = new Map<string, Set<W>>();
  /**
   * Estimated lead of the nodes' clock over our monotonic clock. It is a lower bound, because an
   * answer takes time to arrive.
   */
  #aheadMs = Number.NEGATIVE_INFINITY;
  #aheadNotedMs = Number.NEGATIVE_INFINITY;
  #lastEnqueuedMs = 0;

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
    this.processId = `${runtime.uniqueId().slice(0, PROCESS_ID_LENGTH)}-`;
  }

  /** The enqueue time of a waiter that comes now, by the clock of the nodes. */
  newEnqueuedMs(): number {
    // Forgets the last enqueue time if nobody waits. If a clock was ahead once, that time would put
    // all later waiters of this process behind those of other processes.
    if (this.#waiters.size === 0) this.#lastEnqueuedMs = 0;
    const nodesMs = this.#runtime.nowMs() + this.#aheadMs + this.#runtime.random();
    this.#lastEnqueuedMs = Math.max(nodesMs, this.#lastEnqueuedMs + ENQUEUE_STEP_MS);
    return this.#lastEnqueuedMs;
  }

  /** The owner id of a waiter for one resource. It begins with the process id. */
  newOwner(): string {
    return `${this.processId}${this.#runtime.uniqueId()}`;
  }

  /**
   * Estimates the nodes' clock as the median of the times in these answers. If their number is
   * even, our wall clock counts as one more.
   */
  noteClocks(answers: readonly NodeAnswer[]): void {
    const times = answers.flatMap(({ timeMs }) => (timeMs === undefined ? [] : [timeMs]));
    if (times.length === 0 && this.#aheadNotedMs > Number.NEGATIVE_INFINITY) return;
    if (times.length % 2 === 0) times.push(this.#runtime.wallClockMs());
    const median = times.toSorted((a, b) => a - b)[Math.floor((times.length - 1) / 2)] ?? 0;
    const nowMs = this.#runtime.nowMs();
    if (median - nowMs < this.#aheadMs && nowMs - this.#aheadNotedMs < CLOCK_MS) return;
    this.#aheadMs = median - nowMs;
    this.#aheadNotedMs = nowMs;
  }

  hasWaiters(resources: readonly string[]): boolean {
    return resources.some((resource) => this.#waiters.has(resource));
  }

  /** The other waiters for this resource that may get the lock by a hand-over, first come first. */
  followersOf(waiter: W, resource: string): readonly W[] {
    const others = [...(this.#waiters.get(resource) ?? [])].filter((one) => one !== waiter);
    return others.slice(0, FOLLOWERS_MAX);
  }

  async releaseHandedOver(): Promise<void> {
    const waiters = new Set([...this.#waiters.values()].flatMap((some) => [...some]));
    await Promise.all([...waiters].map((waiter) => waiter.releaseHandedOver()));
  }

  join(waiter: W, resources: readonly string[]): void {
    for (const resource of resources) {
      const waiters = this.#waiters.get(resource);
      if (waiters) waiters.add(waiter);
      else this.#waiters.set(resource, new Set([waiter]));
    }
  }

  leave(waiter: W, resources: readonly string[]): void {
    for (const resource of resources) {
      const waiters = this.#waiters.get(resource);
      waiters?.delete(waiter);
      if (waiters?.size === 0) this.#waiters.delete(resource);
    }
  }
}
