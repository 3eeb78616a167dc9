import { schema } from './schema.generated.js';
import '../node-version.js';
import { type NodeAnswer, nodeAnswer } from '../core/answers.js';
import { backoffMs } from '../core/backoff.js';
import { LockArgumentError } from '../core/errors.js';
import { type Failure, failureError } from '../core/failure.js';
import {
  checkFields,
  checkOlderThanMs,
  type ResolvedOptions,
  resolveOptions,
} from '../core/options.js';
import { nodeTimeoutMs, validityMs } from '../core/validity.js';
import { tell } from '../lease/events.js';
import type { LeaseNodes } from '../lease/lease.js';
import {
  type AcquireOptions,
  type Attempted,
  LockService,
  type Request,
  type Wait,
} from '../lease/lock-service.js';
import {
  checkRuntime,
  inTime,
  nobody,
  type Runtime,
  sleep,
  systemRuntime,
  unlessAborted,
} from '../runtime/runtime.js';
import { Database, type PostgresPool } from './database.js';
import { WakeUps } from './wake-ups.js';

export type { PostgresConnection, PostgresPool } from './database.js';

export interface PostgresLockConfig {
  /** A `pg.Pool`. One of its connections listens for releases while anybody waits. It stays its owner's. */
  readonly pool: PostgresPool;
  /** The longest lease in milliseconds that this lock may be asked for, 10 to 86,400,000 (a day). @default 60_000 */
  readonly maxTtlMs?: number;
  /**
   * Milliseconds for which the database remembers the last token of a name that nobody locks, and up to twice as long; at least
   * `maxTtlMs`. Forgetting is safe: the next token of a forgotten name is above the highest of all names.
   * @default 300_000, or `maxTtlMs` if that is longer
   */
  readonly fenceTtlMs?: number;
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
export class PostgresLock extends LockService {
  readonly #database: Database;
  readonly #wakeUps: WakeUps;
  readonly #options: Omit<ResolvedOptions, 'keyPrefix'>;
  /** When this process next looks whether names are to be forgotten, on the runtime's monotonic clock. */
  #forgetsMs = Number.NEGATIVE_INFINITY;
  #isClosed = false;

  /** @throws {LockArgumentError} where the pool is none, or an option out of range */
  constructor(config: PostgresLockConfig, runtime: Runtime = systemRuntime) {
    const fields = ['pool', 'maxTtlMs', 'fenceTtlMs', 'firstToken'];
    checkFields('the first argument of PostgresLock', config, fields);
    checkRuntime(runtime);
    const options = resolveOptions(config);
    super('PostgresLock', options.maxTtlMs, runtime);
    this.#options = options;
    const { connect, query } = config.pool ?? {};
    if (typeof connect !== 'function' || typeof query !== 'function')
      throw new LockArgumentError('pool must be a pg.Pool');
    this.#database = new Database(config.pool);
    this.#wakeUps = new WakeUps(config.pool, runtime);
  }

  /** Creates the schema `fenced_lock` where it is missing. The role needs `CREATE` on the database. */
  async install(): Promise<void> {
    await this.#database.install(schema);
  }

  /**
   * Forgets the names whose last lease ended more than `olderThanMs` ago. Held and awaited names stay. The next token of a
   * forgotten name is above every token that it ever had. Every process of the service does this by itself, see `fenceTtlMs`; call it to forget
   * more at once. It works in small steps, next to all other calls.
   *
   * @returns the number of forgotten names
   * @throws {LockArgumentError} `olderThanMs` is no whole number, 0 to a year
   * @throws the error of the database; what was forgotten before it stays forgotten
   */
  async forget(options: { readonly olderThanMs: number }): Promise<number> {
    checkFields('the options of forget', options, ['olderThanMs']);
    const olderThanMs = checkOlderThanMs(options.olderThanMs);
    await this.#database.raiseFloor(0);
    return this.#forgetAll(olderThanMs);
  }

  /** Ends as `LockService` does, and forgets no more. */
  override async close(): Promise<void> {
    this.#isClosed = true;
    await super.close();
  }

