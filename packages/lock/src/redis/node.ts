import type { Admission, Inspection, KnownGeneration, Promised } from '../core/admission.js';
import type { VoteReply } from '../core/answers.js';
import {
  acquireScript,
  admitScript,
  confirmScript,
  extendScript,
  inspectScript,
  promiseScript,
  releaseScript,
  type Script,
} from './scripts.js';

/** The calls of an ioredis client that are used: a `Redis`, or a `Cluster` seen as one node. */
export interface RedisClient {
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
  | ({ readonly answer: 'refused' } & KnownGeneration)
  | { readonly answer: 'not-admitted' | 'wrong-members' }
  | NodeFailure;
export type AdmitReply =
  | {
      readonly answer: 'admitted' | 'already-admitted' | 'changed' | 'wrong-members' | 'too-early';
    }
  | NodeFailure;

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
    return this.#run(inspectScript, [], [name], inspection);
  }

  /**
   * Asks for the promise that this life of node number `subject` begins that generation; `name` as for `inspect`.
   */
  promise(
    subject: number,
    incarnation: string,
    generation: number,
    name: string,
  ): Promise<PromiseReply> {
    const values = [subject + 1, incarnation, generation, this.#options.members, name];
    return this.#run(promiseScript, [], values, promised);
  }

  /** @param quarantineMs for how long the node must have been known to be without admission */
  admit(seen: Inspection, admission: Admission, quarantineMs: number): Promise<AdmitReply> {
    const { members, maxTtlMs } = this.#options;
    const { generation, roster, floor } = admission;
    const told = [seen.runId, seen.incarnation, generation, roster.join(','), floor.toString()];
    return this.#run(admitScript, [], [...told, members, maxTtlMs, quarantineMs], (reply) => ({
      answer: oneOf(reply, 'admitted', 'already-admitted', 'changed', 'wrong-members', 'too-early'),
    }));
  }

  readonly #vote = (reply: readonly unknown[]): VoteReply => vote(reply, this.#options.nodeCount);

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

function vote(reply: readonly unknown[], nodeCount: number): VoteReply {
  const [answer, first, generation, rosterText] = reply;
  if (answer === 'granted') {
    const roster = numbers(rosterText);
    if (roster.length !== nodeCount) throw unexpected(reply);
    return {
      answer,
      token: BigInt(text(first)),
      generation: wholeNumber(generation),
      roster,
    };
  }
  if (answer === 'held') return { answer, remainingMs: wholeNumber(first) };
  return refusal(reply);
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

function inspection(reply: readonly unknown[]): { readonly answer: 'inspected' } & Inspection {
  const [, runId, incarnation, admitted, generation, roster, max, members, waitedMs] = reply;
  return {
    answer: oneOf(reply, 'inspected'),
    runId: text(runId),
    incarnation: text(incarnation),
    admitted: wholeNumber(admitted) === 1,
    generation: wholeNumber(generation),
    roster: roster === '' ? [] : numbers(roster),
    max: BigInt(text(max)),
    members: text(members),
    waitedMs: wholeNumber(waitedMs),
  };
}

function promised(reply: readonly unknown[]): PromiseReply {
  const [answer, first, second, roster] = reply;
  if (answer === 'refused') {
    return { answer, generation: wholeNumber(first), incarnation: text(second) };
  }
  if (answer !== 'promised') return { answer: oneOf(reply, 'not-admitted', 'wrong-members') };
  return {
    answer,
    max: BigInt(text(first)),
    generation: wholeNumber(second),
    roster: numbers(roster),
  };
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

function numbers(value: unknown): number[] {
  return text(value).split(',').map(wholeNumber);
}

function unexpected(reply: unknown): Error {
  return new Error(
    `not the reply of a lock script; is this a Redis server? reply=${JSON.stringify(reply)}`,
  );
}
