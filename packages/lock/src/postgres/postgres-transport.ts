import { type NodeAnswer, nodeAnswer } from '../core/answers.js';
import { backoffMs } from '../core/backoff.js';
import { LockArgumentError } from '../core/errors.js';
import { type AcquireFailure, failureError } from '../core/failure.js';
import type { ResolvedOptions } from '../core/options.js';
import { answerLimitMs, LAST_ANSWERS_MS, nodeTimeoutMs, validityMs } from '../core/validity.js';
import { publish } from '../lease/events.js';
import type {
  AcquireRequest,
  ClaimResult,
  LockTransport,
  ReleaseOutcome,
  Waiter,
} from '../lease/transport.js';
import { inTime, nobody, type Runtime, sleep, unlessAborted } from '../runtime/runtime.js';
import type { Database } from './database.js';
import type { WakeUps } from './wake-ups.js';

/** The name under which the server's answer stands among `nodes` of results and errors. */
const NODE = 'postgres';

/** How long a waiter that hears of releases relies on that at most. */
const LISTEN_LIMIT_MS = 1_000;

/** Leases in one PostgreSQL database. */
export class PostgresTransport implements LockTransport {
  readonly #database: Database;
  readonly #wakeUps: WakeUps;
  readonly #options: Pick<ResolvedOptions, 'maxTtlMs' | 'fenceTtlMs' | 'firstToken'>;
  readonly #runtime: Runtime;
  /** When this process next looks whether names are to be forgotten, on the runtime's monotonic clock. */
  #forgetsMs = Number.NEGATIVE_INFINITY;
  #isClosed = false;

  constructor(
    database: Database,
    wakeUps: WakeUps,
    options: Pick<ResolvedOptions, 'maxTtlMs' | 'fenceTtlMs' | 'firstToken'>,
    runtime: Runtime,
  ) {
    this.#database = database;
    this.#wakeUps = wakeUps;
    this.#options = options;
    this.#runtime = runtime;
  }

  checkResource(name: string): void {
    if (!name.includes('\0')) return;
    throw new LockArgumentError('resource must not contain NUL, which PostgreSQL cannot store');
  }

  async close(): Promise<void> {
    this.#isClosed = true;
  }

  acquire(request: AcquireRequest): Promise<ClaimResult> {
    return this.#acquire(request, false);
  }

  /** Waits for a release, too, where they can be heard of. */
  wait(request: AcquireRequest): Waiter {
    const { resources, signal } = request;
    let woken = Promise.withResolvers<void>();
    const unsubscribe = this.#wakeUps.subscribe(resources, () => woken.resolve());
    return {
      acquire: () => this.#acquire(request, true),
      pause: async (attempts, { reason, retryAfterMs }, leftMs) => {
        // The first attempt did not say that its caller waits: the holder would not notify it.
        if (attempts === 1 && reason === 'held') return;
        const delayMs = this.#delayMs(attempts, retryAfterMs);
        await sleep(this.#runtime, Math.min(delayMs, leftMs), signal, woken.promise);
        woken = Promise.withResolvers();
      },
      [Symbol.dispose]: unsubscribe,
    };
  }

  /** By the lease's end where releases are heard of; else by the usual steps. */
  #delayMs(attempts: number, retryAfterMs: number): number {
    const { isListening } = this.#wakeUps;
    if (!isListening) return backoffMs(attempts, retryAfterMs, this.#runtime.random());
    return Math.min(LISTEN_LIMIT_MS, retryAfterMs) * (1 + this.#runtime.random() / 10);
  }

  async #acquire(request: AcquireRequest, isWaiting: boolean): Promise<ClaimResult> {
    const { resources, ttlMs, signal } = request;
    const owner = this.#runtime.uniqueId();
    const startedMs = this.#runtime.nowMs();
    const { firstToken } = this.#options;
    const asked = this.#database.acquire(resources, owner, ttlMs, firstToken, isWaiting);
    const giveBack = (): void => {
      // Also what is granted after nobody waits for it any more.
      const release = () => this.#database.release(resources, owner);
      void asked.then(release, release).catch(() => undefined);
    };
    const leftMs = Math.max(request.endMs - startedMs, LAST_ANSWERS_MS);
    const reply = await unlessAborted(this.#inTime(asked, answerLimitMs(ttlMs, leftMs)), signal);
    if (reply === null || signal.aborted) {
      giveBack();
      return failure('aborted', { answer: 'pending' });
    }
    if ('error' in reply) {
      giveBack();
      return failed(reply.error);
    }
    if (reply.token === null) {
      const remainingMs = Number(reply.held_ms);
      return failure('held', { answer: 'held', remainingMs }, remainingMs);
    }
    const nowMs = this.#runtime.nowMs();
    const deadlineMs = nowMs + validityMs(ttlMs, nowMs - startedMs);
    this.#forgetInTurn();
    const claim = {
      resources,
      token: BigInt(reply.token),
      deadlineMs,
      owner,
      extend: (extendedMs: number) => this.extend(resources, owner, extendedMs),
      release: () => this.release(resources, owner),
    };
    return { ok: true, claim, answers: () => [nodeAnswer(NODE, { answer: 'granted' })] };
  }

  async extend(resources: readonly string[], owner: string, ttlMs: number): Promise<number> {
    const startedMs = this.#runtime.nowMs();
    const reply = await this.#ask(this.#database.extend(resources, owner, ttlMs), ttlMs);
    if ('error' in reply) throw failureError(failed(reply.error), resources, 0);
    if (!reply.value) {
      void this.release(resources, owner);
      throw failureError(failure('lost', { answer: 'not-held' }), resources, 0);
    }
    const nowMs = this.#runtime.nowMs();
    return nowMs + validityMs(ttlMs, nowMs - startedMs);
  }

  async release(resources: readonly string[], owner: string): Promise<ReleaseOutcome> {
    const asked = this.#database.release(resources, owner);
    const reply = await this.#ask(asked, this.#options.maxTtlMs);
    if ('error' in reply) return 'unknown';
    return reply.value ? 'released' : 'expired';
  }

  #ask<Value>(asked: Promise<Value>, ttlMs: number) {
    return this.#inTime(
      asked.then((value) => ({ value })),
      nodeTimeoutMs(ttlMs),
    );
  }

