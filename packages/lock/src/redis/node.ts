import type { Admission, Claim, Inspection } from '../core/admission.js';
import type { VoteReply } from '../core/answers.js';
import { NODE_TIMEOUT_MAX_MS } from '../core/validity.js';
import type { Runtime } from '../runtime.js';
import { Calls, type Reply } from './calls.js';
import {
  type AdmitReply,
  admitted,
  type ExtendReply,
  extended,
  type InspectReply,
  inspected,
  type Membership,
  type NodeFailure,
  oneOf,
  type PromiseReply,
  promised,
  type ReleaseReply,
  type RetireReply,
  report,
  rosterText,
  type StatusReply,
  text,
  vote,
} from './replies.js';
import type { CommandName } from './scripts.js';

/** What is used of an ioredis client: a `Redis`, or a `Cluster` seen as one node. */
export interface RedisClient {
  /** What the client says of its connection, `ready` where it is fine. */
  readonly status?: string;
  /** To hear when it is connected. */
  once?(event: 'ready', listener: () => void): unknown;
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
  /** Another connection of the same kind, to hear on it when a waiter's turn has come. */
  duplicate?(): RedisSubscriber;
  /** `CONFIG GET`, for a look at the set-up of a node that is declared durable. */
  config?(subcommand: 'GET', parameter: string): Promise<unknown>;
}

/** What is used of a connection that listens. */
export interface RedisSubscriber {
  /** `wait` where it connects only when asked to. */
  readonly status?: string;
  readonly options?: object;
  connect(): Promise<unknown>;
  subscribe(channel: string): Promise<unknown>;
  on(event: 'message', listener: (channel: string, message: string) => void): unknown;
  on(event: 'ready' | 'close' | 'error', listener: () => void): unknown;
  disconnect(): void;
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
  /** Whether it may have stood in line. */
  readonly hasWaited: boolean;
}

/** How an attempt stands in line where it is refused. */
export interface Ticket {
  /** When it came, in milliseconds since 1970: who has a lower one is ahead of it. */
  readonly score: number;
  /** Where it is told that its turn has come. */
  readonly channel: string;
  /** How long it keeps its place, and then its turn, without being heard of. */
  readonly turnMs: number;
}

/** What every script needs to know besides the request itself. */
export interface NodeOptions extends Membership {
  readonly keyPrefix: string;
  readonly fenceTtlMs: number;
  readonly maxTtlMs: number;
}

/** One independent Redis master. Its calls never reject: a failure is an answer. They may hang as long as the client does. */
export class RedisNode {
  readonly name: string;
  /** Whether nothing that it has acknowledged is lost when its process ends. */
  readonly durable: boolean;
  readonly #client: RedisClient;
  readonly #options: NodeOptions;
  readonly #calls: Calls;
  /** Of each owner the ACQUIREs that have not been answered: whether they leave anything on the node. */
  readonly #underWay = new Map<string, Set<Promise<boolean>>>();

  constructor({ name, client, durable }: NamedClient, options: NodeOptions, runtime: Runtime) {
    this.name = name;
    this.durable = durable;
    this.#client = client;
    this.#options = options;
    this.#calls = new Calls(client, `${options.keyPrefix}node`, runtime);
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

  /** ACQUIRE: takes the locks of all resources or none. With a ticket, who is refused stands in line. */
  async acquire(holding: Holding, ttlMs: number, ticket: Ticket | null): Promise<VoteReply> {
    const { owner } = holding;
    const { members, fenceTtlMs } = this.#options;
    const place = ticket ? [ticket.score, ticket.channel, ticket.turnMs] : [];
    const keys = this.#keys(holding, ['lock', 'fence', 'line']);
    if (ticket) keys.push(this.#waiter(owner));
    const values = [owner, ttlMs, members, fenceTtlMs, ...place];
    const reply = this.#run('acquire', keys, values, vote);
    const leaves = reply.then(
      ({ answer }) => answer === 'granted' || (answer === 'held' && ticket !== null),
    );
    const own = this.#underWay.get(owner) ?? new Set();
    this.#underWay.set(owner, own.add(leaves));
    await leaves;
    own.delete(leaves);
    if (own.size === 0) this.#underWay.delete(owner);
    return reply;
  }

  /** CONFIRM: raises the node to `token`, if the attempt still holds the locks there. */
  confirm(holding: Holding, token: bigint): Promise<VoteReply> {
    const { members, fenceTtlMs } = this.#options;
    const values = [holding.owner, token.toString(), members, fenceTtlMs];
    return this.#run('confirm', this.#keys(holding, ['lock', 'fence']), values, vote);
  }

  extend(holding: Holding, ttlMs: number): Promise<ExtendReply> {
    const values = [holding.owner, ttlMs, this.#options.members];
    return this.#run('extend', this.#keys(holding, ['lock']), values, extended);
  }

  /** RELEASE: gives up what the owner holds, and its place in line. */
  release(holding: Holding): Promise<ReleaseReply> {
    // An ACQUIRE that falls back to EVAL is carried out after this, and would lock everybody out, or stand in line, until its
    // time ends.
    for (const late of this.#underWay.get(holding.owner) ?? []) {
      void late.then((leaves) => {
        if (leaves) void this.#release(holding);
      });
    }
    return this.#release(holding);
  }

  #release(holding: Holding): Promise<ReleaseReply> {
    const { owner, hasWaited } = holding;
    const keys = this.#keys(holding, ['lock', 'line']);
    if (hasWaited) keys.push(this.#waiter(owner));
    const values = hasWaited ? [owner, 1] : [owner];
    return this.#run('release', keys, values, ({ parts }) => ({
      answer: oneOf(parts, 'released', 'not-held'),
    }));
  }

