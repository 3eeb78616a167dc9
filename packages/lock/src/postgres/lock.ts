import { readFile } from 'node:fs/promises';
import { backoffMs } from '../core/backoff.js';
import { InvalidArgumentError, LockError } from '../core/errors.js';
import { type Failure, failureError } from '../core/failure.js';
import {
  checkCount,
  checkResources,
  checkTtlMs,
  checkWaitMs,
  resolveOptions,
} from '../core/options.js';
import { nodeTimeoutMs, validityMs } from '../core/validity.js';
import { keepAlive } from '../keep-alive.js';
import { Lease } from '../lease.js';
import type {
  AcquireAttempt,
  AcquireOptions,
  TryAcquireOptions,
  UsingOptions,
} from '../redlock.js';
import { type Runtime, sleep, systemRuntime, unlessAborted } from '../runtime.js';
import { Database, type PostgresPool } from './database.js';
import { WakeUps } from './wake-ups.js';

export type { PostgresConnection, PostgresPool } from './database.js';

export interface PostgresLockConfig {
  /** A `pg.Pool`. One of its connections listens for releases while anybody waits. It stays its owner's. */
  readonly pool: PostgresPool;
  /** The longest lease in milliseconds that this lock may be asked for, 10 to 86,400,000 (a day). @default 60_000 */
  readonly maxTtlMs?: number;
  /** As in `RedlockOptions`: where the tokens of new resources begin, for demonstrations. */
  readonly firstToken?: bigint;
}

/** The name under which the server's answer stands among `nodes` of results and errors. */
const NODE = 'postgres';

/** How long a waiter that hears of releases relies on that at most. */
const LISTEN_LIMIT_MS = 1_000;

/**
 * Leases with fencing tokens in one PostgreSQL database: the interface of `Redlock`, where a database is at hand and the
 * reliability of one server, or of its synchronous replica, will do.
 *
 * Promised as by `Redlock`: tokens grow. That rests on what the database has committed: after a failover to an asynchronous
 * replica, on the clocks of both, too.
 */
export class PostgresLock implements AsyncDisposable {
  readonly #database: Database;
  readonly #wakeUps: WakeUps;
  readonly #options: { readonly maxTtlMs: number; readonly firstToken: bigint | null };
  readonly #runtime: Runtime;
  readonly #closing = new AbortController();
  readonly #held = new Set<Lease>();

  /** @throws {InvalidArgumentError} where the pool is none, or an option out of range */
  constructor(config: PostgresLockConfig, runtime: Runtime = systemRuntime) {
    this.#options = resolveOptions(config);
    const { connect, query } = config.pool ?? {};
    if (typeof connect !== 'function' || typeof query !== 'function')
      throw new InvalidArgumentError('pool must be a pg.Pool');
    this.#database = new Database(config.pool);
    this.#wakeUps = new WakeUps(config.pool);
    this.#runtime = runtime;
  }

  /** Creates the schema `fenced_lock` where it is missing. The role needs `CREATE` on the database. */
  async install(): Promise<void> {
    const schema = new URL('../../src/postgres/schema.sql', import.meta.url);
    await this.#database.install(await readFile(schema, 'utf8'));
  }

  /** As `acquire` of `Redlock`. Whoever waits is woken by a release. */
  async acquire(resource: string | readonly string[], options: AcquireOptions): Promise<Lease> {
    const waitMs = checkWaitMs(options?.waitMs ?? 0);
    const request = this.#check(resource, options);
    const { resources, signal } = request;
    const endMs = this.#runtime.nowMs() + waitMs;
    let woken = Promise.withResolvers<void>();
    const wake = (): void => woken.resolve();
    let unsubscribe = (): void => {};
    try {
      for (let attempts = 1; ; attempts += 1) {
        const attempt = await this.#attempt(request);
        if (attempt.ok) return attempt.lease;
        signal.throwIfAborted();
        const leftMs = endMs - this.#runtime.nowMs();
        const isWaitable = ['held', 'no-quorum', 'too-slow'].includes(attempt.reason);
        if (leftMs <= 0 || !isWaitable) throw failureError(attempt, resources, waitMs);
        if (attempts === 1) unsubscribe = this.#wakeUps.subscribe(resources, wake);
        const delayMs = this.#delayMs(attempts, attempt.retryAfterMs);
        await this.#sleepUnless(woken.promise, Math.min(delayMs, leftMs), signal);
        woken = Promise.withResolvers();
      }
    } finally {
      unsubscribe();
    }
  }

  /** As `tryAcquire` of `Redlock`. */
  async tryAcquire(
    resource: string | readonly string[],
    options: TryAcquireOptions,
  ): Promise<AcquireAttempt> {
    return this.#attempt(this.#check(resource, options));
  }

