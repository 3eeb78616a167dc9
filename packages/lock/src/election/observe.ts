import { inTime, nobody, type Runtime, sleep, unlessAborted } from '../runtime/runtime.js';
import { type ElectionBoard, type Notice, parseNotice } from './board.js';

/**
 * The leader, as a board shows it. No clocks of two machines are compared. Tokens never go down
 * from one observation to the next, as far as the board keeps its promise.
 */
export interface Observation {
  /**
   * - `led`: this observer saw a new notice, and the time until the next one is not over.
   *   At the moment of the read, no later leader had published. It may have been deposed since.
   * - `vacant`: there was no leader yet, or the last one has resigned.
   * - `unknown`: the next notice is overdue, or none has come since this observer began, or the
   *   board could not be read. The leader may live, be dead or have a successor.
   */
  readonly state: 'led' | 'vacant' | 'unknown';
  /** The last leader that was seen; null if none was. */
  readonly candidate: string | null;
  readonly token: bigint | null;
  /**
   * Milliseconds since the read began: the observation is at least that old when it is received.
   */
  readonly ageMs: number;
  /** The reason why the board could not be read. */
  readonly error?: unknown;
}

/** @param limitMs a read that takes longer has failed */
export async function* observeBoard(
  board: ElectionBoard,
  everyMs: number,
  limitMs: number,
  signal: AbortSignal = new AbortController().signal,
  runtime: Runtime,
): AsyncGenerator<Observation> {
  const watch = new Watch(runtime);
  for (let last = ''; ; ) {
    signal.throwIfAborted();
    const observation = await unlessAborted(watch.read(board, limitMs), signal);
    if (!observation) throw signal.reason;
    const { state, candidate, token } = observation;
    const seen = [state, candidate, token].join();
    if (seen !== last) yield observation;
    last = seen;
    await sleep(runtime, everyMs, signal);
  }
}

/** The changes of a board, by the observer's own clock. */
class Watch {
  readonly #runtime: Runtime;
  #notice: Notice | null = null;
  /** The time of the last change; null before the first one that this observer saw. */
  #changedMs: number | null = null;
  #hasRead = false;

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  /** Never rejects. */
  async read(board: ElectionBoard, limitMs: number): Promise<Observation> {
    const sentMs = this.#runtime.nowMs();
    const answer = Promise.resolve()
      .then(() => board.read())
      .then((text) => ({ notice: text === null || text === undefined ? null : parseNotice(text) }))
      .catch((error: unknown) => ({ error }));
    const reply = await inTime(this.#runtime, nobody, answer, limitMs);
    const error = 'error' in reply ? reply.error : undefined;
    if ('notice' in reply) this.#note(reply.notice, sentMs);
    const nowMs = this.#runtime.nowMs();
    return {
      state: error === undefined ? this.#stateAt(nowMs) : 'unknown',
      candidate: this.#notice?.candidate ?? null,
      token: this.#notice?.token ?? null,
      ageMs: nowMs - sentMs,
      ...(error !== undefined && { error }),
    };
  }

  #note(notice: Notice | null, sentMs: number): void {
    const before = this.#notice;
    const isNew = notice?.token !== before?.token || notice?.beat !== before?.beat;
    if (this.#hasRead && isNew) this.#changedMs = sentMs;
    this.#hasRead = true;
    this.#notice = notice;
  }

  #stateAt(nowMs: number): Observation['state'] {
    const { nextMs = 0 } = this.#notice ?? {};
    if (nextMs === 0) return 'vacant';
    const isFresh = this.#changedMs !== null && nowMs - this.#changedMs < nextMs;
    return isFresh ? 'led' : 'unknown';
  }
}
