import { randomBytes } from 'node:crypto';
import { setTimeout as after } from 'node:timers';
import { setTimeout } from 'node:timers/promises';

/** The source of time and chance. Tests pass their own. */
export interface Runtime {
  /** Between 0 and 1, for jitter. */
  random(): number;
  /** A unique id: 32 hexadecimal digits. */
  writeId(): string;
  /** The wall clock in milliseconds since 1970. Only for the age of certificates and retentions. */
  wallClockMs(): number;
  /** Monotonic milliseconds, for durations. */
  nowMs(): number;
  /** Rejects with the signal's reason as soon as it aborts. */
  sleep(durationMs: number, signal?: AbortSignal): Promise<void>;
}

export const systemRuntime: Runtime = {
  random: Math.random,
  wallClockMs: Date.now,
  nowMs: () => performance.now(),
  writeId: () => randomBytes(16).toString('hex'),
  sleep: async (durationMs, signal) => {
    try {
      await setTimeout(durationMs, undefined, signal && { signal });
    } catch (error) {
      throw signal?.aborted ? signal.reason : error;
    }
  },
};

/**
 * The wait before attempt number `attempt + 1`: a random part of a bound that doubles from 10 ms to
 * 1 s. Source: "full jitter" in the AWS Architecture Blog, "Exponential Backoff And Jitter".
 */
export function backoffMs(runtime: Runtime, attempt: number): number {
  return runtime.random() * Math.min(1_000, 10 * 2 ** (attempt - 1));
}

/** The longest wait of one request for a server that throttles, in milliseconds. */
const THROTTLED_MS_MAX = 10_000;

/** The waits between the attempts of one request. */
export class Retries {
  readonly #runtime: Runtime;
  readonly #triesMax: number;
  #tries = 0;
  #throttled = 0;
  #throttledMs = 0;

  constructor(runtime: Runtime, triesMax: number) {
    this.#runtime = runtime;
    this.#triesMax = triesMax;
  }

  /** Number of attempts so far. */
  get made(): number {
    return this.#tries + this.#throttled;
  }

  /**
   * Waits before the next attempt; returns false if there is none. For ten seconds, a server that
   * throttles is asked less and less often. These attempts do not count.
   *
   * @throws the signal's reason
   */
  async next(isThrottled: boolean, signal?: AbortSignal): Promise<boolean> {
    if (isThrottled) {
      if (this.#throttledMs >= THROTTLED_MS_MAX) return false;
      const waitMs =
        (0.5 + this.#runtime.random() / 2) * Math.min(2_000, 100 * 2 ** this.#throttled);
      this.#throttled += 1;
      this.#throttledMs += waitMs;
      await this.#runtime.sleep(waitMs, signal);
    } else {
      this.#tries += 1;
      if (this.#tries >= this.#triesMax) return false;
      await this.#runtime.sleep(backoffMs(this.#runtime, this.#tries), signal);
    }
    return true;
  }
}

/** Waits for the promise, whatever its result, but no longer than that. Leaves no timer behind. */
export async function waitFor(
  runtime: Runtime,
  promise: Promise<unknown>,
  limitMs: number,
): Promise<void> {
  const over = new AbortController();
  const late = runtime.sleep(limitMs, over.signal);
  await Promise.race([promise, late]).catch(() => undefined);
  over.abort();
}

/** Settles as the promise, or rejects with the signal's reason as soon as it aborts. */
export async function unlessAborted<T>(promise: Promise<T>, signal?: AbortSignal): Promise<T> {
  if (signal === undefined) return promise;
  if (signal.aborted) {
    // No caller waits for it any more.
    promise.catch(() => undefined);
    throw signal.reason;
  }
  let stop = (): void => undefined;
  const aborted = new Promise<never>((_, reject) => {
    stop = () => reject(signal.reason);
    signal.addEventListener('abort', stop, { once: true });
  });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener('abort', stop);
  }
}

export interface TimeLimit {
  readonly signal: AbortSignal;
  /** @param limitMs a new limit, from now on */
  renew(limitMs?: number): void;
  lift(): void;
}

/** A signal that aborts after that time, unless it is lifted before. `renew` begins again. */
export function timeLimit(limitMs: number): TimeLimit {
  const limit = new AbortController();
  const late = () => limit.abort(tookTooLong());
  let timer = startTimer(late, limitMs);
  return {
    signal: limit.signal,
    renew: (otherMs) => {
      if (otherMs === undefined) return void timer.refresh();
      clearTimeout(timer);
      timer = startTimer(late, otherMs);
    },
    lift: () => clearTimeout(timer),
  };
}

/** Calls `late` after that time. `refresh()` begins again. */
export function startTimer(late: () => void, limitMs: number): NodeJS.Timeout {
  return after(late, limitMs);
}

export function tookTooLong(): DOMException {
  return new DOMException('it took too long', 'TimeoutError');
}
