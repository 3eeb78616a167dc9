import { inspect } from 'node:util';
import type { Runtime } from '../runtime/runtime.js';
import type { NodeClient, ScriptArguments } from './client.js';
import { type CommandName, scriptFor } from './scripts.js';

/** A command with its keys and arguments. Any number of nodes may get it. */
export class Command {
  readonly name: CommandName;
  readonly keys: readonly string[];
  readonly values: readonly string[];

  constructor(name: CommandName, keys: readonly string[], values: readonly (string | number)[]) {
    this.name = name;
    this.keys = keys;
    this.values = values.map(String);
  }

  /** True if at most the first argument and the keys differ, as in most calls of a command. */
  isLike({ name, keys, values }: Command): boolean {
    if (name !== this.name || keys.length !== this.keys.length) return false;
    return (
      values.length === this.values.length &&
      this.values.every((value, at) => at === 0 || value === values[at])
    );
  }
}

/** The reply to a command. A vote names one of `voters` by its place, from 1. */
export interface Reply {
  readonly parts: readonly unknown[];
  readonly voters: readonly string[];
  /** True if the node may have run the command after commands that were sent later. */
  readonly mayBeLate: boolean;
}

/** A command for any number of nodes, and the receiver of their replies. */
export interface Call<Node> {
  readonly command: Command;
  /** End of the wait for it, on the runtime's monotonic clock. It is not sent after that. */
  readonly untilMs: number;
  /** Called later, with each node's reply or the reason why there is none. Never throws. */
  onReply(node: Node, reply: Reply | Error): void;
}

/** Limits the time for which one process can hold up a node that serves many. */
const CALLS_PER_SCRIPT_MAX = 100;
/** The work of a call grows with its keys: one call for 256 resources fills a script. */
const KEYS_PER_SCRIPT_MAX = 300;
/**
 * Limit of the scripts under way to a node. After a reconnection, the client may still send what it
 * has accepted, much later.
 */
const SCRIPTS_MAX = 8;
/** Limit of the calls that wait for a node. A node that is down would collect more and more. */
const WAITING_MAX = 10_000;
/** Least time between two searches for calls that were given up, when there is no more room. */
const SWEEP_EVERY_MS = 100;

/**
 * Collects the calls of one tick, and sends them together at its end. Everything that can run has
 * run by then.
 */
export class FlushCycle {
  /** Replies to these calls. Nodes that agree send the same text. */
  readonly replies: ReplyCache = new ReplyCache();
  /** The calls as one node gets them. As a rule, the next node gets the same. */
  readonly sent: EncodedBatch = new EncodedBatch();
  readonly #runtime: Runtime;
  #planned: ((nowMs: number) => void)[] = [];
  readonly #end = (): void => {
    const planned = this.#planned;
    this.#planned = [];
    const nowMs = this.#runtime.nowMs();
    for (const send of planned) send(nowMs);
    this.sent.forget();
  };

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  plan(send: (nowMs: number) => void): void {
    if (this.#planned.push(send) === 1) process.nextTick(this.#end);
  }
}

/**
 * Sends the calls of one tick in one script, and passes each call its own reply.
 *
 * Calls wait here, not in the client, while the client connects or many scripts are under way. So a
 * call that is given up meanwhile is never sent.
 */
export class CommandBatcher<Node> {
  readonly #node: Node;
  readonly #client: NodeClient;
  readonly #nodeKeys: readonly string[];
  readonly #members: string;
  readonly #runtime: Runtime;
  readonly #cycle: FlushCycle;
  readonly #sendAll = (nowMs: number): void => this.#sendWaiting(nowMs);
  #waiting: Call<Node>[] = [];
  #scripts = 0;
  #sweepMs = 0;
  #isPlanned = false;
  readonly #planAgain = (): void => this.#plan();

  /**
   * @param node the first argument of `onReply`
   * @param nodeKeys the keys that every script has of this node
   * @param members storage version, and a digest of the names of all nodes and of this one
   */
  constructor(
    node: Node,
    client: NodeClient,
    nodeKeys: readonly string[],
    members: string,
    runtime: Runtime,
    cycle: FlushCycle,
  ) {
    this.#node = node;
    this.#client = client;
    this.#nodeKeys = nodeKeys;
    this.#members = members;
    this.#runtime = runtime;
    this.#cycle = cycle;
  }

