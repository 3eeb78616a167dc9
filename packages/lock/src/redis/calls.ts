import type { RedisClient } from './node.js';
import { type CommandName, script } from './scripts.js';

/** One call of a command of the script. */
interface Call {
  readonly command: CommandName;
  readonly keys: readonly string[];
  readonly values: readonly (string | number)[];
  readonly resolve: (reply: readonly unknown[]) => void;
  readonly reject: (error: unknown) => void;
}

/** So that a node which serves many is not held up for long by one: about a millisecond of its time. */
const CALLS_PER_SCRIPT_MAX = 100;
/** How many calls may wait for their replies: a node that is down would else collect them without end. */
const UNANSWERED_MAX = 10_000;

/** Sends the calls that are made in one tick as one script call, and tells each its own reply. */
export class Calls {
  readonly #client: RedisClient;
  readonly #nodeKey: string;
  readonly #soon: (callback: () => void) => void;
  #next: Call[] = [];
  #unanswered = 0;

  /** @param soon runs its callback once this tick's work is done */
  constructor(client: RedisClient, nodeKey: string, soon: (callback: () => void) => void) {
    this.#client = client;
    this.#nodeKey = nodeKey;
    this.#soon = soon;
  }

  /** @returns the reply of the command */
  call(
    command: CommandName,
    keys: readonly string[],
    values: readonly (string | number)[],
  ): Promise<readonly unknown[]> {
    if (this.#unanswered >= UNANSWERED_MAX) {
      const waiting = `${UNANSWERED_MAX} requests wait for this node already`;
      return Promise.reject(new Error(waiting));
    }
    this.#unanswered += 1;
    if (this.#next.length === 0) this.#soon(() => this.#sendAll());
    return new Promise((resolve, reject) => {
      this.#next.push({ command, keys, values, resolve, reject });
    });
  }

  #sendAll(): void {
    const calls = this.#next;
    this.#next = [];
    for (let from = 0; from < calls.length; from += CALLS_PER_SCRIPT_MAX) {
      void this.#send(calls.slice(from, from + CALLS_PER_SCRIPT_MAX));
    }
  }

  async #send(calls: readonly Call[]): Promise<void> {
    const keys = [this.#nodeKey, ...calls.flatMap((call) => call.keys)];
    const values = calls.flatMap(({ command, keys: own, values: told }) => [
      command,
      own.length,
      told.length,
      ...told,
    ]);
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
    this.#unanswered -= calls.length;
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

/** What came back is none of the script's replies. */
export function unexpected(reply: unknown): Error {
  return new Error(
    `not the reply of a lock script; is this a Redis server? reply=${JSON.stringify(reply)}`,
  );
}
