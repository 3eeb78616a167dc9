import type { Runtime } from '../runtime.js';
import type { RedisClient } from './node.js';
import { type CommandName, type Script, scriptFor } from './scripts.js';

/** A command, with its keys and arguments. */
export interface Request {
  readonly command: CommandName;
  readonly keys: readonly string[];
  readonly values: readonly (string | number)[];
}

/** What a command answered, and the voters whose places a vote names, from 1. */
export interface Reply {
  readonly parts: readonly unknown[];
  readonly voters: readonly unknown[];
}

interface Call extends Request {
  /** When nobody waits for it any more, on the runtime's monotonic clock. */
  readonly untilMs: number;
  readonly resolve: (reply: Reply) => void;
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
  ): Promise<Reply> {
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
    this.#scripts += 1;
    try {
      const script = scriptFor(calls.map(({ command }) => command));
      const { replies, voters } = readReplies(await this.#run(script, calls), calls.length);
      for (const [at, { resolve, reject }] of calls.entries()) {
        const parts = replies[at];
        if (!Array.isArray(parts)) reject(unexpected(parts));
        else if (parts[0] === 'error') reject(new Error(String(parts[1])));
        else resolve({ parts, voters });
      }
    } catch (error) {
      for (const { reject } of calls) reject(error);
    }
    this.#scripts -= 1;
    if (this.#waiting.length > 0) this.#plan();
  }

  async #run({ sha1, source }: Script, calls: readonly Call[]): Promise<unknown> {
    const [keyCount, ...told] = inScript(this.#nodeKey, calls);
    try {
      return await this.#client.evalsha(sha1, keyCount, ...told);
    } catch (error) {
      // The node has not seen the script since it started, or its script cache was flushed.
      if (!(error instanceof Error && error.message.startsWith('NOSCRIPT'))) throw error;
      return this.#client.eval(source, keyCount, ...told);
    }
  }
}

/** What EVALSHA takes after the script, as `calls.lua` expects it: how many keys, the keys, and the calls. */
export function inScript(
  nodeKey: string,
  requests: readonly Request[],
): [keyCount: number, ...keysAndCalls: string[]] {
  const keys = [nodeKey, ...requests.flatMap((request) => request.keys)];
  const calls = requests.map(({ command, keys: own, values }) => [
    command,
    own.length,
    ...values.map(String),
  ]);
  return [keys.length, ...keys, JSON.stringify(calls)];
}

function readReplies(
  reply: unknown,
  count: number,
): { readonly replies: readonly unknown[]; readonly voters: readonly unknown[] } {
  try {
    const [replies, voters] = JSON.parse(String(reply));
    // Lua cannot tell an empty list from an empty object.
    if (replies.length === count) return { replies, voters: Array.isArray(voters) ? voters : [] };
  } catch {
    throw unexpected(reply);
  }
  throw unexpected(reply);
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
