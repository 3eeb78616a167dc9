import '../node-version.js';
import { LockArgumentError } from '../core/errors.js';
import { checkFields, checkResources, milliseconds } from '../core/options.js';
import {
  checkRuntime,
  inTime,
  nobody,
  type Runtime,
  sleep,
  systemRuntime,
  unlessAborted,
} from '../runtime/runtime.js';
import { type ElectionBoard, type Notice, writeNotice } from './board.js';
import { type ElectionLease, type Leadership, Term } from './leadership.js';
import { type Observation, observeBoard } from './observe.js';

export type { ElectionBoard } from './board.js';
export type { ElectionLease, Leadership } from './leadership.js';
export type { Observation } from './observe.js';

/**
 * The part of a lock service that an election needs: `Redlock`, `PostgresLock` and `FencedGateway`
 * have it.
 */
export interface ElectionLock {
  acquire(
    resource: string,
    options: { readonly ttlMs: number; readonly waitMs: number; readonly signal: AbortSignal },
  ): Promise<ElectionLease>;
}

export interface ElectorConfig {
  readonly lock: ElectionLock;
  /** The name of the office, which all candidates must spell alike. */
  readonly resource: string;
  /**
   * Milliseconds after which another candidate may lead if the leader dies, 100 to 86,400,000 (a
   * day). @default 15_000
   */
  readonly ttlMs?: number;
  /** The name of this candidate, for observers: a host, an address. @default '' */
  readonly candidate?: string;
  /** Makes the leader known. Without it, `observe` is not available. */
  readonly board?: ElectionBoard;
}

const FIELDS = ['lock', 'resource', 'ttlMs', 'candidate', 'board'];
const TTL_MIN_MS = 100;
const DAY_MS = 86_400_000;
/** More reads a second would only load the board. */
const READ_EVERY_MIN_MS = 10;
/** A campaign asks again after this time: a gateway does not let a request wait for ever. */
const WAIT_MS = 10_000;
const PAUSE_MS = 500;
/** A leader extends its lease, and publishes a notice, so many times in its TTL. */
const BEATS = 3;

/** Errors of lock services after which a campaign goes on. Waiting does not mend other errors. */
const PASSING: ReadonlySet<unknown> = new Set([
  ...['held', 'timeout', 'no-quorum', 'too-slow', 'memory-full'],
  ...['unavailable', 'overloaded', 'shutting-down', 'too-many-requests', 'request-timeout'],
]);

/**
 * Elects one leader among the processes that campaign for the same resource.
 *
 * Leadership is a lease with a fencing token. Promised: a later leader has a greater token, so
 * storage that checks tokens refuses every late write of a deposed leader. Not promised: that two
 * processes never believe at once that they lead.
 */
export class Elector implements AsyncDisposable {
  readonly #lock: ElectionLock;
  readonly #resource: string;
  readonly #ttlMs: number;
  readonly #candidate: string;
  readonly #board: ElectionBoard | undefined;
  readonly #runtime: Runtime;
  /** Aborts when the present campaign, or the term that follows it, is to end. */
  #resignation: AbortController | null = null;
  /** Resolves when the present campaign ends, whatever its outcome is. */
  #campaign: Promise<void> | null = null;
  #term: Term | null = null;

  /** @throws {LockArgumentError} */
  constructor(config: ElectorConfig, runtime: Runtime = systemRuntime) {
    checkFields('the first argument of Elector', config, FIELDS);
    checkRuntime(runtime);
    const { lock, resource, ttlMs = 15_000, candidate = '', board } = config;
    if (typeof lock?.acquire !== 'function')
      throw new LockArgumentError('lock must be a lock service such as a Redlock');
    checkResources(resource);
    if (typeof candidate !== 'string')
      throw new LockArgumentError(`candidate must be a string type=${typeof candidate}`);
    if (board !== undefined) checkBoard(board);
    this.#lock = lock;
    this.#resource = resource;
    this.#ttlMs = milliseconds('ttlMs', ttlMs, TTL_MIN_MS, DAY_MS);
    this.#candidate = candidate;
    this.#board = board;
    this.#runtime = runtime;
  }

  /** The present term of this process; null while it does not lead. */
  get leadership(): Leadership | null {
    return this.#term?.signal.aborted === false ? this.#term : null;
  }

