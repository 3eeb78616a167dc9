import { backoffMs } from '../core/backoff.js';
import { LockArgumentError } from '../core/errors.js';
import type { AcquireFailure } from '../core/failure.js';
import type { ResolvedOptions } from '../core/options.js';
import { deadlineOf, nodeTimeoutMs } from '../core/validity.js';
import { publish } from '../lease/events.js';
import { type Explanation, OnlyServer } from '../lease/one-server.js';
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

/** Longest pause of a waiter that is notified of releases. */
const LISTEN_LIMIT_MS = 1_000;

type Options = Pick<ResolvedOptions, 'maxTtlMs' | 'fenceTtlMs' | 'firstToken'>;

/** Leases in one PostgreSQL database. */
export class PostgresTransport implements LockTransport {
  readonly database: Database;
  readonly #wakeUps: WakeUps;
  readonly #options: Options;
  readonly #runtime: Runtime;
  readonly #server: OnlyServer;
  /** The next time to forget names, on the runtime's monotonic clock. */
  #forgetsMs = Number.NEGATIVE_INFINITY;
  #isClosed = false;

  constructor(client: DatabaseClient, options: Options, runtime: Runtime) {
    this.database = new Database(client);
    this.#wakeUps = new WakeUps(client);
    this.#options = options;
    this.#runtime = runtime;
    this.#server = new OnlyServer('postgres', explain, runtime);
  }

  checkResources(resources: readonly string[]): void {
    if (!resources.some((name) => name.includes('\0'))) return;
    throw new LockArgumentError('resource must not contain NUL, which PostgreSQL cannot store');
  }

  close(): Promise<void> {
    this.#isClosed = true;
    return this.#server.close();
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
        // The first acquisition asked for no notification. The second does, so it follows at once.
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
    return this.#server.acquire(request, (limitMs) =>
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
    // In the second half of the time, the statement is not sent any more. The server would grant
    // the lease too late, and it would only be released again.
    const limit = new BeginLimit(this.#runtime, limitMs / 2, signal);
    const asked = this.database.acquire(resources, owner, ttlMs, firstToken, isWaiting, limit);
    const [token, heldMs] = await this.#answer(asked, limitMs, limit).catch((failure) => {
      // The server may still grant the lease, unless the statement was not sent.
      const late = asked.then(
        ([token]) => token !== null,
        (error) => !(error instanceof NotSentError),
      );
      const undone = late.then((isHeld) => isHeld && this.database.release(resources, owner));
      void this.#server.track(undone.catch(() => undefined));
      throw failure;
    });
    if (token === null) return this.#server.held(Number(heldMs));
    this.#forgetInTurn();
    const deadlineMs = deadlineOf(startedMs, ttlMs);
    return this.#server.granted(this, { resources, token: BigInt(token), deadlineMs, owner });
  }

  extend(resources: readonly string[], owner: string, ttlMs: number): Promise<number> {
    return this.#server.extended(this, { resources, owner }, async () => {
      const startedMs = this.#runtime.nowMs();
      const asked = this.database.extend(resources, owner, ttlMs);
      const isHeld = await this.#answer(asked, nodeTimeoutMs(ttlMs));
      return isHeld ? deadlineOf(startedMs, ttlMs) : null;
    });
  }

  release(resources: readonly string[], owner: string): Promise<ReleaseOutcome> {
    return this.#server.track(this.#release(resources, owner));
  }

  #release(resources: readonly string[], owner: string): Promise<ReleaseOutcome> {
    const asked = this.database.release(resources, owner);
    return this.#answer(asked, nodeTimeoutMs(this.#options.maxTtlMs)).then(
      (isHeld) => (isHeld ? 'released' : 'expired'),
      () => 'unknown',
    );
  }

  /** @throws the reason why there is no answer in time */
  async #answer<Value>(
    asked: Promise<Value>,
    limitMs: number,
    limit: Silent = nobody,
  ): Promise<Value> {
    const answer = asked.then(
      (value) => ({ value }),
      (error: Error) => ({ error }),
    );
    const reply = await inTime(this.#runtime, limit, answer, limitMs);
    if ('error' in reply) throw reply.error;
    return reply.value;
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

/** Hints by SQLSTATE, for a wrong set-up, against which waiting does not help. */
const SETUP_HINTS: Readonly<Record<string, string>> = {
  '3F000': NOT_INSTALLED,
  '42883': NOT_INSTALLED,
  '42P01': NOT_INSTALLED,
  '42501': NOT_ALLOWED,
};

function explain(error: Error): Explanation {
  const { code = '' } = error as { code?: string };
  // The next token is out of the range of bigint.
  if (code === '22003') return { reason: 'token-exhausted' };
  const hint = SETUP_HINTS[code];
  if (hint) return { reason: 'not-installed', hint };
  const isSent = !(error instanceof NotSentError);
  return {
    reason: 'no-quorum',
    hint: isSent ? 'PostgreSQL did not grant the lock' : NO_CONNECTION,
  };
}
