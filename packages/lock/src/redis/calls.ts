import { inspect } from 'node:util';
import type { Runtime } from '../runtime/runtime.js';
import type { NodeClient, ScriptArguments } from './client.js';
import { type CommandName, scriptFor } from './scripts.js';

/** With its keys and arguments, to be sent to any number of nodes. */
export class Command {
  readonly name: CommandName;
  readonly keys: readonly string[];
  readonly values: readonly string[];

  constructor(name: CommandName, keys: readonly string[], values: readonly (string | number)[]) {
    this.name = name;
    this.keys = keys;
    this.values = values.map(String);
  }

  /** Whether it differs in its first argument only, which is another for each call as a rule, and in what its keys are. */
  isLike({ name, keys, values }: Command): boolean {
    if (name !== this.name || keys.length !== this.keys.length) return false;
    return (
      values.length === this.values.length &&
      this.values.every((value, at) => at === 0 || value === values[at])
    );
  }
}

/** What came back for a command, and the voters whose places a vote names, from 1. */
export interface Reply {
  readonly parts: readonly unknown[];
  readonly voters: readonly string[];
  /** Whether the command may have been carried out after what was sent later. */
  readonly mayBeLate: boolean;
}

/** A command that any number of nodes are asked to carry out, and who hears of it. */
export interface Call<Node> {
  readonly command: Command;
  /** When nobody waits for it any more, on the runtime's monotonic clock: it is not sent after that. */
  readonly untilMs: number;
  /** Hears what each node replies, later, or why there is no reply. Never throws. */
  hear(node: Node, reply: Reply | Error): void;
}

/** So that a node which serves many is not held up for long by one. */
const CALLS_PER_SCRIPT_MAX = 100;
/** The work of a call grows with its keys: one call for 256 resources fills a script. */
const KEYS_PER_SCRIPT_MAX = 300;
/** How many scripts may be under way to a node. What the client has taken may be carried out much later, after a reconnection. */
const SCRIPTS_MAX = 8;
/** How many calls may wait for that: a node that is down would else collect them without end. */
const WAITING_MAX = 10_000;
/** How often those are looked through for some that were given up, where there is no more room. */
const SWEEP_EVERY_MS = 100;

/**
 * What the nodes are to be sent of what is asked in one tick: at its end, when everything that can run has run, all of it in one go.
 */
export class Tick {
  /** The replies to it, which nodes that agree tell alike. */
  readonly replies: ToldList = new ToldList();
  /** What one node was sent: the next is to be sent the same, as a rule. */
  readonly sent: Sent = new Sent();
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
 * Sends the calls that are made in one tick as one script call, and tells each its own reply. Calls wait here, not in the client,
 * while that is not connected or much is under way; those that are given up meanwhile are never sent.
 */
export class Calls<Node> {
  readonly #node: Node;
  readonly #client: NodeClient;
  readonly #nodeKeys: readonly string[];
  readonly #members: string;
  readonly #runtime: Runtime;
  readonly #tick: Tick;
  readonly #sendAll = (nowMs: number): void => this.#sendWaiting(nowMs);
  #waiting: Call<Node>[] = [];
  #scripts = 0;
  #sweepMs = 0;
  #isPlanned = false;
  readonly #planAgain = (): void => this.#plan();

  /**
   * @param node whom those who ask know it by
   * @param nodeKeys what every script has of this node
   * @param members what the nodes are called, and this one
   */
  constructor(
    node: Node,
    client: NodeClient,
    nodeKeys: readonly string[],
    members: string,
    runtime: Runtime,
    tick: Tick,
  ) {
    this.#node = node;
    this.#client = client;
    this.#nodeKeys = nodeKeys;
    this.#members = members;
    this.#runtime = runtime;
    this.#tick = tick;
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

  /** Room for others, where some were given up. */
  #sweep(): void {
    const nowMs = this.#runtime.nowMs();
    if (nowMs < this.#sweepMs) return;
    this.#sweepMs = nowMs + SWEEP_EVERY_MS;
    this.#waiting = this.#waiting.filter((call) => this.#isWanted(call, nowMs));
  }

  #plan(): void {
    if (this.#isPlanned) return;
    this.#isPlanned = true;
    this.#tick.plan(this.#sendAll);
  }

  #sendWaiting(nowMs: number): void {
    this.#isPlanned = false;
    if (this.#client.isConnecting) {
      // A client that has given up says so itself to who asks it then.
      this.#client.onceConnected(this.#planAgain);
      return;
    }
    while (this.#waiting.length > 0 && this.#scripts < SCRIPTS_MAX) {
      const calls = this.#next(nowMs);
      if (calls.length > 0) void this.#send(calls);
    }
  }

