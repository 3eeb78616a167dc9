import type { Runtime, Silent } from '../runtime/runtime.js';

/** A statement was not sent. So it has no effect, now or later. */
export class NotSentError extends Error {
  constructor() {
    super('no connection of the pool was free in time');
    this.name = 'NotSentError';
  }
}

/** The time within which a statement may begin. */
export class BeginLimit implements Silent {
  readonly state = '';
  isSent = false;
  readonly #runtime: Runtime;
  readonly #endMs: number;
  readonly #signal: AbortSignal | undefined;

  /** @param signal ends it early */
  constructor(runtime: Runtime, limitMs: number, signal?: AbortSignal) {
    this.#runtime = runtime;
    this.#endMs = runtime.nowMs() + limitMs;
    this.#signal = signal;
  }

  get isOver(): boolean {
    return this.#runtime.nowMs() >= this.#endMs || this.#signal?.aborted === true;
  }

  explained(error: Error): Error {
    return this.isSent ? error : new NotSentError();
  }
}

interface Waiting {
  readonly limit: BeginLimit | null;
  readonly begin: () => void;
  readonly drop: (error: NotSentError) => void;
}

/**
 * The statements that wait for one of `connections`, in order. Those whose limit is over are
 * dropped. A pool would send them nevertheless, and an overloaded server would run only statements
 * whose callers have given up.
 */
export class StatementQueue {
  readonly #connections: number;
  readonly #waiting: Waiting[] = [];
  #running = 0;

  constructor(connections: number) {
    this.#connections = connections;
  }

  /** @throws {NotSentError} the limit was over before a connection was free */
  async run<Result>(send: () => Promise<Result>, limit: BeginLimit | null): Promise<Result> {
    this.#dropOver();
    if (this.#running < this.#connections) this.#running += 1;
    else {
      await new Promise<void>((begin, drop) => this.#waiting.push({ limit, begin, drop }));
    }
    if (limit) limit.isSent = true;
    try {
      return await send();
    } finally {
      this.#dropOver();
      const next = this.#waiting.shift();
      if (next) next.begin();
      else this.#running -= 1;
    }
  }

  #dropOver(): void {
    while (this.#waiting[0]?.limit?.isOver) this.#waiting.shift()?.drop(new NotSentError());
  }
}
