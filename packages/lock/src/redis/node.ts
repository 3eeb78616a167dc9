import type { NodeFailure } from '../core/answers.js';
import type { HeldRecord } from '../core/move.js';
import type { Inspection, Nomination, Readmission } from '../core/readmission.js';
import { NODE_TIMEOUT_MAX_MS } from '../core/validity.js';
import { inTime, type Runtime } from '../runtime/runtime.js';
import type { NodeClient } from './client.js';
import { asError, type Call, Command, type Reply } from './command.js';
import { CommandBatcher } from './command-batcher.js';
import { nodeKeys } from './node-keys.js';
import {
  type AdmitReply,
  admitted,
  type CarryReply,
  carried,
  type InspectReply,
  inspected,
  type LeasesReply,
  type LimitReply,
  leases,
  limited,
  type Membership,
  type PrepareReply,
  type PromiseReply,
  prepared,
  promised,
  type RetireReply,
  report,
  retired,
  rosterText,
  type SealReply,
  type StatusReply,
  sealed,
} from './replies.js';
import type { CommandName } from './scripts.js';

/** A client, and the properties of its node. All programs give the node the same name. */
export interface NamedClient {
  readonly name: string;
  readonly client: NodeClient;
  readonly durable: boolean;
}

/** The facts that every script needs besides the request itself. */
export interface NodeOptions extends Membership {
  readonly keyPrefix: string;
}

/** The data with which a node is admitted. */
export interface Admission extends Readmission {
  /** The longest lease that it will grant. */
  readonly maxTtlMs: number;
  readonly recoveryWaitMs: number;
}

/** The fields of the node's hash that one LEASES examines. Redis may examine some more. */
const LEASES_COUNT = 500;

/** Reads a script's reply into an answer. Throws if the reply has an unexpected form. */
export type Read<Answer> = (reply: Reply, service: Membership, node: RedisNode) => Answer;

/**
 * One independent Redis master. Its calls never reject: a failure is an answer, and so is silence
 * for `NODE_TIMEOUT_MAX_MS`. Only `send` may wait as long as the client does.
 */
export class RedisNode {
  readonly name: string;
  /** True if the node loses nothing that it has acknowledged when its process ends. */
  readonly durable: boolean;
  readonly #client: NodeClient;
  readonly #options: NodeOptions;
  readonly #batcher: CommandBatcher<RedisNode>;
  readonly #runtime: Runtime;

  constructor({ name, client, durable }: NamedClient, options: NodeOptions, runtime: Runtime) {
    this.name = name;
    this.durable = durable;
    this.#client = client;
    this.#options = options;
    this.#runtime = runtime;
    const ownKeys = nodeKeys(options.keyPrefix);
    this.#batcher = new CommandBatcher(this, client, ownKeys, options.members, runtime);
  }

  /** State of the client's connection for messages; empty if it is ready. */
  get state(): string {
    const { state } = this.#client;
    return state === 'ready' ? '' : `; its client is ${state}`;
  }

  /** Returns this error. If the connection has reported another error, adds that as the cause. */
  explained(error: Error): Error {
    const cause = this.#client.lastError;
    return cause && cause !== error
      ? new Error(`${error.message}: ${cause.message}`, { cause })
      : error;
  }

  /** @param call is called later, with the reply */
  send(call: Call<RedisNode>): void {
    this.#batcher.call(call);
  }

  /** To be called if a call has been waiting for its reply for `silentMs`. */
  noteSilence(silentMs: number): void {
    this.#batcher.noteSilence(silentMs);
  }

  /** Reads a reply, or describes the failure. */
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

  /**
   * INSPECT: asks for the facts that the node remembers. Also names its incarnation, the data since
   * the last start, flush, failover or restore, if that has no name.
   */
  inspect(): Promise<InspectReply> {
    return this.#run('inspect', [this.#runtime.uniqueId()], inspected);
  }