  call(call: Call<Node>): void {
    if (this.#waiting.length >= WAITING_MAX) this.#sweep();
    if (this.#waiting.length >= WAITING_MAX) {
      this.#refuse(call, `${WAITING_MAX} requests wait for this node already`);
      return;
    }
    this.#waiting.push(call);
    this.#plan();
  }

  /** Makes room: removes calls that were given up. */
  #sweep(): void {
    const nowMs = this.#runtime.nowMs();
    if (nowMs < this.#sweepMs) return;
    this.#sweepMs = nowMs + SWEEP_EVERY_MS;
    this.#waiting = this.#waiting.filter((call) => this.#isWanted(call, nowMs));
  }

  #plan(): void {
    if (this.#isPlanned) return;
    this.#isPlanned = true;
    this.#cycle.plan(this.#sendAll);
  }

  #sendWaiting(nowMs: number): void {
    this.#isPlanned = false;
    if (this.#client.isConnecting) {
      // A client that has given up rejects the calls itself.
      this.#client.onceConnected(this.#planAgain);
      return;
    }
    while (this.#waiting.length > 0 && this.#scripts < SCRIPTS_MAX) {
      const calls = this.#next(nowMs);
      if (calls.length > 0) void this.#send(calls);
    }
  }

  /** The calls for the next script, as many as it may carry. Removes at least one that waits. */
  #next(nowMs: number): readonly Call<Node>[] {
    const calls: Call<Node>[] = [];
    let taken = 0;
    let keys = 0;
    for (const call of this.#waiting) {
      keys += call.command.keys.length;
      if (
        calls.length > 0 &&
        (calls.length === CALLS_PER_SCRIPT_MAX || keys > KEYS_PER_SCRIPT_MAX)
      ) {
        break;
      }
      taken += 1;
      if (this.#isWanted(call, nowMs)) calls.push(call);
    }
    this.#waiting = taken === this.#waiting.length ? [] : this.#waiting.slice(taken);
    return calls;
  }