  async #forgetAll(olderThanMs: number): Promise<number> {
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
    const nowMs = this.runtime.nowMs();
    if (nowMs < this.#forgetsMs) return;
    this.#forgetsMs = nowMs + fenceTtlMs;
    const forget = async (): Promise<void> => {
      if (!(await this.#database.raiseFloor(fenceTtlMs))) return;
      const names = await this.#forgetAll(fenceTtlMs);
      tell('fenced:lock:forgot', () => ({ names }));
    };
    forget().catch((error: Error) => tell('fenced:lock:forgot', () => ({ names: 0, error })));
  }

  protected override check(resource: string | readonly string[], options: AcquireOptions): Request {
    const request = super.check(resource, options);
    if (request.resources.some((name) => name.includes('\0'))) {
      throw new LockArgumentError('resource must not contain NUL, which PostgreSQL cannot store');
    }
    return request;
  }

  /** Waits for a release, too, where they can be heard of. */
  protected override wait({ resources, signal }: Request): Wait {
    let woken = Promise.withResolvers<void>();
    const unsubscribe = this.#wakeUps.subscribe(resources, () => woken.resolve());
    return {
      pause: async (attempts, { reason, retryAfterMs }, leftMs) => {
        // The first attempt did not say that its caller waits: the holder would not notify it.
        if (attempts === 1 && reason === 'held') return;
        const delayMs = this.#delayMs(attempts, retryAfterMs);
        await sleep(this.runtime, Math.min(delayMs, leftMs), signal, woken.promise);
        woken = Promise.withResolvers();
      },
      [Symbol.dispose]: unsubscribe,
    };
  }

  /** By the lease's end where releases are heard of; else by the usual steps. */
  #delayMs(attempts: number, retryAfterMs: number): number {
    const { isListening } = this.#wakeUps;
    if (!isListening) return backoffMs(attempts, retryAfterMs, this.runtime.random());
    return Math.min(LISTEN_LIMIT_MS, retryAfterMs) * (1 + this.runtime.random() / 10);
  }

  protected override async attempt(request: Request, waiting: Wait | null): Promise<Attempted> {
    const { resources, ttlMs, signal } = request;
    const owner = this.runtime.uniqueId();
    const startedMs = this.runtime.nowMs();
    const { firstToken } = this.#options;
    const asked = this.#database.acquire(resources, owner, ttlMs, firstToken, waiting !== null);
    const giveBack = (): void => {
      // Also what is granted after nobody waits for it any more.
      const release = () => this.#database.release(resources, owner);
      void asked.then(release, release).catch(() => undefined);
    };
    const reply = await unlessAborted(
      this.#inTime(asked, this.answersMs(request, this.untilMs(request))),
      signal,
    );
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
    const nowMs = this.runtime.nowMs();
    const deadlineMs = nowMs + validityMs(ttlMs, nowMs - startedMs);
    this.#forgetInTurn();
    const own = this.nodesOf(resources, owner);
    const lease = this.track(resources, BigInt(reply.token), deadlineMs, own);
    return { ok: true, lease, answers: () => [nodeAnswer(NODE, { answer: 'granted' })] };
  }

  /** The answer; or why there is none, also where it takes too long. */
  #inTime<Value extends object>(
    asked: Promise<Value>,
    limitMs: number,
  ): Promise<Value | { readonly error: Error }> {
    const answer = asked.catch((error: Error) => ({ error }));
    return inTime(this.runtime, nobody, answer, limitMs);
  }

  protected override nodesOf(resources: readonly string[], owner: string): LeaseNodes {
    const ask = <Value>(asked: Promise<Value>, ttlMs: number) =>
      this.#inTime(
        asked.then((value) => ({ value })),
        nodeTimeoutMs(ttlMs),
      );
    const release = async () => {
      const reply = await ask(this.#database.release(resources, owner), this.#options.maxTtlMs);
      if ('error' in reply) return 'unknown';
      return reply.value ? 'released' : 'expired';
    };
    const extend = async (ttlMs: number): Promise<number> => {
      const startedMs = this.runtime.nowMs();
      const reply = await ask(this.#database.extend(resources, owner, ttlMs), ttlMs);
      if ('error' in reply) throw failureError(failed(reply.error), resources, 0);
      if (!reply.value) {
        void release();
        throw failureError(failure('lost', { answer: 'not-held' }), resources, 0);
      }
      const nowMs = this.runtime.nowMs();
      return nowMs + validityMs(ttlMs, nowMs - startedMs);
    };
    return { owner, extend, release };
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

function failed(error: Error): Failure & { readonly ok: false } {
  const { code } = error as { code?: string };
  // bigint out of range.
  if (code === '22003') return failure('token-exhausted', { answer: 'error', error });
  const hint = SETUP_HINTS.get(code);
  if (hint) return { ...failure('not-installed', { answer: 'error', error }), hint };
  const vote = failure('no-quorum', { answer: 'error', error });
  return { ...vote, hint: 'PostgreSQL did not grant a vote' };
}

function failure(
  reason: Failure['reason'],
  answer: Omit<NodeAnswer, 'name'>,
  retryAfterMs = 0,
): Failure & { readonly ok: false } {
  return { ok: false, reason, nodes: [nodeAnswer(NODE, answer)], retryAfterMs };
}