  /** The node's name, and all names as JSON, in the form in which the node keeps them. */
  get #names(): readonly [string, string] {
    return [this.name, JSON.stringify(this.#options.names)];
  }

  /** PROMISE: asks the inspected incarnation to respect the nominations. */
  promise(seen: Inspection, nominations: readonly Nomination[]): Promise<PromiseReply> {
    const nominated = nominations.flatMap(({ index, incarnation, generation }) => [
      index + 1,
      incarnation,
      generation,
      seen.roster[index]?.generation ?? 0,
    ]);
    const values = [seen.incarnation, ...this.#names, this.#options.names.length, ...nominated];
    return this.#run('promise', values, promised);
  }

  /** ADMIT: lets the inspected incarnation vote. */
  admit(
    seen: Inspection,
    generation: number,
    { roster, floor, longestMs, maxTtlMs, recoveryWaitMs }: Admission,
  ): Promise<AdmitReply> {
    const incarnation = [seen.history, seen.incarnation, generation];
    const known = [rosterText(roster), floor.toString(), longestMs];
    const values = [...incarnation, ...known, maxTtlMs, recoveryWaitMs, ...this.#names];
    return this.#run('admit', values, admitted);
  }

  /** LIMIT: sets the longest lease that the node grants. */
  limit(maxTtlMs: number): Promise<LimitReply> {
    return this.#run('limit', [maxTtlMs], limited);
  }

  /** RETIRE: ends the inspected incarnation, if it votes. */
  retire(seen: Inspection): Promise<RetireReply> {
    return this.#run('retire', [seen.incarnation, this.#runtime.uniqueId()], retired);
  }

  /**
   * SEAL: ends the node's votes for good.
   *
   * @param nextSet as `describeSet` writes it
   * @param names of the nodes of the next set
   */
  seal(nextSet: string, names: readonly string[]): Promise<SealReply> {
    return this.#run('seal', [nextSet, JSON.stringify(names)], sealed);
  }

  /** PREPARE: lets the inspected incarnation wait for a move. */
  prepare(seen: Inspection, isEarly: boolean, previousSet: string): Promise<PrepareReply> {
    const next = this.#runtime.uniqueId();
    return this.#run('prepare', [seen.incarnation, isEarly ? 1 : 0, previousSet, next], prepared);
  }

  /** LEASES: reads some leases of a sealed node. @param hash 1: its present hash; 2: the old one */
  leases(incarnation: string, hash: 1 | 2, cursor: string): Promise<LeasesReply> {
    return this.#run('leases', [incarnation, hash, cursor, LEASES_COUNT], leases);
  }

  /** CARRY: lets the inspected incarnation hold these leases. */
  carry(seen: Inspection, records: readonly HeldRecord[]): Promise<CarryReply> {
    const keys = records.map(({ resource }) => `${this.#options.keyPrefix}queue:${resource}`);
    const values = records.flatMap(({ owner, remainingMs, token }) => [owner, remainingMs, token]);
    return this.#run('carry', [seen.incarnation, ...values], carried, keys);
  }

  /** STATUS: asks for the facts that an operator needs. Changes nothing. */
  async status(): Promise<StatusReply> {
    const askedMs = this.#runtime.wallClockMs();
    const reply = await this.#run('status', [], report);
    if (reply.answer !== 'status') return reply;
    if (reply.role !== 'master') this.#batcher.replace();
    // The node read its clock at some time between the question and the answer.
    const halfwayMs = (askedMs + this.#runtime.wallClockMs()) / 2;
    return { ...reply, clockDifferenceMs: reply.timeMs - halfwayMs };
  }

  /**
   * The setting that says when the append-only file is written to disk, such as `always`. Null if
   * the server does not report it.
   */
  async appendFsync(): Promise<string | null> {
    const asked = this.#client.configGet('appendfsync').catch(() => null);
    const reply = asked.then((policy) => ({ answer: 'policy', policy }) as const);
    const answer = await inTime(this.#runtime, this, reply, NODE_TIMEOUT_MAX_MS);
    return answer.answer === 'policy' ? answer.policy : null;
  }

  #run<Answer>(
    name: CommandName,
    values: readonly (string | number)[],
    read: Read<Answer>,
    keys: readonly string[] = [],
  ): Promise<Answer | NodeFailure> {
    const command = new Command(name, keys, values);
    const untilMs = this.#runtime.nowMs() + NODE_TIMEOUT_MAX_MS;
    const answer = new Promise<Answer | NodeFailure>((resolve) =>
      this.send({ command, untilMs, onReply: (_, reply) => resolve(this.read(reply, read)) }),
    );
    return inTime(this.#runtime, this, answer, NODE_TIMEOUT_MAX_MS);
  }
}
