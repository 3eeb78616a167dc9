import type { Admission, Claim, Inspection, Promised } from '../core/admission.js';
import type { VoteReply } from '../core/answers.js';
import type { Roster } from '../core/quorum.js';
import {
  acquireScript,
  admitScript,
  confirmScript,
  extendScript,
  inspectScript,
  promiseScript,
  releaseScript,
  retireScript,
  type Script,
} from './scripts.js';

/** What is used of an ioredis client: a `Redis`, or a `Cluster` seen as one node. */
export interface RedisClient {
  /** What the client says of its connection, `ready` where it is fine. */
  readonly status?: string;
  evalsha(
    sha1: string,
    keyCount: number,
    ...keysAndArguments: (string | number)[]
  ): Promise<unknown>;
  eval(
    script: string,
    keyCount: number,
    ...keysAndArguments: (string | number)[]
  ): Promise<unknown>;
}

/** A client, the name that all programs give its node, and what they know of it. */
export interface NamedClient {
  readonly name: string;
  readonly client: RedisClient;
  readonly durable: boolean;
}

/** What one lease holds, and under which owner id. */
export interface Holding {
  /** Sorted. */
  readonly resources: readonly string[];
  /** Random, of one attempt, never used again. */
  readonly owner: string;
}

/** What every script needs to know besides the request itself. */
export interface NodeOptions {
  readonly keyPrefix: string;
  readonly fenceTtlMs: number;
  readonly maxTtlMs: number;
  /** Digest of the sorted node names and of this node's own. */
  readonly members: string;
  /** How many generations a roster must have. */
  readonly nodeCount: number;
}

export type NodeFailure = { readonly answer: 'error'; readonly error: Error };
export type ExtendReply =
  | { readonly answer: 'extended' }
  | Exclude<VoteReply, { readonly answer: 'granted' | 'held' }>;
export type ReleaseReply = { readonly answer: 'released' | 'not-held' } | NodeFailure;
export type InspectReply = ({ readonly answer: 'inspected' } & Inspection) | NodeFailure;
export type PromiseReply =
  | ({ readonly answer: 'promised' } & Omit<Promised, 'index'>)
  | { readonly answer: 'refused' | 'changed' | 'wrong-members' }
  | NodeFailure;
export type AdmitReply =
  | { readonly answer: 'admitted' | 'already-admitted' | 'changed' | 'wrong-members' }
  | { readonly answer: 'too-early'; readonly leftMs: number }
  | NodeFailure;
export type RetireReply = { readonly answer: 'retired' | 'changed' } | NodeFailure;

/** One independent Redis master. Its calls never reject: a failure is an answer. They may hang as long as the client does. */
export class RedisNode {
  readonly name: string;
  /** Whether nothing that it has acknowledged is lost when its process ends. */
  readonly durable: boolean;
  readonly #client: RedisClient;
  readonly #options: NodeOptions;
  /** The ACQUIRE of each owner that has not been answered. */
  readonly #underWay = new Map<string, Promise<VoteReply>>();

  constructor({ name, client, durable }: NamedClient, options: NodeOptions) {
    this.name = name;
    this.durable = durable;
    this.#client = client;
    this.#options = options;
  }

  /** For messages: what the client says of its connection, where that is not ready. */
  get state(): string {
    const { status = 'ready' } = this.#client;
    return status === 'ready' ? '' : `; its client is ${status}`;
  }

  /** Whether the node was admitted by clients who name all nodes, and this one, alike; true where it was never admitted. */
  isKnownAs(seen: Inspection): boolean {
    return seen.members === '' || seen.members === this.#options.members;
  }

  /** ACQUIRE: takes the locks of all resources or none. */
  async acquire(holding: Holding, ttlMs: number): Promise<VoteReply> {
    const { members, fenceTtlMs } = this.#options;
    const values = [holding.owner, ttlMs, members, fenceTtlMs];
    const reply = this.#run(acquireScript, this.#lockAndFence(holding), values, this.#vote);
    this.#underWay.set(holding.owner, reply);
    try {
      return await reply;
    } finally {
      this.#underWay.delete(holding.owner);
    }
  }

