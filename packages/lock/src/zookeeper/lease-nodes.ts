import type { Ensemble } from './ensemble.js';
import type { Expiry, LeaseRecord } from './expiry.js';
import type { Paths } from './paths.js';
import { CODE, isRefusal } from './protocol/errors.js';
import {
  check,
  create,
  getData,
  type Operation,
  PERSISTENT,
  remove,
  type Stat,
  setData,
  sync,
  transaction,
} from './protocol/operations.js';

/**
 * The nodes of leases. A lease is a node with a record, and a child that is named after its owner.
 * Both exist, or neither. No owner id is used twice. So a transaction that checks the child
 * succeeds only if the lease is still the same.
 */
export class LeaseNodes {
  readonly #ensemble: Ensemble;
  readonly #paths: Paths;
  readonly #expiry: Expiry;

  constructor(ensemble: Ensemble, paths: Paths, expiry: Expiry) {
    this.#ensemble = ensemble;
    this.#paths = paths;
    this.#expiry = expiry;
  }

  /**
   * Creates the leases of all resources in one transaction, with the operations `others`.
   *
   * @param found leases that are over and are replaced
   * @returns the transaction that created it
   * @throws {ZooKeeperError} one of the operations was refused, so none was carried out
   */
  async take(
    resources: readonly string[],
    owner: string,
    ttlMs: number,
    found: readonly (LeaseRecord | null)[],
    others: readonly Operation<unknown>[],
    signal: AbortSignal,
  ): Promise<bigint> {
    const { acl } = this.#ensemble;
    const operations = resources.flatMap((name, at) => {
      const path = this.#paths.lease(name);
      const before = found[at];
      return [
        // Refused if the old lease was extended since it was read, because that raises the version.
        ...(before
          ? [remove(this.#paths.owner(name, before.owner)), remove(path, before.version)]
          : []),
        create(path, '', PERSISTENT, acl),
        create(this.#paths.owner(name, owner), '', PERSISTENT, acl),
        // Of these operations, only `setData` returns the number of the transaction.
        setData(path, recordText(owner, ttlMs), -1),
      ];
    });
    const all = transaction([...others, ...operations]);
    const results = await this.#ensemble.session.request(all, signal);
    const { czxid, mtimeMs } = results.at(-1) as Stat;
    this.#expiry.onLeaderTime(mtimeMs);
    return czxid;
  }

  /**
   * The records of the resources; null for one that nobody holds.
   *
   * @param onWatch called once when one of them has changed
   */
  read(
    resources: readonly string[],
    signal: AbortSignal,
    onWatch?: () => void,
  ): Promise<(LeaseRecord | null)[]> {
    return Promise.all(
      resources.map(async (name) => {
        const operation = getData(this.#paths.lease(name), onWatch !== undefined);
        const found = await this.#ensemble.unless([CODE.noNode], operation, signal, onWatch);
        return found && { ...readRecord(found.data), ...found.stat };
      }),
    );
  }

  /** Milliseconds until the last of the leases is over; 0 if all are. */
  remainingMs(resources: readonly string[], found: readonly (LeaseRecord | null)[]): number {
    const ends = resources.map((name, at) => {
      const record = found[at];
      return record ? this.#expiry.remainingMs(this.#paths.lease(name), record) : 0;
    });
    return Math.max(...ends);
  }

  /** Reads the leader's clock by a write, unless that has been done in the last 10 s. */
  async sampleClock(signal: AbortSignal): Promise<void> {
    if (!this.#expiry.needsSample) return;
    const stat = await this.#ensemble.session.request(setData(this.#paths.leases, '', -1), signal);
    this.#expiry.onLeaderTime(stat.mtimeMs);
  }

  /**
   * @param by the holder knows by its monotonic clock that its lease is not over. Another process
   *   has only the record, which stays until somebody asks for the lock. So the time of the
   *   extension decides, by the clock of the leader, which also wrote the time in the record.
   * @returns false if this owner does not hold all of them any more, or if another process came
   *   after the end
   */
  async extend(
    resources: readonly string[],
    owner: string,
    ttlMs: number,
    by: 'holder' | 'other',
    signal: AbortSignal,
  ): Promise<boolean> {
    const { session } = this.#ensemble;
    for (;;) {
      // Another process may have acquired a lock through another server. `sync` makes that visible.
      const synced = session.request(sync(this.#paths.leases), signal);
      const [found] = await Promise.all([this.read(resources, signal), synced]);
      const records = found.filter((record) => record?.owner === owner) as LeaseRecord[];
      if (records.length < found.length) return false;
      if (resources.some((name, at) => this.remainingMs([name], [found[at] ?? null]) === 0))
        return false;
      // Invariant: an extension never lowers the TTL in a record, for which other clients wait.
      const text = recordText(owner, Math.max(ttlMs, ...records.map((record) => record.ttlMs)));
      const operations = resources.flatMap((name, at) => [
        check(this.#paths.owner(name, owner)),
        setData(this.#paths.lease(name), text, records[at]?.version ?? -1),
      ]);
      try {
        const results = await session.request(transaction(operations), signal);
        const { mtimeMs } = results.at(-1) as Stat;
        return (
          by === 'holder' || records.every((record) => mtimeMs < record.mtimeMs + record.ttlMs)
        );
      } catch (error) {
        if (!isRefusal(error, CODE.noNode, CODE.badVersion)) throw error;
      }
    }
  }

  /**
   * @returns false if this owner did not hold all of them any more. Then it gave up the others.
   */
  async release(
    resources: readonly string[],
    owner: string,
    signal: AbortSignal,
  ): Promise<boolean> {
    if (await this.#remove(resources, owner, signal)) return true;
    // A transaction does all or nothing. So the rest of the set is freed one by one.
    if (resources.length > 1)
      await Promise.all(resources.map((name) => this.#remove([name], owner, signal)));
    return false;
  }

  async #remove(
    resources: readonly string[],
    owner: string,
    signal: AbortSignal,
  ): Promise<boolean> {
    const operations = resources.flatMap((name) => [
      remove(this.#paths.owner(name, owner)),
      remove(this.#paths.lease(name)),
    ]);
    const done = await this.#ensemble.unless([CODE.noNode], transaction(operations), signal);
    return done !== null;
  }
}

function recordText(owner: string, ttlMs: number): string {
  return JSON.stringify({ owner, ttlMs });
}

/** @throws if it is no record: another program has written it, and the lease never ends */
function readRecord(text: string): Pick<LeaseRecord, 'owner' | 'ttlMs'> {
  const { owner, ttlMs } = JSON.parse(text) as Partial<LeaseRecord>;
  if (typeof owner === 'string' && Number.isSafeInteger(ttlMs)) {
    return { owner, ttlMs: ttlMs as number };
  }
  throw new Error(`the node of a lease has no record: ${text.slice(0, 80)}`);
}