  /** The answer; or why there is none, also where it takes too long. */
  #inTime<Value extends object>(
    asked: Promise<Value>,
    limitMs: number,
  ): Promise<Value | { readonly error: Error }> {
    const answer = asked.catch((error: Error) => ({ error }));
    return inTime(this.#runtime, nobody, answer, limitMs);
  }

  /** @returns the number of forgotten names */
  async forget(olderThanMs: number): Promise<number> {
    let names = 0;
    for (let page: string | null = '0'; page !== null && !this.#isClosed; ) {
      const { forgotten, next_page } = await this.#database.forget(olderThanMs, page);
      names += Number(forgotten);
      page = next_page;
    }
    return names;
  }

  /** In the background, once in `fenceTtlMs` at most, and so often of all processes together. */
  #forgetInTurn(): void {
    const { fenceTtlMs } = this.#options;
    const nowMs = this.#runtime.nowMs();
    if (nowMs < this.#forgetsMs) return;
    this.#forgetsMs = nowMs + fenceTtlMs;
    const forget = async (): Promise<void> => {
      if (!(await this.#database.raiseFloor(fenceTtlMs))) return;
      const names = await this.forget(fenceTtlMs);
      publish('fenced:lock:forgot', () => ({ names }));
    };
    forget().catch((error: Error) => publish('fenced:lock:forgot', () => ({ names: 0, error })));
  }
}

const NOT_INSTALLED =
  'the database has no schema fenced_lock, or an earlier one: run install() once, or schema.sql';

/** By SQLSTATE. Waiting changes nothing about these. */
const SETUP_HINTS: ReadonlyMap<string | undefined, string> = new Map([
  ['3F000', NOT_INSTALLED],
  ['42883', NOT_INSTALLED],
  ['42P01', NOT_INSTALLED],
  [
    '42501',
    'the role may not lock: GRANT USAGE ON SCHEMA fenced_lock, and EXECUTE ON ALL FUNCTIONS IN SCHEMA fenced_lock, to it',
  ],
]);

function failed(error: Error): AcquireFailure {
  const { code } = error as { code?: string };
  // bigint out of range.
  if (code === '22003') return failure('token-exhausted', { answer: 'error', error });
  const hint = SETUP_HINTS.get(code);
  if (hint) return { ...failure('not-installed', { answer: 'error', error }), hint };
  const vote = failure('no-quorum', { answer: 'error', error });
  return { ...vote, hint: 'PostgreSQL did not grant a vote' };
}

function failure(
  reason: AcquireFailure['reason'],
  answer: Omit<NodeAnswer, 'name'>,
  retryAfterMs = 0,
): AcquireFailure {
  return { ok: false, reason, nodes: [nodeAnswer(NODE, answer)], retryAfterMs };
}