  /**
   * Waits until this process leads. The leadership is extended until `resign`, or until it is lost:
   * watch its `signal`, and campaign again then.
   *
   * @throws {LockArgumentError} if this elector campaigns or leads already
   * @throws the signal's reason if it aborts; an `AbortError` after `resign`
   * @throws the error of the lock service or of the board if waiting cannot help
   */
  async campaign(options: { readonly signal?: AbortSignal } = {}): Promise<Leadership> {
    checkFields('the options of campaign', options, ['signal']);
    checkSignal(options.signal);
    if (this.#campaign || this.leadership)
      throw new LockArgumentError('this elector campaigns or leads already: resign first');
    const campaign = this.#win(options.signal);
    const ended = (): void => {
      this.#campaign = null;
    };
    this.#campaign = campaign.then(ended, ended);
    return campaign;
  }

  async #win(until: AbortSignal | undefined): Promise<Leadership> {
    const resignation = new AbortController();
    this.#resignation = resignation;
    this.#term = null;
    const { signal } = resignation;
    const ended = until ? AbortSignal.any([until, signal]) : signal;
    try {
      const term = new Term(this.#resource, await this.#acquire(ended));
      this.#term = term;
      const first = this.#publish(term, { beat: 0, nextMs: this.#ttlMs });
      const published = (): void => {
        term.publishing = null;
      };
      term.publishing = first.then(published, published);
      await unlessAborted(first, AbortSignal.any([ended, term.signal]));
      ended.throwIfAborted();
      term.ensure();
      void this.#serve(term, resignation);
      return term;
    } catch (error) {
      resignation.abort();
      const term: Term | null = this.#term;
      if (term) await this.#stepDown(term, 'the campaign failed', error);
      throw error;
    }
  }

  /** Ends the campaign or the term, and lets another candidate lead at once. Never throws. */
  async resign(): Promise<void> {
    this.#resignation?.abort();
    await this.#campaign;
    const term = this.leadership && this.#term;
    if (term) await this.#stepDown(term, 'this process has resigned');
  }

  /**
   * Reports the leader now and after each change, as the board shows it. A read that takes longer
   * than `ttlMs` counts as failed.
   *
   * @param options.everyMs the pause between two reads of the board, in milliseconds from 10 to a
   *   day. @default a third of ttlMs
   * @param options.signal ends the observation at once, also during a read
   * @throws {LockArgumentError} if there is no board, or an option is out of range
   * @throws the signal's reason
   */
  observe(
    options: { readonly everyMs?: number; readonly signal?: AbortSignal } = {},
  ): AsyncGenerator<Observation> {
    checkFields('the options of observe', options, ['everyMs', 'signal']);
    const { everyMs = Math.ceil(this.#ttlMs / BEATS), signal } = options;
    if (!this.#board) throw new LockArgumentError('observe needs a board, which leaders write to');
    milliseconds('everyMs', everyMs, READ_EVERY_MIN_MS, DAY_MS);
    checkSignal(signal);
    return observeBoard(this.#board, everyMs, this.#ttlMs, signal, this.#runtime);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.resign();
  }

  async #acquire(signal: AbortSignal): Promise<ElectionLease> {
    const options = { ttlMs: this.#ttlMs, waitMs: WAIT_MS, signal };
    for (;;) {
      try {
        return await this.#lock.acquire(this.#resource, options);
      } catch (error) {
        signal.throwIfAborted();
        if (!PASSING.has(Object(error).code)) throw error;
        await sleep(this.#runtime, PAUSE_MS * (1 + this.#runtime.random()), signal);
      }
    }
  }

  /**
   * Ends the term, and tells observers that nobody leads. That notice follows the one that is on
   * its way: the other order would show a leader that has gone.
   */
  async #stepDown(term: Term, reason: string, cause?: unknown): Promise<void> {
    const released = term.end(reason, cause);
    const published = Promise.resolve(term.publishing).then(() =>
      this.#publish(term, { beat: 0, nextMs: 0 }),
    );
    // A board that hangs keeps the caller for `ttlMs` at most. If the notice arrives later, the
    // board refuses its token as soon as a later leader has published.
    const settled = published.catch(() => {});
    await Promise.all([released, inTime(this.#runtime, nobody, settled, this.#ttlMs)]);
  }

  /** Extends the lease and publishes notices until the term ends. */
  async #serve(term: Term, resignation: AbortController): Promise<void> {
    const signal = AbortSignal.any([term.signal, resignation.signal]);
    try {
      for (let beat = 1; ; beat += 1) {
        const pauseMs = Math.min(this.#ttlMs / BEATS, term.remainingMs() / 2);
        await sleep(this.#runtime, Math.max(1, pauseMs), signal);
        await term.extend(this.#ttlMs);
        // Not awaited: a slow board must not delay the next extension.
        term.publishing ??= this.#publishAgain(term, beat);
      }
    } catch {
      // The term is over.
    }
    resignation.abort();
  }

  /** Never rejects. */
  async #publishAgain(term: Term, beat: number): Promise<void> {
    try {
      await this.#publish(term, { beat, nextMs: this.#ttlMs });
    } catch (error) {
      if (isStale(error)) await term.end('a later leader has published', error);
    }
    term.publishing = null;
  }

  async #publish({ token }: Term, part: Pick<Notice, 'beat' | 'nextMs'>): Promise<void> {
    await this.#board?.publish(writeNotice({ token, candidate: this.#candidate, ...part }), token);
  }
}

function checkBoard(board: ElectionBoard): void {
  if (typeof board?.publish === 'function' && typeof board.read === 'function') return;
  throw new LockArgumentError('board must have the functions publish and read');
}

function checkSignal(signal: unknown): void {
  if (signal === undefined || signal instanceof AbortSignal) return;
  throw new LockArgumentError('signal must be an AbortSignal, such as controller.signal');
}

function isStale(error: unknown): boolean {
  return Object(error).code === 'stale-token';
}
