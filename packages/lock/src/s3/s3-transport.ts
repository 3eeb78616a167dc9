import { backoffMs } from '../core/backoff.js';
import { deadlineOf, NODE_TIMEOUT_MAX_MS, nodeTimeoutMs } from '../core/validity.js';
import { type Explanation, OnlyServer } from '../lease/one-server.js';
import type {
  AcquireRequest,
  AcquisitionResult,
  LockTransport,
  ReleaseOutcome,
  Waiter,
} from '../lease/transport.js';
import { type Runtime, sleep, timeLimit, unlessAborted } from '../runtime/runtime.js';
import { Observations } from './observations.js';
import { type Held, isRefused, type LockRecord, type Records } from './records.js';

interface Options {
  readonly pollMs: number;
  readonly firstToken: bigint | null;
}

/** A lock of some resources. `records` is null if another process acquired the lock. */
interface Owned {
  readonly resources: readonly string[];
  readonly owner: string;
  readonly records: readonly LockRecord[] | null;
  /**
   * The record that a write of unknown outcome was to replace, with the token of that write. The
   * write may still arrive.
   */
  readonly doubtful?: LockRecord | undefined;
}

/** Leases in one bucket. */
export class S3Transport implements LockTransport {
  readonly #records: Records;
  readonly #options: Options;
  readonly #runtime: Runtime;
  readonly #observations = new Observations();
  readonly #server: OnlyServer;

  constructor(records: Records, options: Options, runtime: Runtime) {
    this.#records = records;
    this.#options = options;
    this.#runtime = runtime;
    this.#server = new OnlyServer('s3', explain, runtime);
  }

  checkResources(resources: readonly string[]): void {
    for (const name of resources) this.#records.check(name);
  }

  close(): Promise<void> {
    return this.#server.close();
  }