  /** Asks what the node remembers; `name` becomes its incarnation's if that has none. */
  inspect(name: string): Promise<InspectReply> {
    return this.#run('inspect', [], [name], inspected);
  }

  /** Asks the incarnation that was inspected to promise that it respects the claims. */
  promise(seen: Inspection, claims: readonly Claim[]): Promise<PromiseReply> {
    const { members, nodeCount } = this.#options;
    const told = claims.flatMap(({ index, incarnation, generation }) => [
      index + 1,
      incarnation,
      generation,
      seen.roster[index]?.generation ?? 0,
    ]);
    const values = [seen.incarnation, members, nodeCount, ...told];
    return this.#run('promise', [], values, promised);
  }

  admit(
    seen: Inspection,
    generation: number,
    admission: Admission,
    quarantineMs: number,
  ): Promise<AdmitReply> {
    const { members, maxTtlMs } = this.#options;
    const { roster, floor, longestMs } = admission;
    const life = [seen.history, seen.incarnation, generation];
    const known = [rosterText(roster), floor.toString(), longestMs];
    const values = [...life, ...known, members, maxTtlMs, quarantineMs];
    return this.#run('admit', [], values, admitted);
  }

  /** Ends the incarnation that was inspected, if it has a vote; `name` becomes the next one's. */
  retire(seen: Inspection, name: string): Promise<RetireReply> {
    return this.#run('retire', [], [seen.incarnation, name], ({ parts }) => ({
      answer: oneOf(parts, 'retired', 'changed'),
    }));
  }

  /** Asks what an operator wants to know; changes nothing. */
  status(): Promise<StatusReply> {
    return this.#run('status', [], [], report);
  }

  /** When the append-only file is written through, as `always`; null where the server does not tell. Never rejects. */
  async appendFsync(): Promise<string | null> {
    try {
      const reply = await this.#client.config?.('GET', 'appendfsync');
      return Array.isArray(reply) ? text(reply[1]) : null;
    } catch {
      return null;
    }
  }

  #waiter(owner: string): string {
    return `${this.#options.keyPrefix}waiter:${owner}`;
  }

  /** Of each resource, its keys of these kinds. */
  #keys({ resources }: Holding, kinds: readonly ('lock' | 'fence' | 'line')[]): string[] {
    const { keyPrefix } = this.#options;
    return resources.flatMap((resource) => kinds.map((kind) => `${keyPrefix}${kind}:${resource}`));
  }

  async #run<Answer>(
    command: CommandName,
    keys: readonly string[],
    values: readonly (string | number)[],
    read: (reply: Reply, service: Membership) => Answer,
  ): Promise<Answer | NodeFailure> {
    // Whatever a lost attempt may have taken is released however long that takes: until it ends by itself.
    const limitMs = command === 'release' ? this.#options.maxTtlMs : NODE_TIMEOUT_MAX_MS;
    try {
      return read(await this.#calls.call(command, keys, values, limitMs), this.#options);
    } catch (error) {
      return { answer: 'error', error: error instanceof Error ? error : new Error(String(error)) };
    }
  }
}