  #isWanted(call: Call<Node>, nowMs: number): boolean {
    const isWanted = call.untilMs > nowMs;
    if (!isWanted) this.#refuse(call, 'given up before it was sent');
    return isWanted;
  }

  #refuse(call: Call<Node>, why: string): void {
    queueMicrotask(() => call.onReply(this.#node, new Error(why)));
  }

  async #send(calls: readonly Call<Node>[]): Promise<void> {
    this.#scripts += 1;
    const script = scriptFor(calls);
    const encoded = inScript(this.#nodeKeys, this.#members, calls, this.#cycle.sent);
    // A Cluster may redirect a script. Several connections do not keep the order of commands.
    let mayBeLate = !this.#client.isOrdered;
    let reply: unknown;
    let failure: Error | null = null;
    try {
      reply = await this.#client.evalsha(script.sha1, encoded);
    } catch (error) {
      failure = asError(error);
    }
    // The node has not seen the script since it started, or its script cache was flushed.
    if (failure?.message.startsWith('NOSCRIPT')) {
      mayBeLate = true;
      try {
        reply = await this.#client.eval(script.source, encoded);
        failure = null;
      } catch (error) {
        failure = asError(error);
      }
    }
    this.#scripts -= 1;
    if (this.#waiting.length > 0) this.#plan();
    if (failure) for (const call of calls) call.onReply(this.#node, failure);
    else this.#pass(calls, reply, mayBeLate);
  }

  #pass(calls: readonly Call<Node>[], reply: unknown, mayBeLate: boolean): void {
    const text = typeof reply === 'string' ? reply : '';
    const end = text.indexOf('\n');
    const replies = this.#cycle.replies.of(end < 0 ? text : text.slice(0, end));
    const voters = end < 0 ? [] : parted(text.slice(end + 1), '\n');
    const isWhole = replies.length === calls.length;
    let at = 0;
    for (const call of calls) {
      const parts = isWhole ? replies[at] : null;
      at += 1;
      if (!Array.isArray(parts)) call.onReply(this.#node, unexpected(reply));
      else if (parts[0] === 'error' && typeof parts[1] === 'string') {
        call.onReply(this.#node, new Error(parts[1]));
      } else call.onReply(this.#node, { parts, voters, mayBeLate });
    }
  }
}

/**
 * The arguments of EVALSHA after the script: the number of keys, the keys, and the values.
 * `alone.lua` reads the values of a single call, and `calls.lua` those of several.
 *
 * @param sent the same for another node with the same keys
 */
export function inScript(
  nodeKeys: readonly string[],
  members: string,
  calls: EncodedBatch['calls'],
  sent: EncodedBatch = new EncodedBatch(),
): ScriptArguments {
  if (!sent.isOf(calls)) sent.begin(nodeKeys, calls);
  return [sent.keys.length, ...sent.keys, members, ...sent.values];
}

/** The calls of one script as every node gets them. Only `members` differs by node. */
class EncodedBatch {
  calls: readonly { readonly command: Command }[] = [];
  keys: readonly string[] = [];
  values: readonly string[] = [];

  isOf(calls: EncodedBatch['calls']): boolean {
    return calls.length === this.calls.length && calls.every((call, at) => call === this.calls[at]);
  }

  begin(nodeKeys: readonly string[], calls: EncodedBatch['calls']): void {
    this.calls = calls;
    const keys = [...nodeKeys];
    for (const { command } of calls) for (const key of command.keys) keys.push(key);
    this.keys = keys;
    const [only] = calls;
    const isAlone = only !== undefined && calls.length === 1;
    this.values = isAlone ? [only.command.name, ...only.command.values] : [inRuns(calls)];
  }

  forget(): void {
    this.calls = [];
  }
}

function inRuns(calls: EncodedBatch['calls']): string {
  const runs: unknown[][] = [];
  let run: unknown[] = [];
  let before: Command | null = null;
  for (const { command } of calls) {
    if (!before || !command.isLike(before)) {
      run = [command.name, command.keys.length, command.values.slice(1).map(wellFormed)];
      runs.push(run);
    }
    run.push(wellFormed(command.values[0] ?? ''));
    before = command;
  }
  return JSON.stringify(runs);
}

/** Half a surrogate pair is invalid JSON for Redis. It would fail all calls of the script. */
function wellFormed(value: string): string {
  return value.toWellFormed();
}

/** Like `split`, but fast if there is nothing to split, as in most cases. */
function parted(text: string, separator: string): readonly string[] {
  return text.includes(separator) ? text.split(separator) : [text];
}

/** Parses lists of replies. Often a text equals the last one. Then it is not parsed again. */
class ReplyCache {
  #text = '';
  #list: readonly unknown[] = [];

  /** Empty if the text is no list. Callers share the list, so they must not change it. */
  of(text: string): readonly unknown[] {
    if (text === this.#text) return this.#list;
    // The script of a single call may write its reply without JSON, as words, to save work.
    this.#list = text.startsWith('[') ? inList(text) : [parted(text, ' ')];
    this.#text = text;
    return this.#list;
  }
}

/** Limit of the parts that all replies to a run of calls have in common. */
const LIKE_MAX = 2;

/** The replies to a run of calls that `calls.lua` has combined into one; or one reply. */
export function eachOf(reply: unknown): unknown[] {
  if (Array.isArray(reply) || typeof reply !== 'object' || reply === null) return [reply];
  const { like, each, times = 0 }: { like?: unknown; each?: unknown; times?: unknown } = reply;
  const count = Array.isArray(each) ? each.length : times;
  if (!Array.isArray(like) || like.length > LIKE_MAX) return [reply];
  if (typeof count !== 'number' || count > CALLS_PER_SCRIPT_MAX) return [reply];
  const [answer, ...others] = like;
  return Array.isArray(each)
    ? each.map((part) => [answer, part, ...others])
    : new Array(count).fill(like);
}

function inList(text: string): readonly unknown[] {
  try {
    const list: unknown = JSON.parse(text);
    return Array.isArray(list) && list.length <= CALLS_PER_SCRIPT_MAX ? list.flatMap(eachOf) : [];
  } catch {
    return [];
  }
}

export function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}

/** An error for a reply that is none of the script's. */
export function unexpected(reply: unknown): Error {
  const shown = typeof reply === 'string' ? JSON.stringify(reply) : inspect(reply);
  return new Error(`not the reply of a lock script; is this a Redis server? reply=${shown}`);
}
