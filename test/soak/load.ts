import { setTimeout as sleep } from 'node:timers/promises';
import { type Lease, LockError, Redlock, type RedlockConfig } from '@fenced/lock';
import { Redis } from 'ioredis';
import { CountedRuntime } from '../lock/harness/counted-runtime.ts';

export interface LoadOptions {
  readonly ports: readonly number[];
  readonly keyPrefix: string;
  /** TTL of all leases, and the time for which nodes remember a name. */
  readonly ttlMs: number;
  /** New names a second. Each is locked once. */
  readonly namesPerSecond: number;
  /** Leases that are held at any time. Each is extended until it is replaced. */
  readonly held: number;
  /** Waiters for one lock, at any time. A waiter that is served holds the lock for `holdMs`. */
  readonly waiters: number;
  readonly holdMs: number;
  /** Clients a second that connect, wait for the lock of the waiters, and go. */
  readonly clientsPerSecond: number;
  /** True for a test of the soak itself: clients that go leave their connections open, a leak. */
  readonly leaks?: boolean;
}

const HOT = 'hot';
const WAIT_MS = 60_000;
/** The most operations of one kind (new names, clients that come and go) at any time. */
const AT_ONCE_MAX = 2;
/** The number of times that a held lease is extended before it is replaced. */
const EXTENSIONS = 4;

/** A client with connections of its own. */
class Client implements AsyncDisposable {
  readonly lock: Redlock;
  /** Connections that are closed with this client. */
  readonly #connections: readonly Redis[];

  /** @param leaked if given, gets the connections, which then stay open */
  constructor(
    { ports, keyPrefix, ttlMs }: LoadOptions,
    runtime: CountedRuntime,
    leaked: Redis[] | null = null,
  ) {
    const connections = ports.map((port) => new Redis(port));
    leaked?.push(...connections);
    this.#connections = leaked ? [] : connections;
    const nodes = connections.map((client, at) => ({ name: `n${at}`, client }));
    const config: RedlockConfig = { nodes, keyPrefix, maxTtlMs: ttlMs, fenceTtlMs: ttlMs };
    this.lock = new Redlock(config, runtime);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.lock.close();
    for (const connection of this.#connections) connection.disconnect();
  }
}

/** Locks new names, holds leases, lets waiters wait, and lets clients come and go. */
export class Load implements AsyncDisposable {
  readonly runtime: CountedRuntime = new CountedRuntime();
  /** Leases that were acquired so far. */
  acquired = 0;
  /** Leases that were lost, and acquisitions that failed: the machine was too busy. */
  failed = 0;
  readonly #errors: unknown[] = [];
  readonly #leaked: Redis[] = [];
  readonly #options: LoadOptions;
  readonly #client: Client;
  readonly #stop = new AbortController();
  readonly #work: Promise<void>[];
  #lastToken = 0n;

  constructor(options: LoadOptions) {
    this.#options = options;
    this.#client = new Client(options, this.runtime);
    const { namesPerSecond, clientsPerSecond, held, waiters } = options;
    const work = [
      this.#every(namesPerSecond, (at) => this.#lockOnce(`name ${at}`)),
      this.#every(clientsPerSecond, () => this.#visit()),
      ...Array.from({ length: held }, (_, at) => this.#keep(at)),
      ...Array.from({ length: waiters }, () => this.#wait()),
    ];
    this.#work = work.map((one) => one.catch((error) => void this.#errors.push(error)));
  }

  /** Ends all work. Throws the first error of the work, if there was one. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#work);
    await this.#client[Symbol.asyncDispose]();
    for (const connection of this.#leaked) connection.disconnect();
    if (this.#errors.length > 0) throw this.#errors[0];
  }

  async #every(perSecond: number, run: (at: number) => Promise<void>): Promise<void> {
    const running = new Set<Promise<void>>();
    for (let at = 0; await this.#pause(1_000 / perSecond); at += 1) {
      const one = this.#counted(() => run(at));
      running.add(one);
      // Limits the work under way. On a busy machine it would grow, and look like a leak.
      if (running.size === AT_ONCE_MAX) await Promise.race(running);
      void one.finally(() => running.delete(one)).catch(() => {});
    }
    await Promise.all(running);
  }

  async #lockOnce(resource: string): Promise<void> {
    const lease = await this.#acquire(this.#client.lock, resource);
    await lease.release();
  }

  async #visit(): Promise<void> {
    const leaked = this.#options.leaks ? this.#leaked : null;
    await using client = new Client(this.#options, this.runtime, leaked);
    await this.#serve(client.lock);
  }

  async #wait(): Promise<void> {
    while (await this.#pause(1)) await this.#counted(() => this.#serve(this.#client.lock));
  }

  /** Takes the contended lock once. Requires that its token is above all earlier ones. */
  async #serve(lock: Redlock): Promise<void> {
    const lease = await this.#acquire(lock, HOT);
    if (lease.token <= this.#lastToken) throw new Error(`${lease.token} <= ${this.#lastToken}`);
    this.#lastToken = lease.token;
    await sleep(this.#options.holdMs);
    await lease.release();
  }

  async #keep(place: number): Promise<void> {
    const { ttlMs } = this.#options;
    for (let round = 0; await this.#pause(1); round += 1) {
      await this.#counted(async () => {
        await using lease = await this.#acquire(this.#client.lock, `held ${place} ${round}`);
        for (let times = 0; times < EXTENSIONS && (await this.#pause(ttlMs / 2)); times += 1) {
          await lease.extend(ttlMs);
        }
      });
    }
  }

  /** Counts a failure of the lock instead of throwing it. */
  async #counted(run: () => Promise<void>): Promise<void> {
    try {
      await run();
    } catch (error) {
      if (!(error instanceof LockError)) throw error;
      this.failed += 1;
    }
  }

  async #acquire(lock: Redlock, resource: string): Promise<Lease> {
    const lease = await lock.acquire(resource, { ttlMs: this.#options.ttlMs, waitMs: WAIT_MS });
    this.acquired += 1;
    return lease;
  }

  /** @returns false if the work ends */
  async #pause(ms: number): Promise<boolean> {
    const { signal } = this.#stop;
    await sleep(ms, undefined, { signal }).catch(() => {});
    return !signal.aborted;
  }
}
