import { backoffMs } from '../core/backoff.js';
import { LockArgumentError } from '../core/errors.js';
import { type AcquireFailure, failureError } from '../core/failure.js';
import type { ResolvedOptions } from '../core/options.js';
import { deadlineOf, nodeTimeoutMs } from '../core/validity.js';
import { publish } from '../lease/events.js';
import { failure, granted, OpenWork } from '../lease/one-server.js';
import type {
  AcquireRequest,
  AcquisitionResult,
  LockTransport,
  ReleaseOutcome,
  Waiter,
} from '../lease/transport.js';
import { inTime, nobody, type Runtime, type Silent, sleep } from '../runtime/runtime.js';
import type { DatabaseClient } from './client.js';
import { Database, type ForgetRow } from './database.js';
import { BeginLimit, NotSentError } from './statement-queue.js';
import { WakeUps } from './wake-ups.js';

/** The server's name among the `nodes` of results and errors. */
const NODE = 'postgres';

/** Longest pause of a waiter that is notified of releases. */
const LISTEN_LIMIT_MS = 1_000;

type Options = Pick<ResolvedOptions, 'maxTtlMs' | 'fenceTtlMs' | 'firstToken'>;

/** Leases in one PostgreSQL database. */
export class PostgresTransport implements LockTransport {
  readonly database: Database;
  readonly #wakeUps: WakeUps;
  readonly #options: Options;
  readonly #runtime: Runtime;
  readonly #open: OpenWork;
  /** The next time to forget names, on the runtime's monotonic clock. */
  #forgetsMs = Number.NEGATIVE_INFINITY;
  #isClosed = false;

  constructor(client: DatabaseClient, options: Options, runtime: Runtime) {
    this.database = new Database(client);
    this.#wakeUps = new WakeUps(client);
    this.#options = options;
    this.#runtime = runtime;
    this.#open = new OpenWork(runtime);
  }

  checkResources(resources: readonly string[]): void {
    if (!resources.some((name) => name.includes('\0'))) return;
    throw new LockArgumentError('resource must not contain NUL, which PostgreSQL cannot store');
  }

  close(): Promise<void> {
    this.#isClosed = true;
    return this.#open.close();
  }

  acquire(request: AcquireRequest): Promise<AcquisitionResult> {
    return this.#acquire(request, false);
  }

  /** Pauses until a release, if this process is notified of releases. */
  wait(request: AcquireRequest): Waiter {
    const { resources, signal } = request;
    let woken = Promise.withResolvers<void>();
    const unsubscribe = this.#wakeUps.subscribe(resources, () => woken.resolve());
    return {
      acquire: () => this.#acquire(request, true),
      pause: async (attempts, failure, leftMs) => {
        // The first acquisition did not ask for a notification.
        if (attempts === 1 && failure.reason === 'held') return;
        const delayMs = this.#delayMs(attempts, failure);
        await sleep(this.#runtime, Math.min(delayMs, leftMs), signal, woken.promise);
        woken = Promise.withResolvers();
      },
      [Symbol.dispose]: unsubscribe,
    };
  }

  /** The time until the lease ends. Without a lease or notifications, the usual back-off. */
  #delayMs(attempts: number, { reason, retryAfterMs }: AcquireFailure): number {
    const isNotified = reason === 'held' && this.#wakeUps.isListening;
    if (!isNotified) return backoffMs(attempts, retryAfterMs, this.#runtime.random());
    return Math.min(LISTEN_LIMIT_MS, retryAfterMs) * (1 + this.#runtime.random() / 10);
  }

  #acquire(request: AcquireRequest, isWaiting: boolean): Promise<AcquisitionResult> {
    return this.#open.acquire(NODE, request, (limitMs) =>
      this.#acquireOnce(request, isWaiting, limitMs),
    );
  }

