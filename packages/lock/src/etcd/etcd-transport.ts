import { LockArgumentError } from '../core/errors.js';
import type { AcquireFailure } from '../core/failure.js';
import { deadlineOf, NODE_TIMEOUT_MAX_MS, nodeTimeoutMs } from '../core/validity.js';
import { type Explanation, OnlyServer } from '../lease/one-server.js';
import type {
  AcquireRequest,
  AcquisitionResult,
  LockTransport,
  ReleaseOutcome,
  Waiter,
} from '../lease/transport.js';
import type { Runtime } from '../runtime/runtime.js';
import { type EtcdClient, EtcdError } from './client.js';
import { Keys, type Position } from './keys.js';
import { isTokenRefused } from './login.js';
import { QueuedWaiter, type WaiterContext } from './queued-waiter.js';
import { WakeUps } from './wake-ups.js';

/** The operations that etcd allows in one transaction, unless `--max-txn-ops` says otherwise. */
const RESOURCES_MAX = 128;
/** A transaction has each name up to 5 times, and etcd takes 1.5 MiB by default. */
const NAMES_BYTES_MAX = 256 * 1024;

/** Keys under a new lease of etcd, and the deadline until which their owner may rely on them. */
interface Renewed {
  readonly position: Position;
  readonly deadlineMs: number;
}

/** Leases in one etcd cluster. */
export class EtcdTransport implements LockTransport, WaiterContext {
  readonly keys: Keys;
  readonly wakeUps: WakeUps;
  readonly runtime: Runtime;
  readonly #tokenOffset: bigint;
  readonly #server: OnlyServer;

  constructor(etcd: EtcdClient, keyPrefix: string, tokenOffset: bigint, runtime: Runtime) {
    this.keys = new Keys(etcd, keyPrefix);
    this.wakeUps = new WakeUps(etcd, this.keys, runtime);
    this.runtime = runtime;
    this.#tokenOffset = tokenOffset;
    this.#server = new OnlyServer('etcd', explain, runtime);
  }

  checkResources(resources: readonly string[]): void {
    const bytes = encodeURIComponent(resources.join('')).length;
    if (resources.length <= RESOURCES_MAX && bytes <= NAMES_BYTES_MAX) return;
    throw new LockArgumentError(
      `etcd locks at most ${RESOURCES_MAX} resources together, with names of ${NAMES_BYTES_MAX} bytes in all, percent-encoded resources=${resources.length} bytes=${bytes}`,
    );
  }

  close(): Promise<void> {
    return this.#server.close();
  }

  acquire(request: AcquireRequest): Promise<AcquisitionResult> {
    const { resources, ttlMs } = request;
    return this.attempt(request, async (limitMs) => {
      const owner = this.runtime.uniqueId();
      const startedMs = this.runtime.nowMs();
      const endsAtMs = this.runtime.wallClockMs() + ttlMs;
      const ttlSeconds = secondsOf(ttlMs);
      const lease = await this.keys.grant(ttlSeconds, limitMs());
      const wanted = { resources, owner, lease, ttlSeconds, endsAtMs };
      const revoke = () => this.#revoke(lease);
      const found = await this.keys.createIfFree(wanted, limitMs()).catch(rethrowAfter(revoke));
      if ('created' in found) return this.#granted(found, deadlineOf(startedMs, ttlMs));
      revoke();
      const remaining = found.map((holder) =>
        this.keys.remainingMs(holder, limitMs()).catch(() => 0),
      );
      return this.#server.held(Math.max(0, ...(await Promise.all(remaining))));
    });
  }

  wait(request: AcquireRequest): Waiter {
    return new QueuedWaiter(this, request);
  }

  attempt(
    request: AcquireRequest,
    acquireOnce: (limitMs: () => number) => Promise<AcquisitionResult>,
  ): Promise<AcquisitionResult> {
    return this.#server.acquire(request, (limitMs) => acquireOnce(this.#within(limitMs)));
  }

  async enqueue(
    { resources }: AcquireRequest,
    ttlSeconds: number,
    limitMs: () => number,
  ): Promise<Position> {
    const owner = this.runtime.uniqueId();
    const lease = await this.keys.grant(ttlSeconds, limitMs());
    const wanted = { resources, owner, lease, ttlSeconds, endsAtMs: 0 };
    const revoke = () => this.#revoke(lease);
    return this.keys.enqueue(wanted, limitMs()).catch(rethrowAfter(revoke));
  }

  async take(
    position: Position,
    { ttlMs }: AcquireRequest,
    limitMs: () => number,
  ): Promise<AcquisitionResult | null> {
    const taken = await this.#renew({ ...position, ttlSeconds: 0 }, position, ttlMs, limitMs);
    return taken && this.#granted(taken.position, taken.deadlineMs);
  }

  leave({ resources, owner }: Position): void {
    void this.release(resources, owner);
  }