  /** CONFIRM: raises the node to `token`, if the attempt still holds the locks there. */
  confirm(holding: Holding, token: bigint): Promise<VoteReply> {
    const { members, fenceTtlMs } = this.#options;
    const values = [holding.owner, token.toString(), members, fenceTtlMs];
    return this.#run(confirmScript, this.#lockAndFence(holding), values, this.#vote);
  }

  extend(holding: Holding, ttlMs: number): Promise<ExtendReply> {
    const values = [holding.owner, ttlMs, this.#options.members];
    return this.#run(extendScript, this.#lock(holding), values, (reply) =>
      reply[0] === 'extended' ? { answer: 'extended' } : refusal(reply),
    );
  }

  release(holding: Holding): Promise<ReleaseReply> {
    // An ACQUIRE that falls back to EVAL is carried out after this, and would lock everybody out until its TTL ends.
    void this.#underWay.get(holding.owner)?.then((vote) => {
      if (vote.answer === 'granted') void this.#release(holding);
    });
    return this.#release(holding);
  }

  #release(holding: Holding): Promise<ReleaseReply> {
    return this.#run(releaseScript, this.#lock(holding), [holding.owner], (reply) => ({
      answer: oneOf(reply, 'released', 'not-held'),
    }));
  }

  /** Asks what the node remembers; `name` becomes its incarnation's if that has none. */
  inspect(name: string): Promise<InspectReply> {
    return this.#run(inspectScript, [], [name], (reply) => this.#inspection(reply));
  }

  /** Asks the incarnation that was inspected to promise that it respects the claims. */
  promise(seen: Inspection, claims: readonly Claim[]): Promise<PromiseReply> {
    const { members, nodeCount } = this.#options;
    const told = claims.flatMap(({ index, incarnation, limit, generation }) => [
      index + 1,
      incarnation,
      limit,
      generation,
    ]);
    const values = [seen.incarnation, members, nodeCount, ...told];
    return this.#run(promiseScript, [], values, (reply) => this.#promised(reply));
  }

  admit(
    seen: Inspection,
    generation: number,
    admission: Admission,
    quarantineMs: number,
  ): Promise<AdmitReply> {
    const { members, maxTtlMs } = this.#options;
    const { roster, floor, longestMs } = admission;
    const life = [seen.runId, seen.incarnation, generation];
    const known = [rosterText(roster), floor.toString(), longestMs];
    const values = [...life, ...known, members, maxTtlMs, quarantineMs];
    return this.#run(admitScript, [], values, (reply) =>
      reply[0] === 'too-early'
        ? { answer: 'too-early', leftMs: wholeNumber(reply[1]) }
        : { answer: oneOf(reply, 'admitted', 'already-admitted', 'changed', 'wrong-members') },
    );
  }

  /** Ends the incarnation that was inspected, if it has a vote; `name` becomes the next one's. */
  retire(seen: Inspection, name: string): Promise<RetireReply> {
    return this.#run(retireScript, [], [seen.incarnation, name], (reply) => ({
      answer: oneOf(reply, 'retired', 'changed'),
    }));
  }

  readonly #vote = (reply: readonly unknown[]): VoteReply => {
    const [answer, first, generation, incarnation, known] = reply;
    if (answer === 'held') return { answer, remainingMs: wholeNumber(first) };
    if (answer !== 'granted') return refusal(reply);
    const life = { generation: wholeNumber(generation), incarnation: text(incarnation) };
    return { answer, token: BigInt(text(first)), ...life, roster: this.#roster(known) };
  };

  #inspection(reply: readonly unknown[]): InspectReply {
    const [, runId, incarnation, admitted, generation, known, max, longest, members, waited] =
      reply;
    return {
      answer: oneOf(reply, 'inspected'),
      runId: text(runId),
      incarnation: text(incarnation),
      admitted: wholeNumber(admitted) === 1,
      generation: wholeNumber(generation),
      roster: known === '' ? [] : this.#roster(known),
      max: BigInt(text(max)),
      longestMs: wholeNumber(longest),
      members: text(members),
      waitedMs: wholeNumber(waited),
    };
  }

  #promised(reply: readonly unknown[]): PromiseReply {
    const [answer, max, longest, admitted, generation, incarnation, known] = reply;
    if (answer !== 'promised')
      return { answer: oneOf(reply, 'refused', 'changed', 'wrong-members') };
    return {
      answer,
      max: BigInt(text(max)),
      longestMs: wholeNumber(longest),
      admitted: wholeNumber(admitted) === 1,
      generation: wholeNumber(generation),
      incarnation: text(incarnation),
      roster: this.#roster(known),
    };
  }

  #roster(value: unknown): Roster {
    const roster = text(value)
      .split(',')
      .map((entry) => {
        const [generation, incarnation] = entry.split(':');
        return { generation: wholeNumber(generation), incarnation: text(incarnation) };
      });
    if (roster.length !== this.#options.nodeCount) throw unexpected(value);
    return roster;
  }

  #lock(holding: Holding): string[] {
    return holding.resources.map((resource) => `${this.#options.keyPrefix}lock:${resource}`);
  }

  #lockAndFence(holding: Holding): string[] {
    const { keyPrefix } = this.#options;
    return holding.resources.flatMap((resource) => [
      `${keyPrefix}lock:${resource}`,
      `${keyPrefix}fence:${resource}`,
    ]);
  }

  async #run<Reply>(
    script: Script,
    keys: readonly string[],
    values: readonly (string | number)[],
    read: (reply: readonly unknown[]) => Reply,
  ): Promise<Reply | NodeFailure> {
    const allKeys = [`${this.#options.keyPrefix}node`, ...keys];
    try {
      return read(asArray(await this.#send(script, allKeys.length, [...allKeys, ...values])));
    } catch (error) {
      return { answer: 'error', error: error instanceof Error ? error : new Error(String(error)) };
    }
  }

  async #send(
    script: Script,
    keyCount: number,
    keysAndValues: readonly (string | number)[],
  ): Promise<unknown> {
    try {
      return await this.#client.evalsha(script.sha1, keyCount, ...keysAndValues);
    } catch (error) {
      // The node has not seen the script since it started, or its script cache was flushed.
      if (!(error instanceof Error && error.message.startsWith('NOSCRIPT'))) throw error;
      return this.#client.eval(script.source, keyCount, ...keysAndValues);
    }
  }
}