  /** Those for the next script, as many as one may carry: of all that wait at least one is taken away. */
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
    queueMicrotask(() => call.hear(this.#node, new Error(why)));
  }

  async #send(calls: readonly Call<Node>[]): Promise<void> {
    this.#scripts += 1;
    const script = scriptFor(calls);
    const told = inScript(this.#nodeKeys, this.#members, calls, this.#tick.sent);
    // A cluster may send us elsewhere with it, and what is no client of one connection may send as it likes.
    let mayBeLate = !this.#client.isOrdered;
    let reply: unknown;
    let failure: Error | null = null;
    try {
      reply = await this.#client.evalsha(script.sha1, told);
    } catch (error) {
      failure = asError(error);
    }
    // The node has not seen the script since it started, or its script cache was flushed.
    if (failure?.message.startsWith('NOSCRIPT')) {
      mayBeLate = true;
      try {
        reply = await this.#client.eval(script.source, told);
        failure = null;
      } catch (error) {
        failure = asError(error);
      }
    }
    this.#scripts -= 1;
    if (this.#waiting.length > 0) this.#plan();
    if (failure) for (const call of calls) call.hear(this.#node, failure);
    else this.#tell(calls, reply, mayBeLate);
  }

  #tell(calls: readonly Call<Node>[], reply: unknown, mayBeLate: boolean): void {
    const text = typeof reply === 'string' ? reply : '';
    const end = text.indexOf('\n');
    const replies = this.#tick.replies.of(end < 0 ? text : text.slice(0, end));
    const voters = end < 0 ? [] : parted(text.slice(end + 1), '\n');
    const isWhole = replies.length === calls.length;
    let at = 0;
    for (const call of calls) {
      const parts = isWhole ? replies[at] : null;
      at += 1;
      if (!Array.isArray(parts)) call.hear(this.#node, unexpected(reply));
      else if (parts[0] === 'error' && typeof parts[1] === 'string') {
        call.hear(this.#node, new Error(parts[1]));
      } else call.hear(this.#node, { parts, voters, mayBeLate });
    }
  }
}

/**
 * What EVALSHA takes after the script: how many keys, the keys, and the arguments, as `alone.lua` expects them for a single call, and
 * `calls.lua` for several.
 *
 * @param sent to another node with the same keys
 */
export function inScript(
  nodeKeys: readonly string[],
  members: string,
  calls: Sent['calls'],
  sent: Sent = new Sent(),
): ScriptArguments {
  if (!sent.isOf(calls)) sent.begin(nodeKeys, calls);
  return [sent.keys.length, ...sent.keys, members, ...sent.values];
}

/** The calls of one script, as each node is sent them, but for what it is called. */
class Sent {
  calls: readonly { readonly command: Command }[] = [];
  keys: readonly string[] = [];
  values: readonly string[] = [];

  isOf(calls: Sent['calls']): boolean {
    return calls.length === this.calls.length && calls.every((call, at) => call === this.calls[at]);
  }

  begin(nodeKeys: readonly string[], calls: Sent['calls']): void {
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

function inRuns(calls: Sent['calls']): string {
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

/** Half a character would be no JSON for Redis, and fail all that travels in the same script. */
function wellFormed(value: string): string {
  return value.toWellFormed();
}

/** `split`, which is much work where there is nothing to be split, as is mostly so. */
function parted(text: string, separator: string): readonly string[] {
  return text.includes(separator) ? text.split(separator) : [text];
}

/** A list that is often told in the same words as the last: they are not read again. */
class ToldList {
  #text = '';
  #list: readonly unknown[] = [];

  /** Empty where the text is no list. Nothing may change it: others get the same. */
  of(text: string): readonly unknown[] {
    if (text === this.#text) return this.#list;
    // A list of one, whose parts are words, is written without JSON where that is worth it.
    this.#list = text.startsWith('[') ? inList(text) : [parted(text, ' ')];
    this.#text = text;
    return this.#list;
  }
}

/** How many parts replies to many calls have alike. */
const LIKE_MAX = 2;

/** What stands for the replies to a run of calls, as `calls.lua` tells it, or one reply. */
export function eachOf(told: unknown): unknown[] {
  if (Array.isArray(told) || typeof told !== 'object' || told === null) return [told];
  const { like, each, times = 0 }: { like?: unknown; each?: unknown; times?: unknown } = told;
  const count = Array.isArray(each) ? each.length : times;
  if (!Array.isArray(like) || like.length > LIKE_MAX) return [told];
  if (typeof count !== 'number' || count > CALLS_PER_SCRIPT_MAX) return [told];
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

/** What came back is none of the script's replies. */
export function unexpected(reply: unknown): Error {
  const told = typeof reply === 'string' ? JSON.stringify(reply) : inspect(reply);
  return new Error(`not the reply of a lock script; is this a Redis server? reply=${told}`);
}