  held(): AcquireFailure {
    return this.#server.held(0);
  }

  async extend(resources: readonly string[], owner: string, ttlMs: number): Promise<number> {
    return (await this.#extend(null, { resources, owner }, ttlMs)).deadlineMs;
  }

  release(resources: readonly string[], owner: string): Promise<ReleaseOutcome> {
    return this.#server.track(this.#release(resources, owner));
  }

  async #release(resources: readonly string[], owner: string): Promise<ReleaseOutcome> {
    try {
      const lease = await this.keys.delete(resources, owner, NODE_TIMEOUT_MAX_MS);
      if (lease === null) return 'expired';
      this.#revoke(lease);
      return 'released';
    } catch {
      return 'unknown';
    }
  }

  #extend(
    position: Position | null,
    owned: Pick<Position, 'resources' | 'owner'>,
    ttlMs: number,
  ): Promise<Renewed> {
    const limitMs = this.#within(nodeTimeoutMs(ttlMs));
    return this.#server.extended(this, owned, () => this.#renew(position, owned, ttlMs, limitMs));
  }

  /**
   * Puts the keys of an owner under a new lease. An earlier request, whose reply was lost, may have
   * moved the keys to another lease. In that case, reads the keys and tries again.
   *
   * @param position null if it is not known
   * @returns null if the keys are gone
   */
  async #renew(
    position: Position | null,
    { resources, owner }: Pick<Position, 'resources' | 'owner'>,
    ttlMs: number,
    limitMs: () => number,
  ): Promise<Renewed | null> {
    const read = () => this.keys.read(resources, owner, limitMs());
    for (let found = position ?? (await read()); found; found = await read()) {
      const startedMs = this.runtime.nowMs();
      const startedAtMs = this.runtime.wallClockMs();
      // The holder knows by its monotonic clock that its lease is not over. Another process has
      // only the keys. They may outlive the lease: etcd counts in whole seconds, each new leader
      // begins anew, and without a leader no key is deleted.
      if (position === null && found.endsAtMs <= startedAtMs) return null;
      // Invariant: a new lease ends after the one that it replaces, also if the reply is lost.
      const ttlSeconds = Math.max(secondsOf(ttlMs), found.ttlSeconds);
      const endsAtMs = Math.max(startedAtMs + ttlMs, found.endsAtMs);
      const moved = await this.#move({ ...found, ttlSeconds, endsAtMs }, limitMs);
      if (moved) return { position: moved, deadlineMs: deadlineOf(startedMs, ttlMs) };
    }
    return null;
  }

  /**
   * Puts the keys under a new lease. If the outcome is unknown, the keys may be under the new lease
   * already. So it is not revoked, and ends by itself.
   */
  async #move(position: Position, limitMs: () => number): Promise<Position | null> {
    const lease = await this.keys.grant(position.ttlSeconds, limitMs());
    const moved = await this.keys.move({ ...position, lease }, limitMs());
    this.#revoke(moved ? position.lease : lease);
    return moved;
  }

  #granted(position: Position, deadlineMs: number): AcquisitionResult {
    const { resources, owner, created } = position;
    let present = position;
    const token = this.#tokenOffset + created;
    const extend = async (ttlMs: number): Promise<number> => {
      const extended = await this.#extend(present, present, ttlMs);
      present = extended.position;
      return extended.deadlineMs;
    };
    return this.#server.granted(this, { resources, owner, token, deadlineMs, extend });
  }

  /** Revokes a lease that no holder relies on. Without an answer, it ends by itself. */
  #revoke(lease: string): void {
    void this.#server.track(this.keys.revoke(lease, NODE_TIMEOUT_MAX_MS).catch(() => undefined));
  }

  /** The milliseconds that are left of `limitMs`, at least 1. */
  #within(limitMs: number): () => number {
    const endMs = this.runtime.nowMs() + limitMs;
    return () => Math.max(1, endMs - this.runtime.nowMs());
  }
}

/** etcd counts the time of a lease in whole seconds. */
function secondsOf(ttlMs: number): number {
  return Math.ceil(ttlMs / 1_000);
}

function explain(error: Error): Explanation {
  if (!(error instanceof EtcdError))
    return { reason: 'no-quorum', hint: 'etcd did not grant the lock' };
  if (
    isTokenRefused(error) ||
    /authentication failed/.test(error.message) ||
    error.status === 401
  ) {
    const hint = 'etcd knows no such user: see name and password of auth, an option of EtcdLock';
    return { reason: 'not-installed', hint };
  }
  if (error.status !== 403) return { reason: 'no-quorum', hint: 'etcd did not grant the lock' };
  const hint = 'the etcd user may not lock: grant it to read and write the keys of keyPrefix';
  return { reason: 'not-installed', hint };
}

function rethrowAfter(cleanUp: () => void): (error: unknown) => never {
  return (error) => {
    cleanUp();
    throw error;
  };
}