function refusal(
  reply: readonly unknown[],
): Exclude<VoteReply, { readonly answer: 'granted' | 'held' }> {
  if (reply[0] === 'ttl-too-long') {
    return { answer: 'ttl-too-long', maxTtlMs: wholeNumber(reply[1]) };
  }
  return {
    answer: oneOf(reply, 'not-admitted', 'wrong-members', 'token-exhausted', 'not-held'),
  };
}

function rosterText(roster: Roster): string {
  return roster.map(({ generation, incarnation }) => `${generation}:${incarnation}`).join(',');
}

function asArray(reply: unknown): readonly unknown[] {
  if (Array.isArray(reply)) return reply;
  throw unexpected(reply);
}

function oneOf<Answer extends string>(reply: readonly unknown[], ...answers: Answer[]): Answer {
  const answer = answers.find((one) => one === reply[0]);
  if (answer === undefined) throw unexpected(reply);
  return answer;
}

function text(value: unknown): string {
  if (typeof value === 'string') return value;
  throw unexpected(value);
}

function wholeNumber(value: unknown): number {
  const number = Number(value);
  if (Number.isSafeInteger(number)) return number;
  throw unexpected(value);
}

function unexpected(reply: unknown): Error {
  return new Error(
    `not the reply of a lock script; is this a Redis server? reply=${JSON.stringify(reply)}`,
  );
}