  async #acquireOnce(
    { resources, ttlMs, signal }: AcquireRequest,
    isWaiting: boolean,
    limitMs: number,
  ): Promise<AcquisitionResult> {
    const owner = this.#runtime.uniqueId();
    const startedMs = this.#runtime.nowMs();
    const { firstToken } = this.#options;
    // The other half is for the server: a late lease is only released again.
    const limit = new BeginLimit(this.#runtime, limitMs / 2, signal);
    const asked = this.database.acquire(resources, owner, ttlMs, firstToken, isWaiting, limit);
    const reply = await this.#answer(asked, limitMs, limit);
    if ('error' in reply) {
      // The server may grant the lease after that.
      const late = asked.then(
        ([token]) => token !== null,
        (error) => !(error instanceof NotSentError),
      );
      const undone = late.then((isHeld) => isHeld && this.database.release(resources, owner));
      void this.#open.track(undone.catch(() => undefined));
      return failed(reply.error);
    }
    const [token, heldMs] = reply.value;
    if (token === null) {
      const remainingMs = Number(heldMs);
      return failure(NODE, 'held', { answer: 'held', remainingMs }, remainingMs);
    }
    this.#forgetInTurn();
    const deadlineMs = deadlineOf(startedMs, ttlMs);
    return granted(NODE, this, { resources, token: BigInt(token), deadlineMs, owner });
  }

  async extend(resources: readonly string[], owner: string, ttlMs: number): Promise<number> {
    const startedMs = this.#runtime.nowMs();
    const limitMs = nodeTimeoutMs(ttlMs);
    const limit = new BeginLimit(this.#runtime, limitMs);
    const asked = this.database.extend(resources, owner, ttlMs, limit);
    const reply = await this.#answer(asked, limitMs, limit);
    if ('error' in reply) throw failureError(failed(reply.error), resources, 0);
    if (reply.value) return deadlineOf(startedMs, ttlMs);
    void this.release(resources, owner);
    throw failureError(failure(NODE, 'lost', { answer: 'not-held' }), resources, 0);
  }

  release(resources: readonly string[], owner: string): Promise<ReleaseOutcome> {
    return this.#open.track(this.#release(resources, owner));
  }

  async #release(resources: readonly string[], owner: string): Promise<ReleaseOutcome> {
    const asked = this.database.release(resources, owner);
    const reply = await this.#answer(asked, nodeTimeoutMs(this.#options.maxTtlMs));
    if ('error' in reply) return 'unknown';
    return reply.value ? 'released' : 'expired';
  }

  /** The answer, or the reason why there is none in time. */
  #answer<Value>(
    asked: Promise<Value>,
    limitMs: number,
    limit: Silent = nobody,
  ): Promise<{ readonly value: Value } | { readonly error: Error }> {
    const answer = asked.then(
      (value) => ({ value }),
      (error: Error) => ({ error }),
    );
    return inTime(this.#runtime, limit, answer, limitMs);
  }

  /** @returns the number of forgotten names */
  async forget(olderThanMs: number): Promise<number> {
    let names = 0;
    for (let page: string | null = '0'; page !== null && !this.#isClosed; ) {
      const row: ForgetRow = await this.database.forget(olderThanMs, page);
      names += Number(row[0]);
      page = row[1];
    }
    return names;
  }

  /** Forgets names in the background. Of all processes, one does so once in `fenceTtlMs`. */
  #forgetInTurn(): void {
    const { fenceTtlMs } = this.#options;
    const nowMs = this.#runtime.nowMs();
    if (nowMs < this.#forgetsMs) return;
    this.#forgetsMs = nowMs + fenceTtlMs;
    const forget = async (): Promise<void> => {
      if (!(await this.database.raiseFloor(fenceTtlMs))) return;
      const names = await this.forget(fenceTtlMs);
      publish('fenced:lock:forgot', () => ({ names }));
    };
    forget().catch((error: Error) => publish('fenced:lock:forgot', () => ({ names: 0, error })));
  }
}

const NOT_INSTALLED =
  'the database has no schema fenced_lock, or another version of it: run install() once, or schema.sql';
const NOT_ALLOWED =
  'the role may not lock: GRANT USAGE ON SCHEMA fenced_lock, and EXECUTE ON ALL FUNCTIONS IN SCHEMA fenced_lock, to it';

const NO_CONNECTION =
  'no connection of the pool was free in time, so nothing was sent: the server is slow, or the pool is too small';

/** By SQLSTATE. Waiting does not help against these. */
const SETUP_HINTS: Readonly<Record<string, string>> = {
  '3F000': NOT_INSTALLED,
  '42883': NOT_INSTALLED,
  '42P01': NOT_INSTALLED,
  '42501': NOT_ALLOWED,
};

function failed(error: Error): AcquireFailure {
  const { code = '' } = error as { code?: string };
  const answer = { answer: 'error', error } as const;
  // The next token is out of the range of bigint.
  if (code === '22003') return failure(NODE, 'token-exhausted', answer);
  const hint = SETUP_HINTS[code];
  if (hint) return { ...failure(NODE, 'not-installed', answer), hint };
  if (error instanceof NotSentError) {
    return { ...failure(NODE, 'no-quorum', answer), hint: NO_CONNECTION };
  }
  return { ...failure(NODE, 'no-quorum', answer), hint: 'PostgreSQL did not grant a vote' };
}
