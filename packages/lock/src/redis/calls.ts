import type { Runtime } from '../runtime.js';
import type { RedisClient } from './node.js';
import { type CommandName, script } from './scripts.js';

/** One call of a command of the script. */
interface Call {
  readonly command: CommandName;
  readonly keys: readonly string[];
  readonly values: readonly (string | number)[];
  /** When nobody waits for it any more, on the runtime's monotonic clock. */
  readonly untilMs: number;
  readonly resolve: (reply: readonly unknown[]) => void;
  readonly reject: (error: unknown) => void;
}

/** So that a node which serves many is not held up for long by one: about a millisecond of its time. */
const CALLS_PER_SCRIPT_MAX = 100;
/** Keys and arguments, which are handed to the client one by one. */
const ARGUMENTS_PER_SCRIPT_MAX = 10_000;
/** How many scripts may be under way to a node. What the client has taken may be carried out much later, after a reconnection. */
const SCRIPTS_MAX = 8;
/** How many calls may wait for that: a node that is down would else collect them without end. */
const WAITING_MAX = 10_000;
/** How often those are looked through for some that were given up, where there is no more room. */
const SWEEP_EVERY_MS = 100;
/** States of an ioredis client that will soon be ready, or is not yet lost. */
const CONNECTING: ReadonlySet<string> = new Set(['connecting', 'connect', 'reconnecting', 'close']);

/**
 * Sends the calls that are made in one tick as one script call, and tells each its own reply. Calls wait here, not in the client,
 * while that is not connected or much is under way; those that are given up meanwhile are never sent.
 */
export class Calls {
  readonly #client: RedisClient;
  readonly #nodeKey: string;
  readonly #runtime: Runtime;
  #waiting: Call[] = [];
  #scripts = 0;
  #sweepMs = 0;
  #isPlanned = false;
  #isWatching = false;

  constructor(client: RedisClient, nodeKey: string, runtime: Runtime) {
    this.#client = client;
    this.#nodeKey = nodeKey;
    this.#runtime = runtime;
  }

  /**
   * @param limitMs how long it is worth sending
   * @returns the reply of the command
   */
  call(
    command: CommandName,
    keys: readonly string[],
    values: readonly (string | number)[],
    limitMs: number,
  ): Promise<readonly unknown[]> {
    const nowMs = this.#runtime.nowMs();
    if (this.#waiting.length >= WAITING_MAX && nowMs >= this.#sweepMs) {
      this.#sweepMs = nowMs + SWEEP_EVERY_MS;
      this.#waiting = dropGivenUp(this.#waiting, nowMs);
    }
    if (this.#waiting.length >= WAITING_MAX) {
      return Promise.reject(new Error(`${WAITING_MAX} requests wait for this node already`));
    }
    return new Promise((resolve, reject) => {
      const untilMs = nowMs + limitMs;
      this.#waiting.push({ command, keys, values, untilMs, resolve, reject });
      this.#plan();
    });
  }

  #plan(): void {
    if (this.#isPlanned) return;
    this.#isPlanned = true;
    this.#runtime.soon(() => {
      this.#isPlanned = false;
      this.#sendAll();
    });
  }

  #sendAll(): void {
    if (this.#client.once && CONNECTING.has(this.#client.status ?? '')) {
      this.#watch();
      return;
    }
    while (this.#waiting.length > 0 && this.#scripts < SCRIPTS_MAX) {
      const calls = this.#waiting.splice(0, this.#countOfNext());
      const wanted = dropGivenUp(calls, this.#runtime.nowMs());
      if (wanted.length > 0) void this.#send(wanted);
    }
  }

  /** How many calls one script may carry: at least one. */
  #countOfNext(): number {
    let size = 0;
    const over = this.#waiting.findIndex(({ keys, values }, at) => {
      size += keys.length + values.length;
      return at > 0 && (at >= CALLS_PER_SCRIPT_MAX || size > ARGUMENTS_PER_SCRIPT_MAX);
    });
    return over === -1 ? this.#waiting.length : over;
  }

  #watch(): void {
    if (this.#isWatching) return;
    this.#isWatching = true;
    this.#client.once?.('ready', () => {
      this.#isWatching = false;
      this.#plan();
    });
  }

  async #send(calls: readonly Call[]): Promise<void> {
    const keys = [this.#nodeKey, ...calls.flatMap((call) => call.keys)];
    const values = calls.flatMap(({ command, keys: own, values: told }) => [
      command,
      own.length,
      told.length,
      ...told,
    ]);
    this.#scripts += 1;
    try {
      const replies = await this.#run(keys.length, [...keys, ...values]);
      if (!Array.isArray(replies) || replies.length !== calls.length) throw unexpected(replies);
      for (const [at, { resolve, reject }] of calls.entries()) {
        const reply: unknown = replies[at];
        if (!Array.isArray(reply)) reject(unexpected(reply));
        else if (reply[0] === 'error') reject(new Error(String(reply[1])));
        else resolve(reply);
      }
    } catch (error) {
      for (const { reject } of calls) reject(error);
    }
    this.#scripts -= 1;
    if (this.#waiting.length > 0) this.#plan();
  }

  async #run(keyCount: number, keysAndValues: readonly (string | number)[]): Promise<unknown> {
    try {
      return await this.#client.evalsha(script.sha1, keyCount, ...keysAndValues);
    } catch (error) {
      // The node has not seen the script since it started, or its script cache was flushed.
      if (!(error instanceof Error && error.message.startsWith('NOSCRIPT'))) throw error;
      return this.#client.eval(script.source, keyCount, ...keysAndValues);
    }
  }
}

/** The calls that somebody still waits for. */
function dropGivenUp(calls: readonly Call[], nowMs: number): Call[] {
  return calls.filter(({ untilMs, reject }) => {
    const isWanted = untilMs > nowMs;
    if (!isWanted) reject(new Error('given up before it was sent'));
    return isWanted;
  });
}

/** What came back is none of the script's replies. */
export function unexpected(reply: unknown): Error {
  return new Error(
    `not the reply of a lock script; is this a Redis server? reply=${JSON.stringify(reply)}`,
  );
}
