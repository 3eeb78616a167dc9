import type { Claim, Inspection, Readmission } from '../core/readmission.js';
import { NODE_TIMEOUT_MAX_MS } from '../core/validity.js';
import type { Runtime } from '../runtime/runtime.js';
import { asError, type Call, Calls, Command, type Reply, Tick } from './calls.js';
import type { NodeClient } from './client.js';
import { nodeKeys } from './node-keys.js';
import {
  type AdmitReply,
  admitted,
  type InspectReply,
  inspected,
  type Membership,
  type NodeFailure,
  type PromiseReply,
  promised,
  type RetireReply,
  report,
  retired,
  rosterText,
  type StatusReply,
} from './replies.js';
import type { CommandName } from './scripts.js';

/** A client, the name that all programs give its node, and what they know of it. */
export interface NamedClient {
  readonly name: string;
  readonly client: NodeClient;
  readonly durable: boolean;
}

/** What every script needs to know besides the request itself. */
export interface NodeOptions extends Membership {
  readonly keyPrefix: string;
  readonly maxTtlMs: number;
}

/** Makes an answer of a reply; throws where it is none. */
export type Read<Answer> = (reply: Reply, service: Membership, node: RedisNode) => Answer;

/** One independent Redis master. Its calls never reject: a failure is an answer. They may hang as long as the client does. */
export class RedisNode {
  readonly name: string;
  /** Whether nothing that it has acknowledged is lost when its process ends. */
  readonly durable: boolean;
  readonly #client: NodeClient;
  readonly #options: NodeOptions;
  readonly #calls: Calls<RedisNode>;
  readonly #runtime: Runtime;

  /** @param tick of all nodes that are asked together */
  constructor(
    { name, client, durable }: NamedClient,
    options: NodeOptions,
    runtime: Runtime,
    tick: Tick = new Tick(runtime),
  ) {
    this.name = name;
    this.durable = durable;
    this.#client = client;
    this.#options = options;
    this.#runtime = runtime;
    const ownKeys = nodeKeys(options.keyPrefix);
    this.#calls = new Calls(this, client, ownKeys, options.members, runtime, tick);
  }

  /** For messages: what the client says of its connection, where that is not ready. */
  get state(): string {
    const { state } = this.#client;
    return state === 'ready' ? '' : `; its client is ${state}`;
  }

  /** This error, with what has become of the client's connection as its cause, where that is known. */
  explained(error: Error): Error {
    const cause = this.#client.lastError;
    return cause && cause !== error
      ? new Error(`${error.message}: ${cause.message}`, { cause })
      : error;
  }

  /** @param call hears the reply, later */
  send(call: Call<RedisNode>): void {
    this.#calls.call(call);
  }

  /** What the reply says. */
  read<Answer>(reply: Reply | Error, read: Read<Answer>): Answer | NodeFailure {
    if (reply instanceof Error) {
      const isFull = reply.message.includes('OOM command not allowed');
      return { answer: isFull ? 'memory-full' : 'error', error: this.explained(reply) };
    }
    try {
      return read(reply, this.#options, this);
    } catch (error) {
      return { answer: 'error', error: asError(error) };
    }
  }

  /** Asks what the node remembers; `name` becomes its incarnation's if that has none. */
  inspect(name: string): Promise<InspectReply> {
    return this.#run('inspect', [name], inspected);
  }

  /** This node's name and those of all, as the node keeps them. */
  get #names(): readonly [string, string] {
    return [this.name, JSON.stringify(this.#options.names)];
  }

  /** Asks the incarnation that was inspected to promise that it respects the claims. */
  promise(seen: Inspection, claims: readonly Claim[]): Promise<PromiseReply> {
    const told = claims.flatMap(({ index, incarnation, generation }) => [
      index + 1,
      incarnation,
      generation,
      seen.roster[index]?.generation ?? 0,
    ]);
    const values = [seen.incarnation, ...this.#names, this.#options.names.length, ...told];
    return this.#run('promise', values, promised);
  }

  admit(
    seen: Inspection,
    generation: number,
    readmission: Readmission,
    quarantineMs: number,
  ): Promise<AdmitReply> {
    const { maxTtlMs } = this.#options;
    const { roster, floor, longestMs } = readmission;
    const life = [seen.history, seen.incarnation, generation];
    const known = [rosterText(roster), floor.toString(), longestMs];
    const values = [...life, ...known, maxTtlMs, quarantineMs, ...this.#names];
    return this.#run('admit', values, admitted);
  }

  /** Ends the incarnation that was inspected, if it has a vote; `name` becomes the next one's. */
  retire(seen: Inspection, name: string): Promise<RetireReply> {
    return this.#run('retire', [seen.incarnation, name], retired);
  }

  /** Asks what an operator wants to know; changes nothing. */
  status(): Promise<StatusReply> {
    return this.#run('status', [], report);
  }

  /** When the append-only file is written through, as `always`; null where the server does not tell. Never rejects. */
  async appendFsync(): Promise<string | null> {
    try {
      return await this.#client.configGet('appendfsync');
    } catch {
      return null;
    }
  }

  #run<Answer>(
    name: CommandName,
    values: readonly (string | number)[],
    read: Read<Answer>,
  ): Promise<Answer | NodeFailure> {
    const command = new Command(name, [], values);
    const untilMs = this.#runtime.nowMs() + NODE_TIMEOUT_MAX_MS;
    return new Promise((resolve) =>
      this.send({ command, untilMs, hear: (_, reply) => resolve(this.read(reply, read)) }),
    );
  }
}
