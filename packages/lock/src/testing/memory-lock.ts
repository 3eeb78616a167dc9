import '../node-version.js';
import { checkFields, resolveOptions } from '../core/options.js';
import { validityMs } from '../core/validity.js';
import { LockService } from '../lease/lock-service.js';
import { OnlyServer } from '../lease/one-server.js';
import type {
  AcquireRequest,
  AcquisitionResult,
  LockTransport,
  ReleaseOutcome,
  Waiter,
} from '../lease/transport.js';
import { checkRuntime, type Runtime, sleep, systemRuntime } from '../runtime/runtime.js';

export { ManualClock } from './manual-clock.js';

interface Held {
  readonly owner: string;
  readonly untilMs: number;
}

interface Queued {
  readonly resources: readonly string[];
  wake(): void;
}

/** The locks of several `MemoryLock`s, as if each belonged to another process. */
export class LockMemory {
  readonly runtime: Runtime;
  readonly held: Map<string, Held> = new Map();
  /** The waiters, first come first served. */
  readonly queue: Set<Queued> = new Set();
  lastToken: bigint;

  /**
   * @param clock such as a `ManualClock`; without it, leases end by the process's own clock
   * @param firstToken 1 or more; each acquisition of any resource has the next one
   */
  constructor(clock: Runtime = systemRuntime, firstToken = 1n) {
    checkRuntime(clock);
    resolveOptions({ firstToken });
    this.runtime = clock;
    this.lastToken = firstToken - 1n;
  }
}

export interface MemoryLockConfig {
  /** The locks that several `MemoryLock`s of a test share. @default locks of its own */
  readonly memory?: LockMemory;
  /** Longest lease in milliseconds, 10 to 86,400,000 (a day). @default 60_000 */
  readonly maxTtlMs?: number;
}

/**
 * Leases with fencing tokens in the memory of this process, by the methods of `Redlock`: for tests
 * of programs that use a lock. It passes the contract suite of the real locks.
 */
export class MemoryLock extends LockService {
  /** @throws {LockArgumentError} an option is out of range */
  constructor(config: MemoryLockConfig = {}) {
    checkFields('the first argument of MemoryLock', config, ['memory', 'maxTtlMs']);
    const { memory = new LockMemory(), ...options } = config;
    const { maxTtlMs } = resolveOptions(options);
    super('MemoryLock', maxTtlMs, new MemoryTransport(memory), memory.runtime);
  }
}

class MemoryTransport implements LockTransport {
  readonly #memory: LockMemory;
  readonly #server: OnlyServer;

  constructor(memory: LockMemory) {
    this.#memory = memory;
    this.#server = new OnlyServer('memory', () => ({ reason: 'no-quorum' }), memory.runtime);
  }

  async acquire(request: AcquireRequest): Promise<AcquisitionResult> {
    return this.#acquire(request, null);
  }

  /**
   * Queues the caller, whose first acquisition was refused before. So the first pause is no pause:
   * the lock may have become free since.
   */
  wait(request: AcquireRequest): Waiter {
    const { resources, signal } = request;
    const { queue, runtime } = this.#memory;
    let woken = Promise.withResolvers<void>();
    const queued: Queued = { resources, wake: () => woken.resolve() };
    queue.add(queued);
    return {
      acquire: async () => this.#acquire(request, queued),
      pause: async (attempts, { retryAfterMs }, leftMs) => {
        if (attempts > 1) {
          const delayMs = retryAfterMs > 0 ? Math.min(retryAfterMs, leftMs) : leftMs;
          await sleep(runtime, delayMs, signal, woken.promise);
        }
        woken = Promise.withResolvers();
      },
      [Symbol.dispose]: () => {
        queue.delete(queued);
        this.#wake(resources);
      },
    };
  }

  extend(resources: readonly string[], owner: string, ttlMs: number): Promise<number> {
    return this.#server.extended(this, { resources, owner }, async () =>
      this.#isHeld(resources, owner) ? this.#hold(resources, owner, ttlMs) : null,
    );
  }

  async release(resources: readonly string[], owner: string): Promise<ReleaseOutcome> {
    const isHeld = this.#isHeld(resources, owner);
    for (const name of resources) {
      if (this.#memory.held.get(name)?.owner === owner) this.#memory.held.delete(name);
    }
    this.#wake(resources);
    return isHeld ? 'released' : 'expired';
  }

  async close(): Promise<void> {}

  /** @param queued null for a caller that does not wait, or not yet */
  #acquire({ resources, ttlMs }: AcquireRequest, queued: Queued | null): AcquisitionResult {
    const { held, queue, runtime } = this.#memory;
    const nowMs = runtime.nowMs();
    const ends = resources.map((name) => (held.get(name)?.untilMs ?? 0) - nowMs);
    const remainingMs = Math.max(0, ...ends);
    // Of waiters with a common resource, the earliest is served.
    const first = [...queue].find((other) => overlap(other.resources, resources)) ?? queued;
    if (remainingMs > 0 || first !== queued) return this.#server.held(remainingMs);
    const owner = runtime.uniqueId();
    this.#memory.lastToken += 1n;
    const token = this.#memory.lastToken;
    const deadlineMs = this.#hold(resources, owner, ttlMs);
    return this.#server.granted(this, { resources, token, deadlineMs, owner });
  }

  #isHeld(resources: readonly string[], owner: string): boolean {
    const nowMs = this.#memory.runtime.nowMs();
    return resources.every((name) => {
      const one = this.#memory.held.get(name);
      return one?.owner === owner && one.untilMs > nowMs;
    });
  }

  /** Holds the resources for at least `ttlMs`. Returns the deadline that the holder may rely on. */
  #hold(resources: readonly string[], owner: string, ttlMs: number): number {
    const { held, runtime } = this.#memory;
    const nowMs = runtime.nowMs();
    const untilMs = nowMs + ttlMs;
    for (const name of resources) {
      const before = held.get(name);
      const isLater = before?.owner === owner && before.untilMs > untilMs;
      if (!isLater) held.set(name, { owner, untilMs });
    }
    return nowMs + validityMs(ttlMs, 0);
  }

  #wake(resources: readonly string[]): void {
    for (const one of this.#memory.queue) if (overlap(one.resources, resources)) one.wake();
  }
}

function overlap(some: readonly string[], others: readonly string[]): boolean {
  return some.some((name) => others.includes(name));
}
