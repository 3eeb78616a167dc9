import { NoQuorumError } from '../core/errors.js';
import type { AcquireFailure } from '../core/failure.js';
import type {
  AcquireRequest,
  AcquisitionResult,
  LockHandle,
  LockTransport,
  Waiter,
} from '../lease/transport.js';
import type { Runtime } from '../runtime/runtime.js';
import { SetHandle } from './set-handle.js';

/** A lock that may become a part of a set. */
export interface RaisableHandle extends LockHandle {
  /**
   * Raises the token on a majority, because another lock of the set has a higher one. Never
   * rejects.
   *
   * @returns the number that a majority has stored, at least `token`; or why there is none
   */
  raise(token: bigint, signal: AbortSignal): Promise<bigint | AcquireFailure>;
}

/** The servers of one virtual service, or of a lock service without them. */
export interface ServiceTransport extends LockTransport {
  acquire(request: AcquireRequest): Promise<AcquisitionResult<RaisableHandle>>;
  wait(request: AcquireRequest): Waiter<RaisableHandle>;
  waitBehindOthers(request: AcquireRequest): Waiter<RaisableHandle> | null;
}

/** The resources of a set that belong to one virtual service. */
export interface SetPart {
  readonly transport: ServiceTransport;
  /** Sorted. */
  readonly resources: readonly string[];
}

/** The least fraction of its TTL that each lock has left when the set is complete. */
const LEFT_MIN = 0.9;
/** The least fraction of its TTL that each lock has left while the client waits for another one. */
const LEFT_WAITING = 0.5;

/** A lock that is held, with its present token and deadline. */
interface HeldPart {
  readonly lock: RaisableHandle;
  readonly answers: () => AcquireFailure['nodes'];
  token: bigint;
  deadlineMs: number;
}

/**
 * Takes a set of resources of several virtual services, or none. A part of the set is the lock of
 * all its resources in one virtual service. All clients take the parts in the same order, one after
 * the other. So two clients never wait for each other.
 *
 * A waiter keeps the parts that it has while it waits for the next one.
 */
export class SetAcquisition implements Waiter {
  readonly #parts: readonly SetPart[];
  readonly #request: AcquireRequest;
  readonly #runtime: Runtime;
  /** The parts that are held: the first ones. */
  #held: HeldPart[] = [];
  /** The waiter for the first part that is not held; null if that is not waited for yet. */
  #waiter: Waiter<RaisableHandle> | null = null;

  /** @param parts in the order of their virtual services */
  constructor(parts: readonly SetPart[], request: AcquireRequest, runtime: Runtime) {
    this.#parts = parts;
    this.#request = request;
    this.#runtime = runtime;
  }

  /** Never rejects. A failure keeps the parts that are held, unless one was lost. */
  async acquire(): Promise<AcquisitionResult> {
    for (const { transport, resources } of this.#parts.slice(this.#held.length)) {
      const lost = await this.#renew(LEFT_WAITING);
      if (lost) return lost;
      const asked = this.#waiter?.acquire() ?? transport.acquire({ ...this.#request, resources });
      const result = await asked;
      if (!result.ok) return result;
      const { handle: lock, answers } = result;
      const { token, deadlineMs } = lock;
      this.#held.push({ lock, answers, token, deadlineMs });
      this.#endWaiter();
    }
    const failure = (await this.#renew(LEFT_MIN)) ?? (await this.#raise());
    if (failure) return failure;
    const held = this.#held;
    this.#held = [];
    const [{ token } = { token: 0n }] = held;
    const deadlineMs = Math.min(...held.map((part) => part.deadlineMs));
    const handle = new SetHandle(
      held.map(({ lock }) => lock),
      token,
      deadlineMs,
    );
    return { ok: true, handle, answers: () => held.flatMap(({ answers }) => answers()) };
  }

  async pause(attempts: number, failure: AcquireFailure, leftMs: number): Promise<void> {
    const part = this.#parts[this.#held.length];
    if (!part) throw new Error('the set is complete: there is nothing to wait for');
    const { resources, transport } = part;
    this.#waiter ??= transport.wait({ ...this.#request, resources });
    const endMs = Math.min(...this.#held.map(({ deadlineMs }) => deadlineMs));
    const renewMs = endMs - LEFT_WAITING * this.#request.ttlMs - this.#runtime.nowMs();
    await this.#waiter.pause(attempts, failure, Math.min(leftMs, Math.max(1, renewMs)));
  }

  /** Releases the parts that are held. Never rejects. */
  async release(): Promise<void> {
    this.#endWaiter();
    const held = this.#held;
    this.#held = [];
    await Promise.all(held.map(({ lock }) => lock.release()));
  }

  [Symbol.dispose](): void {
    void this.release();
  }

  #endWaiter(): void {
    this.#waiter?.[Symbol.dispose]();
    this.#waiter = null;
  }

  /** Extends parts with less than this fraction of the TTL left. If one was lost, releases all. */
  async #renew(leftMin: number): Promise<AcquireFailure | null> {
    const { ttlMs } = this.#request;
    const limitMs = this.#runtime.nowMs() + leftMin * ttlMs;
    const renew = async (part: HeldPart): Promise<void> => {
      if (part.deadlineMs < limitMs) part.deadlineMs = await part.lock.extend(ttlMs);
    };
    try {
      await Promise.all(this.#held.map(renew));
      return null;
    } catch (error) {
      await this.release();
      const none = { ok: false, retryAfterMs: 0 } as const;
      return error instanceof NoQuorumError
        ? { ...none, reason: 'no-quorum', nodes: error.nodes }
        : { ...none, reason: 'too-slow', nodes: [] };
    }
  }

  /**
   * Raises the tokens of all parts to the highest of them.
   *
   * Invariant: the token of the set is above that of every earlier lease of each resource, and
   * below that of every later one. A majority of each service's nodes has stored it.
   */
  async #raise(): Promise<AcquireFailure | null> {
    for (;;) {
      const token = this.#held.reduce((most, part) => (part.token > most ? part.token : most), 0n);
      const behind = this.#held.filter((part) => part.token < token);
      if (behind.length === 0) return null;
      const { signal } = this.#request;
      const raised = await Promise.all(behind.map(({ lock }) => lock.raise(token, signal)));
      for (const [at, part] of behind.entries()) {
        const result = raised[at] ?? 0n;
        if (typeof result === 'bigint') part.token = result;
        else {
          await this.release();
          return result;
        }
      }
    }
  }
}
