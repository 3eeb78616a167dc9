import { backoffMs } from '../core/backoff.js';
import type { AcquireFailure } from '../core/failure.js';
import type { AcquireRequest, AcquisitionResult, Waiter } from '../lease/transport.js';
import { type Runtime, sleep } from '../runtime/runtime.js';
import type { Keys, Position } from './keys.js';
import type { WakeUps } from './wake-ups.js';

/** The seconds for which the position of a crashed waiter delays the queue. */
const WAITER_TTL_SECONDS = 3;
/** The interval at which a waiter keeps its keys alive, and looks whether they are the first. */
const LOOK_MS = 1_000;

/** The parts of the lock service that a waiter uses. */
export interface WaiterContext {
  readonly keys: Keys;
  readonly wakeUps: WakeUps;
  readonly runtime: Runtime;
  /** Runs one acquisition until it ends, its time is over, or the caller aborts. */
  attempt(
    request: AcquireRequest,
    acquireOnce: (limitMs: () => number) => Promise<AcquisitionResult>,
  ): Promise<AcquisitionResult>;
  enqueue(request: AcquireRequest, seconds: number, limitMs: () => number): Promise<Position>;
  /** Takes the lock by keys that are the first in their queues. Null if the keys have changed. */
  take(
    position: Position,
    request: AcquireRequest,
    limitMs: () => number,
  ): Promise<AcquisitionResult | null>;
  leave(position: Position): void;
  held(): AcquireFailure;
}

/** A caller that waits, first come first served, for one resource or for all of a set. */
export class QueuedWaiter implements Waiter {
  readonly #context: WaiterContext;
  readonly #request: AcquireRequest;
  #position: Position | null = null;
  /** The key before the waiter's own in one of the queues, according to the last `#look`. */
  #predecessor: string | null = null;
  /** The keys that were deleted while `#look` waited for its reply. */
  readonly #deleted = new Set<string>();
  #isLooking = false;
  #isNotified = false;
  #woken = Promise.withResolvers<void>();
  /** The next time to keep the position alive. */
  #keepMs = 0;
  #isDisposed = false;

  constructor(context: WaiterContext, request: AcquireRequest) {
    this.#context = context;
    this.#request = request;
    context.wakeUps.subscribe(this.#onDeleted);
  }

  acquire(): Promise<AcquisitionResult> {
    this.#woken = Promise.withResolvers();
    return this.#context.attempt(this.#request, (limitMs) => this.#acquire(limitMs));
  }

  async pause(attempts: number, { reason }: AcquireFailure, leftMs: number): Promise<void> {
    // The first acquisition did not enqueue. The second does, so it follows at once.
    if (attempts === 1 && reason === 'held') return;
    const { runtime } = this.#context;
    const isBehind = reason === 'held' && this.#predecessor !== null;
    const delayMs = isBehind ? LOOK_MS : backoffMs(attempts, 0, runtime.random());
    await sleep(runtime, Math.min(delayMs, leftMs), this.#request.signal, this.#woken.promise);
  }

  [Symbol.dispose](): void {
    this.#isDisposed = true;
    this.#context.wakeUps.unsubscribe(this.#onDeleted);
    if (this.#position) this.#context.leave(this.#position);
  }

  async #acquire(limitMs: () => number): Promise<AcquisitionResult> {
    const context = this.#context;
    const position = await this.#keep(limitMs);
    if ((await this.#look(position, limitMs)) !== null) return context.held();
    const result = await context.take(position, this.#request, limitMs);
    // The keys now belong to the lease, or they were changed: in both cases, they are no position.
    this.#position = null;
    return result ?? context.held();
  }

  /** The position, kept alive; a new one if it was lost. */
  async #keep(limitMs: () => number): Promise<Position> {
    const { keys, runtime } = this.#context;
    const nowMs = runtime.nowMs();
    if (this.#position) {
      if (nowMs < this.#keepMs) return this.#position;
      this.#keepMs = nowMs + LOOK_MS;
      if (await keys.keepAlive(this.#position.lease, limitMs())) return this.#position;
      // The lease is over. A request of unknown outcome may have put the keys under another one.
      this.#context.leave(this.#position);
    }
    this.#keepMs = nowMs + LOOK_MS;
    const position = await this.#context.enqueue(this.#request, WAITER_TTL_SECONDS, limitMs);
    this.#position = position;
    this.#predecessor = null;
    if (this.#isDisposed) this.#context.leave(position);
    return position;
  }

  async #look(position: Position, limitMs: () => number): Promise<string | null> {
    const { keys, wakeUps } = this.#context;
    this.#deleted.clear();
    this.#isLooking = true;
    const before = this.#predecessor;
    const isNotified = this.#isNotified;
    this.#isNotified = false;
    try {
      this.#predecessor = await keys.predecessor(position, limitMs());
    } finally {
      this.#isLooking = false;
    }
    // The predecessor is gone, and the watch has not reported that: it may have failed silently.
    if (before !== null && before !== this.#predecessor && !isNotified) wakeUps.restart();
    if (this.#predecessor !== null && this.#deleted.has(this.#predecessor)) this.#woken.resolve();
    return this.#predecessor;
  }

  readonly #onDeleted = (key: string | null): void => {
    if (key !== null && key !== this.#predecessor) {
      if (this.#isLooking) this.#deleted.add(key);
      return;
    }
    this.#isNotified = true;
    this.#woken.resolve();
  };
}
