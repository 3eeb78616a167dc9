import type { Runtime } from '../runtime/runtime.js';
import { CALLS_PER_SCRIPT_MAX, inScript, parted, repliesIn } from './batch-encoding.js';
import type { NodeClient } from './client.js';
import { asError, type Call, unexpected } from './command.js';
import { scriptFor } from './scripts.js';

/** The work of a call grows with its keys: one call for 256 resources fills a script. */
const KEYS_PER_SCRIPT_MAX = 300;
/**
 * Limit of the scripts that a connection has accepted and the node has not answered. After a
 * reconnection, the client may send them much later, when nobody wants their replies.
 */
const SCRIPTS_MAX = 8;
/** Limit of the calls that wait for a node. For a node that is down, more and more would wait. */
const WAITING_MAX = 10_000;
/** Errors of a replica: some refuse scripts before the script can answer `not-master`. */
const OF_REPLICA = /^(?:READONLY|MASTERDOWN)\b/;
/** Errors of a client that gives up a request by itself. */
const TIMED_OUT = /\btimed? ?out\b/i;
/** A busy machine or node is often silent for less. */
const SILENT_MIN_MS = 250;
/** Least time between two searches for calls that were given up, while `WAITING_MAX` calls wait. */
const SWEEP_EVERY_MS = 100;

/**
 * Sends the calls of one tick of the event loop in one script, and passes each call its own reply.
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
  readonly #sendAll = (): void => this.#sendWaiting(this.#runtime.nowMs());
  #waiting: Call<Node>[] = [];
  /** The connection of `#scripts`. */
  #connection = 0;
  #scripts = 0;
  /** The time of the last reply, or of the request that followed it. */
  #silentSinceMs = 0;
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
  ) {
    this.#node = node;
    this.#client = client;
    this.#nodeKeys = nodeKeys;
    this.#members = members;
    this.#runtime = runtime;
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

  /**
   * Replaces the connection if it owes an answer, and was silent for most of the last `silentMs`.
   * While the client connects by itself, it needs no help.
   */
  noteSilence(silentMs: number): void {
    if (this.#scripts === 0 || this.#client.isConnecting) return;
    const leastMs = Math.max(SILENT_MIN_MS, silentMs / 2);
    if (this.#runtime.nowMs() - this.#silentSinceMs < leastMs) return;
    this.replace(this.#connection);
  }

  /** Replaces this connection, if it is the present one. */
  replace(connection: number = this.#client.connection): void {
    this.#client.replace(connection, this.#runtime);
    if (this.#waiting.length > 0) this.#plan();
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
    // By then, all callers of this tick have made their calls.
    process.nextTick(this.#sendAll);
  }

  #sendWaiting(nowMs: number): void {
    this.#isPlanned = false;
    if (this.#client.isConnecting) {
      // Also called if the client gives up connecting. It then rejects the calls itself.
      this.#client.onceConnected(this.#planAgain);
      return;
    }
    if (this.#connection !== this.#client.connection) {
      this.#connection = this.#client.connection;
      this.#scripts = 0;
    }
    while (this.#waiting.length > 0 && this.#scripts < SCRIPTS_MAX) {
      const calls = this.#next(nowMs);
      if (this.#scripts === 0) this.#silentSinceMs = nowMs;
      if (calls.length > 0) void this.#send(calls);
    }
  }

  /** Removes one call or more from `#waiting`. Returns those for the next script. */
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
    const { connection } = this.#client;
    const script = scriptFor(calls);
    const encoded = inScript(this.#nodeKeys, this.#members, calls);
    // Scripts may run in another order: a Cluster may redirect one, or there are more connections.
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
    if (connection === this.#connection) this.#noteAnswer(failure);
    if (connection !== this.#client.connection) mayBeLate = true;
    if (this.#waiting.length > 0) this.#plan();
    if (failure) for (const call of calls) call.onReply(this.#node, failure);
    else this.#pass(calls, reply, mayBeLate, connection);
  }

  #noteAnswer(failure: Error | null): void {
    this.#scripts -= 1;
    if (this.#scripts > 0 && !failure) this.#silentSinceMs = this.#runtime.nowMs();
    if (!failure) return;
    const { message } = failure;
    // A spare that has given up connecting is replaced. The owner's own client is not.
    const isUseless =
      this.#client.isClosed || (TIMED_OUT.test(message) && !this.#client.isConnecting);
    if (isUseless || OF_REPLICA.test(message)) this.replace(this.#connection);
  }

  #pass(
    calls: readonly Call<Node>[],
    reply: unknown,
    mayBeLate: boolean,
    connection: number,
  ): void {
    const text = typeof reply === 'string' ? reply : '';
    const end = text.indexOf('\n');
    const replies = repliesIn(end < 0 ? text : text.slice(0, end));
    const voters = end < 0 ? [] : parted(text.slice(end + 1), '\n');
    const isWhole = replies.length === calls.length;
    if (Array.isArray(replies[0]) && replies[0][0] === 'not-master') this.replace(connection);
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
