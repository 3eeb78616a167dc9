import { NODE_TIMEOUT_MAX_MS } from '../core/validity.js';
import type { Runtime } from '../runtime.js';
import type { RedisClient } from './node.js';
import { type CommandName, type Script, scriptFor } from './scripts.js';

/** With its keys and arguments, to be sent to any number of nodes. */
export class Command {
  readonly name: CommandName;
  readonly keys: readonly string[];
  /** As `calls.lua` expects it. */
  readonly text: string;
  /** How long it is worth sending, in milliseconds. */
  readonly worthMs: number;

  constructor(
    name: CommandName,
    keys: readonly string[],
    values: readonly (string | number)[],
    worthMs: number = NODE_TIMEOUT_MAX_MS,
  ) {
    this.name = name;
    this.keys = keys;
    // Half a character would be no JSON for Redis, and fail all that travels in the same script.
    const told = values.map((value) => String(value).toWellFormed());
    this.text = JSON.stringify([name, keys.length, ...told]);
    this.worthMs = worthMs;
  }
}

/** What came back for a command, and the voters whose places a vote names, from 1. */
export interface Reply {
  readonly parts: readonly unknown[];
  readonly voters: readonly unknown[];
  /** Whether the command may have been carried out after what was sent later. */
  readonly mayBeLate: boolean;
}

interface Call {
  readonly command: Command;
  /** When nobody waits for it any more, on the runtime's monotonic clock. */
  readonly untilMs: number;
  readonly settle: (reply: Reply | Error) => void;
}

/** So that a node which serves many is not held up for long by one. */
const CALLS_PER_SCRIPT_MAX = 100;
/** Keys are handed to the client one by one. */
const KEYS_PER_SCRIPT_MAX = 10_000;
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
  readonly #members: string;
  readonly #runtime: Runtime;
  #waiting: Call[] = [];
  #scripts = 0;
  #sweepMs = 0;
  #isPlanned = false;
  #isWatching = false;

  /** @param members what the nodes are called, and this one */
  constructor(client: RedisClient, nodeKey: string, members: string, runtime: Runtime) {
    this.#client = client;
    this.#nodeKey = nodeKey;
    this.#members = members;
    this.#runtime = runtime;
  }

  /** @param settle hears the reply of the command, later, or why there is none */
  call(command: Command, settle: Call['settle']): void {
    const nowMs = this.#runtime.nowMs();
    if (this.#waiting.length >= WAITING_MAX && nowMs >= this.#sweepMs) {
      this.#sweepMs = nowMs + SWEEP_EVERY_MS;
      this.#waiting = dropGivenUp(this.#waiting, nowMs);
    }
    if (this.#waiting.length >= WAITING_MAX) {
      const full = new Error(`${WAITING_MAX} requests wait for this node already`);
      queueMicrotask(() => settle(full));
      return;
    }
    this.#waiting.push({ command, untilMs: nowMs + command.worthMs, settle });
    this.#plan();
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
    const over = this.#waiting.findIndex(({ command }, at) => {
      size += command.keys.length;
      return at > 0 && (at >= CALLS_PER_SCRIPT_MAX || size > KEYS_PER_SCRIPT_MAX);
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
    const replies = await this.#replies(calls);
    this.#scripts -= 1;
    if (this.#waiting.length > 0) this.#plan();
    for (const [at, { settle }] of calls.entries()) settle(replies[at] ?? unexpected(null));
  }

  /** One for each call. Never rejects. */
  async #replies(calls: readonly Call[]): Promise<readonly (Reply | Error)[]> {
    const commands = calls.map(({ command }) => command);
    const script = scriptFor(commands.map(({ name }) => name));
    try {
      const { reply, mayBeLate } = await this.#run(script, commands);
      const { replies, voters } = readReplies(reply, calls.length);
      return replies.map((parts) => {
        if (!Array.isArray(parts)) return unexpected(parts);
        return parts[0] === 'error' ? new Error(String(parts[1])) : { parts, voters, mayBeLate };
      });
    } catch (error) {
      const failure = error instanceof Error ? error : new Error(String(error));
      return calls.map(() => failure);
    }
  }

  async #run(
    { sha1, source }: Script,
    commands: readonly Command[],
  ): Promise<{ readonly reply: unknown; readonly mayBeLate: boolean }> {
    const [keyCount, ...told] = inScript(this.#nodeKey, this.#members, commands);
    try {
      const reply = await this.#client.evalsha(sha1, keyCount, ...told);
      // A cluster may send us elsewhere with it, and what is no client of one connection may send as it likes.
      return { reply, mayBeLate: this.#client.isCluster !== false };
    } catch (error) {
      // The node has not seen the script since it started, or its script cache was flushed.
      if (!(error instanceof Error && error.message.startsWith('NOSCRIPT'))) throw error;
      return { reply: await this.#client.eval(source, keyCount, ...told), mayBeLate: true };
    }
  }
}

/** What EVALSHA takes after the script, as `calls.lua` expects it: how many keys, the keys, and the arguments. */
export function inScript(
  nodeKey: string,
  members: string,
  commands: readonly Command[],
): [keyCount: number, ...keysAndArguments: string[]] {
  const keys = [nodeKey, ...commands.flatMap((command) => command.keys)];
  const calls = `[${commands.map(({ text }) => text).join(',')}]`;
  return [keys.length, ...keys, members, calls];
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
  return calls.filter(({ untilMs, settle }) => {
    const isWanted = untilMs > nowMs;
    if (!isWanted) queueMicrotask(() => settle(new Error('given up before it was sent')));
    return isWanted;
  });
}

/** What came back is none of the script's replies. */
export function unexpected(reply: unknown): Error {
  return new Error(
    `not the reply of a lock script; is this a Redis server? reply=${JSON.stringify(reply)}`,
  );
}