  acquire(request: AcquireRequest): Promise<AcquisitionResult> {
    return this.#server.acquire(request, async (limitMs) => {
      using limit = timeLimit(this.#runtime, limitMs);
      // The time limit does not end a write: its outcome shows which records must be released.
      const acquired = this.#acquire(request, limit.signal);
      return await this.#inTime(acquired, limit.signal).catch((failure) => {
        const undone = acquired.then((late) => (late.ok ? late.handle.release() : null));
        void this.#server.track(undone.catch(() => null));
        throw failure;
      });
    });
  }

  wait(request: AcquireRequest): Waiter {
    const { random } = this.#runtime;
    return {
      acquire: () => this.acquire(request),
      pause: async (attempts, { reason, retryAfterMs }, leftMs) => {
        const pollMs = this.#options.pollMs * (0.9 + random() / 5);
        const delayMs = reason === 'held' ? pollMs : backoffMs(attempts, 0, random());
        const limitMs = retryAfterMs > 0 ? Math.min(leftMs, retryAfterMs) : leftMs;
        await sleep(this.#runtime, Math.min(delayMs, limitMs), request.signal);
      },
      [Symbol.dispose]: () => {},
    };
  }

  async extend(resources: readonly string[], owner: string, ttlMs: number): Promise<number> {
    return (await this.#extend({ resources, owner, records: null }, ttlMs)).deadlineMs;
  }

  release(resources: readonly string[], owner: string): Promise<ReleaseOutcome> {
    return this.#release({ resources, owner, records: null });
  }

  async #acquire(
    { resources, ttlMs }: AcquireRequest,
    signal: AbortSignal,
  ): Promise<AcquisitionResult> {
    const found = await this.#read(resources, signal);
    const nowMs = this.#runtime.nowMs();
    const remainingMs = found.map((record) => this.#observations.remainingMs(record, nowMs));
    const retryAfterMs = Math.max(...remainingMs);
    if (retryAfterMs > 0) return { ...this.#server.held(retryAfterMs), hint: HELD };
    const owner = this.#runtime.uniqueId();
    const token = this.#nextToken(found);
    const startedMs = this.#runtime.nowMs();
    const held = { owner, ttlMs, endsAtMs: this.#runtime.wallClockMs() + ttlMs };
    const records: LockRecord[] = [];
    try {
      // One after the other, in the order of the names: of two sets that share some, one gets all.
      for (const record of found) {
        records.push(await this.#records.replace(record, { token, held }, signal));
      }
    } catch (error) {
      if (!isRefused(error)) {
        const last = found[records.length];
        const doubtful = last && { ...last, token };
        void this.#release({ resources, owner, records: null, doubtful });
        throw error;
      }
      await this.#release({ resources, owner, records });
      return this.#server.held(0);
    }
    return this.#granted({ resources, owner, records }, token, deadlineOf(startedMs, ttlMs));
  }

  /**
   * A token above those of all records. If there is no object, one may have been removed. So the
   * clock takes the place of its token.
   */
  #nextToken(found: readonly LockRecord[]): bigint {
    const { firstToken } = this.#options;
    const first = firstToken ?? BigInt(Math.floor(this.#runtime.wallClockMs() * 1_000));
    const tokens = found.flatMap(({ version, token }) =>
      version === null ? [token, first - 1n] : [token],
    );
    return tokens.reduce((one, other) => (one > other ? one : other)) + 1n;
  }

  #extend(
    lock: Owned,
    ttlMs: number,
  ): Promise<{ readonly records: readonly LockRecord[]; readonly deadlineMs: number }> {
    return this.#server.extended(this, lock, async () => {
      using limit = timeLimit(this.#runtime, nodeTimeoutMs(ttlMs));
      for (let isFirst = true; ; isFirst = false) {
        const known = isFirst ? lock.records : null;
        const records = known ?? (await this.#ownRecords(lock, limit.signal));
        if (records.length < lock.resources.length) return null;
        const startedMs = this.#runtime.nowMs();
        const startedAtMs = this.#runtime.wallClockMs();
        // The holder knows by its monotonic clock that its lease is not over. Another process has
        // only the record. The object stays for ever, and nobody may have asked for the lock since.
        const isOver = ({ held }: LockRecord): boolean => !held || held.endsAtMs <= startedAtMs;
        if (lock.records === null && records.some(isOver)) return null;
        // Invariant: a new version is good for at least as long as the one that it replaces.
        const longer = (before: Held): Held => ({
          owner: lock.owner,
          ttlMs: Math.max(ttlMs, before.ttlMs),
          endsAtMs: Math.max(startedAtMs + ttlMs, before.endsAtMs),
        });
        const extended = await this.#replaceAll(records, longer, limit.signal);
        if (extended.length === records.length)
          return { records: extended, deadlineMs: deadlineOf(startedMs, ttlMs) };
      }
    });
  }

  #release(lock: Owned): Promise<ReleaseOutcome> {
    return this.#server.track(this.#releaseInTime(lock));
  }

  async #releaseInTime(lock: Owned): Promise<ReleaseOutcome> {
    using limit = timeLimit(this.#runtime, NODE_TIMEOUT_MAX_MS);
    let released = 0;
    try {
      for (let isFirst = true; ; isFirst = false) {
        const known = isFirst ? lock.records : null;
        const records = known ?? (await this.#ownRecords(lock, limit.signal));
        const free = await this.#replaceAll(records, () => null, limit.signal);
        released += free.length;
        if (free.length < records.length) continue;
        return released < lock.resources.length ? 'expired' : 'released';
      }
    } catch {
      return 'unknown';
    }
  }

  /** @returns the new records, without those that were no longer the stored ones */
  async #replaceAll(
    records: readonly LockRecord[],
    next: (before: Held) => Held | null,
    signal: AbortSignal,
  ): Promise<readonly LockRecord[]> {
    const writes = records.map(async (record) => {
      const { token, held } = record;
      try {
        return [await this.#records.replace(record, { token, held: held && next(held) }, signal)];
      } catch (error) {
        if (isRefused(error)) return [];
        throw error;
      }
    });
    return (await this.#inTime(Promise.all(writes), signal)).flat();
  }

  /**
   * The records of this owner, and the doubtful one. Replacing the doubtful record makes the late
   * write fail, because that write replaces the old version only.
   */
  async #ownRecords(
    { resources, owner, doubtful }: Owned,
    signal: AbortSignal,
  ): Promise<LockRecord[]> {
    const found = await this.#inTime(this.#read(resources, signal), signal);
    return found.flatMap((record) => {
      const isDoubtful =
        record.resource === doubtful?.resource && record.version === doubtful.version;
      if (isDoubtful) return [doubtful];
      return record.held?.owner === owner ? [record] : [];
    });
  }

  #read(resources: readonly string[], signal: AbortSignal): Promise<LockRecord[]> {
    return Promise.all(resources.map((name) => this.#records.read(name, signal)));
  }

  #granted(lock: Owned, token: bigint, deadlineMs: number): AcquisitionResult {
    const { resources, owner } = lock;
    let present = lock;
    const extend = async (ttlMs: number): Promise<number> => {
      const extended = await this.#extend(present, ttlMs);
      present = { ...lock, records: extended.records };
      return extended.deadlineMs;
    };
    const release = () => this.#release(present);
    return this.#server.granted(this, { resources, owner, token, deadlineMs, extend, release });
  }

  /** The value of the promise, or an error once the signal aborts. That does not end a write. */
  async #inTime<Value>(promise: Promise<Value>, signal: AbortSignal): Promise<Value> {
    const settled = await unlessAborted(
      promise.then((value) => ({ value })),
      signal,
    );
    if (!settled) throw signal.reason;
    return settled.value;
  }
}

const HELD =
  'if the holder has crashed, a client takes over only after it has seen the lease for its whole TTL: wait longer than that, by waitMs or --wait';

/** The codes of errors that waiting does not mend. */
const SETUP_CODES: readonly unknown[] = ['unsafe-store', 'store-setup', 'unsupported'];

function explain(error: Error): Explanation {
  const { code } = error as { readonly code?: unknown };
  return SETUP_CODES.includes(code)
    ? { reason: 'not-installed', hint: `the bucket cannot hold locks: ${error.message}` }
    : { reason: 'no-quorum', hint: 'the bucket did not grant the lock' };
}