  /** As `using` of `Redlock`. */
  async using<Result>(
    resource: string | readonly string[],
    options: UsingOptions,
    routine: (lease: Lease) => Promise<Result> | Result,
  ): Promise<Result> {
    const extensionsMax = checkCount('extensionsMax', options?.extensionsMax ?? 10);
    if (typeof routine !== 'function') throw new InvalidArgumentError('routine must be a function');
    await using lease = await this.acquire(resource, options);
    using _ = keepAlive(lease, options.ttlMs, extensionsMax, this.#runtime);
    const result = await routine(lease);
    lease.ensure();
    return result;
  }

  /** Releases what is held and ends waits with an error of code `closed`. Leaves the pool to its owner. */
  async close(): Promise<void> {
    this.#closing.abort(new LockError('closed', 'this PostgresLock was closed'));
    await Promise.all([...this.#held].map((lease) => lease.release()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #check(resource: string | readonly string[], options: TryAcquireOptions): Request {
    const resources = checkResources(resource);
    if (resources.some((name) => name.includes('\0')))
      throw new InvalidArgumentError(
        'resource must not contain NUL, which PostgreSQL cannot store',
      );
    const ttlMs = checkTtlMs(options?.ttlMs, this.#options.maxTtlMs);
    if (options.signal !== undefined && !(options.signal instanceof AbortSignal))
      throw new InvalidArgumentError('signal must be an AbortSignal');
    const closing = this.#closing.signal;
    const signal = options.signal ? AbortSignal.any([options.signal, closing]) : closing;
    signal.throwIfAborted();
    return { resources, ttlMs, signal };
  }

  /** By the lease's end where releases are heard of; else by the usual steps. */
  #delayMs(attempts: number, retryAfterMs: number): number {
    const { isListening } = this.#wakeUps;
    if (!isListening) return backoffMs(attempts, retryAfterMs, this.#runtime.random());
    return Math.min(LISTEN_LIMIT_MS, retryAfterMs) * (1 + this.#runtime.random() / 10);
  }

  async #sleepUnless(woken: Promise<void>, delayMs: number, signal: AbortSignal): Promise<void> {
    const awake = new AbortController();
    const either = AbortSignal.any([signal, awake.signal]);
    void woken.then(() => awake.abort());
    await sleep(this.#runtime, delayMs, either).catch(() => undefined);
    signal.throwIfAborted();
  }

  async #attempt({ resources, ttlMs, signal }: Request): Promise<AcquireAttempt> {
    const owner = this.#runtime.uniqueId();
    const startedMs = this.#runtime.nowMs();
    const asked = this.#database.acquire(resources, owner, ttlMs, this.#options.firstToken);
    const giveBack = (): void => {
      // Also what is granted after nobody waits for it any more.
      const release = () => this.#database.release(resources, owner);
      void asked.then(release, release).catch(() => undefined);
    };
    const reply = await unlessAborted(this.#inTime(asked, ttlMs), signal);
    if (reply === null || signal.aborted) {
      giveBack();
      return failure('aborted', { name: NODE, answer: 'pending' });
    }
    if ('error' in reply) {
      giveBack();
      return failed(reply.error);
    }
    if (reply.token === null) {
      const remainingMs = Number(reply.held_ms);
      return failure('held', { name: NODE, answer: 'held', remainingMs }, remainingMs);
    }
    const nowMs = this.#runtime.nowMs();
    const remainingMs = validityMs(ttlMs, nowMs - startedMs);
    if (remainingMs > 0)
      return {
        ok: true,
        lease: this.#lease(resources, owner, BigInt(reply.token), nowMs + remainingMs),
      };
    giveBack();
    return failure('too-slow', { name: NODE, answer: 'granted' });
  }

  /** The answer; or why there is none, also where it takes too long. */
  async #inTime<Value extends object>(
    asked: Promise<Value>,
    ttlMs: number,
  ): Promise<Value | { readonly error: Error }> {
    const limitMs = nodeTimeoutMs(ttlMs);
    const { promise: tooLate, resolve } = Promise.withResolvers<{ error: Error }>();
    const cancel = this.#runtime.after(limitMs, () =>
      resolve({ error: new Error(`no answer within ${limitMs} ms`) }),
    );
    const answer = asked.catch((error: Error) => ({ error }));
    return Promise.race([answer, tooLate]).finally(cancel);
  }

  #lease(resources: readonly string[], owner: string, token: bigint, deadlineMs: number): Lease {
    const ask = <Value>(asked: Promise<Value>, ttlMs: number) =>
      this.#inTime(
        asked.then((value) => ({ value })),
        ttlMs,
      );
    const release = async () => {
      const reply = await ask(this.#database.release(resources, owner), this.#options.maxTtlMs);
      if ('error' in reply) return 'unknown';
      return reply.value ? 'released' : 'expired';
    };
    const extend = async (ttlMs: number): Promise<number> => {
      checkTtlMs(ttlMs, this.#options.maxTtlMs);
      const startedMs = this.#runtime.nowMs();
      const reply = await ask(this.#database.extend(resources, owner, ttlMs), ttlMs);
      if ('error' in reply) throw failureError(failed(reply.error), resources, 0);
      if (!reply.value) {
        void release();
        throw failureError(failure('lost', { name: NODE, answer: 'not-held' }), resources, 0);
      }
      const nowMs = this.#runtime.nowMs();
      return nowMs + validityMs(ttlMs, nowMs - startedMs);
    };
    const lease = new Lease(resources, token, deadlineMs, { extend, release }, this.#runtime);
    const { signal } = lease;
    if (signal.aborted) return lease;
    this.#held.add(lease);
    signal.addEventListener('abort', () => this.#held.delete(lease), { once: true });
    return lease;
  }
}

interface Request {
  readonly resources: readonly string[];
  readonly ttlMs: number;
  readonly signal: AbortSignal;
}

function failed(error: Error): Failure & { readonly ok: false } {
  const { code } = error as { code?: string };
  // bigint out of range.
  if (code === '22003') return failure('token-exhausted', { name: NODE, answer: 'error', error });
  const isMissing = ['3F000', '42883', '42P01'].includes(code ?? '');
  const hint = isMissing
    ? 'the database has no schema fenced_lock: run install() once, or schema.sql'
    : 'PostgreSQL did not grant a vote';
  return { ...failure('no-quorum', { name: NODE, answer: 'error', error }), hint };
}

function failure(
  reason: Failure['reason'],
  node: Failure['nodes'][number],
  retryAfterMs = 0,
): Failure & { readonly ok: false } {
  return { ok: false, reason, nodes: [node], retryAfterMs };
}
