import { Alarms } from '../alarms.js';
import type { VoteReply } from '../core/answers.js';
import { FirstAsked } from '../core/first-asked.js';
import { NODE_TIMEOUT_MAX_MS, nodeTimeoutMs } from '../core/validity.js';
import { noAnswer, type Runtime } from '../runtime.js';
import { type Call, Command, type Reply } from './calls.js';
import type { Read, RedisNode } from './node.js';
import {
  type ExtendReply,
  extended,
  type NodeFailure,
  oneOf,
  type ReleaseReply,
  vote,
} from './replies.js';

/** What one lease holds, and under which owner id. */
export class Holding {
  /** Sorted. */
  readonly resources: readonly string[];
  /** Random, of one attempt, never used again. */
  readonly owner: string;
  /** Whether it may have stood in line. */
  readonly hasWaited: boolean;
  /** The nodes that may hold something of it, or keep its place. */
  asked: readonly number[];
  /** Whether RELEASE was sent. No other command is begun after that. */
  isGivenUp = false;

  /** @param asked where another process has taken it: all */
  constructor(
    resources: readonly string[],
    owner: string,
    hasWaited: boolean,
    asked: readonly number[] = [],
  ) {
    this.resources = resources;
    this.owner = owner;
    this.hasWaited = hasWaited;
    this.asked = asked;
  }
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

export interface NodesOptions {
  readonly keyPrefix: string;
  readonly fenceTtlMs: number;
  readonly maxTtlMs: number;
}

/** Hears what each node answers, once: a node that has not answered in time has failed. */
type Tell<Answer> = (index: number, answer: Answer) => void;

const released = ({ parts }: Reply): ReleaseReply => ({
  answer: oneOf(parts, 'released', 'not-held'),
});

const stood = ({ parts }: Reply) => ({
  answer: oneOf(parts, 'standing', 'not-admitted', 'wrong-members'),
});

/** One command for some nodes, and what they answer. */
class Question<Answer> implements Call<RedisNode> {
  readonly command: Command;
  readonly untilMs: number;
  readonly #nodes: readonly RedisNode[];
  readonly #read: Read<Answer>;
  readonly #tell: Tell<Answer | NodeFailure>;
  /** Of each node by its place, whether it is still to answer. */
  readonly #isOpen: boolean[];
  #open: number;
  #cancelLimit: (() => void) | null = null;

  constructor(
    nodes: readonly RedisNode[],
    indexes: readonly number[],
    command: Command,
    untilMs: number,
    read: Read<Answer>,
    tell: Tell<Answer | NodeFailure>,
  ) {
    this.#nodes = nodes;
    this.command = command;
    this.untilMs = untilMs;
    this.#read = read;
    this.#tell = tell;
    this.#isOpen = nodes.map((_, index) => indexes.includes(index));
    this.#open = indexes.length;
  }

  /** Who has not answered after that has failed. */
  limit(limitMs: number, limits: Alarms): void {
    this.#cancelLimit = limits.after(limitMs, () => {
      for (const [index, node] of this.#nodes.entries()) {
        if (this.#isOpen[index]) this.#settle(index, noAnswer(limitMs, node));
      }
    });
  }

  /** From now on nodes may take as long as they like. */
  endLimit(): void {
    this.#cancelLimit?.();
    this.#cancelLimit = null;
  }

  hear(node: RedisNode, reply: Reply | Error): void {
    this.#settle(this.#nodes.indexOf(node), node.read(reply, this.#read));
  }

  #settle(index: number, answer: Answer | NodeFailure): void {
    if (!this.#isOpen[index]) return;
    this.#isOpen[index] = false;
    this.#open -= 1;
    if (this.#open === 0) this.endLimit();
    this.#tell(index, answer);
  }
}

/** The nodes of one lock service, sorted by name, and what is asked of all of them for a lease. Never throws. */
export class Nodes {
  readonly all: readonly RedisNode[];
  readonly first: FirstAsked;
  readonly #options: NodesOptions;
  readonly #runtime: Runtime;
  /** Hardly any runs out, and a request waits for a connection, which keeps the process alive. */
  readonly #limits: Alarms;

  constructor(all: readonly RedisNode[], options: NodesOptions, runtime: Runtime) {
    this.all = all;
    this.first = new FirstAsked(all.length);
    this.#options = options;
    this.#runtime = runtime;
    this.#limits = new Alarms({
      nowMs: runtime.nowMs,
      after: (delayMs, callback) => runtime.after(delayMs, callback, 'background'),
    });
  }

  /** Calls back once after `delayMs`, unless the returned function is called before. Does not keep a process alive. */
  after(delayMs: number, callback: () => void): () => void {
    return this.#limits.after(delayMs, callback);
  }

  /** ACQUIRE: takes the locks of all resources or none. With a ticket, who is refused stands in line. */
  acquire(
    indexes: readonly number[],
    holding: Holding,
    ttlMs: number,
    ticket: Ticket | null,
    tell: Tell<VoteReply>,
  ): Question<VoteReply> {
    this.#note(indexes, holding);
    const keys = this.#keys(holding, ['lock', 'fence', 'line'], ticket !== null);
    const place = ticket ? [ticket.score, ticket.channel, ticket.turnMs] : [];
    const values = [holding.owner, ttlMs, this.#options.fenceTtlMs, ...place];
    const take = this.#cleaning<VoteReply>(
      holding,
      vote,
      ({ answer }) => answer === 'granted' || (answer === 'held' && ticket !== null),
    );
    const command = new Command('acquire', keys, values);
    return this.#ask(indexes, command, nodeTimeoutMs(ttlMs), take, tell);
  }

  /** STAND: stands in line on these nodes, and takes nothing. Nobody waits for the answers. */
  stand(indexes: readonly number[], holding: Holding, ticket: Ticket): void {
    this.#note(indexes, holding);
    const keys = this.#keys(holding, ['lock', 'fence', 'line'], true);
    const values = [holding.owner, ticket.score, ticket.channel, ticket.turnMs];
    const stand = this.#cleaning(holding, stood, ({ answer }) => answer === 'standing');
    this.#ask(indexes, new Command('stand', keys, values), NODE_TIMEOUT_MAX_MS, stand, () => {});
  }

  /** KEEP: holds a lease on these nodes, too, that a majority has granted. */
  keep(
    indexes: readonly number[],
    holding: Holding,
    token: bigint,
    ttlMs: number,
    tell: Tell<VoteReply>,
  ): Question<VoteReply> {
    this.#note(indexes, holding);
    const keys = this.#keys(holding, ['lock', 'fence']);
    const values = [holding.owner, ttlMs, token.toString(), this.#options.fenceTtlMs];
    const keep = this.#cleaning<VoteReply>(holding, vote, ({ answer }) => answer === 'granted');
    return this.#ask(indexes, new Command('keep', keys, values), nodeTimeoutMs(ttlMs), keep, tell);
  }

  /** CONFIRM: raises these nodes to `token`, if the attempt still holds the locks there. */
  confirm(
    indexes: readonly number[],
    holding: Holding,
    token: bigint,
    limitMs: number,
    tell: Tell<VoteReply>,
  ): Question<VoteReply> {
    const keys = this.#keys(holding, ['lock', 'fence']);
    const values = [holding.owner, token.toString(), this.#options.fenceTtlMs];
    return this.#ask(indexes, new Command('confirm', keys, values), limitMs, vote, tell);
  }

  /** EXTEND: gives the lease more time where it is still held. */
  extend(holding: Holding, ttlMs: number, tell: Tell<ExtendReply>): Question<ExtendReply> {
    const command = new Command('extend', this.#keys(holding, ['lock']), [holding.owner, ttlMs]);
    return this.#ask(this.first.all, command, nodeTimeoutMs(ttlMs), extended, tell);
  }

  /**
   * RELEASE: gives up what the owner holds, and its place in line, where it may have any. It is carried out however long a node
   * takes.
   */
  release(holding: Holding, limitMs: number, tell: Tell<ReleaseReply>): Question<ReleaseReply> {
    holding.isGivenUp = true;
    const command = this.#releaseOf(holding);
    return this.#ask(holding.asked, command, limitMs, released, tell, this.#options.maxTtlMs);
  }

  /** RELEASE, where nobody waits for the answers. */
  giveUp(holding: Holding): void {
    holding.isGivenUp = true;
    this.#releaseOn(
      holding.asked.map((index) => this.#node(index)),
      holding,
    );
  }

  /** The first nodes are asked first: whoever asks others then has asked all. */
  #note(indexes: readonly number[], holding: Holding): void {
    holding.asked = holding.asked.length === 0 ? indexes : this.first.all;
  }

  /** Carried out after its release, a command that leaves traces would lock everybody out, or stand in line, until its time ends. */
  #cleaning<Answer>(
    holding: Holding,
    read: Read<Answer>,
    leavesTraces: (answer: Answer) => boolean,
  ): Read<Answer> {
    return (reply, service, node) => {
      const answer = read(reply, service, node);
      if (holding.isGivenUp && reply.mayBeLate && leavesTraces(answer)) {
        this.#releaseOn([node], holding);
      }
      return answer;
    };
  }

  #releaseOn(nodes: readonly RedisNode[], holding: Holding): void {
    const command = this.#releaseOf(holding);
    const untilMs = this.#runtime.nowMs() + this.#options.maxTtlMs;
    for (const node of nodes) node.send({ command, untilMs, hear: () => {} });
  }

  #releaseOf(holding: Holding): Command {
    const { owner, hasWaited } = holding;
    const keys = this.#keys(holding, ['lock', 'line'], hasWaited);
    return new Command('release', keys, hasWaited ? [owner, 1] : [owner]);
  }

  /** @param worthMs how long it is worth sending, in milliseconds */
  #ask<Answer extends object>(
    indexes: readonly number[],
    command: Command,
    limitMs: number,
    read: Read<Answer>,
    tell: Tell<NoInfer<Answer> | NodeFailure>,
    worthMs: number = NODE_TIMEOUT_MAX_MS,
  ): Question<Answer> {
    const untilMs = this.#runtime.nowMs() + worthMs;
    const question = new Question(this.all, indexes, command, untilMs, read, tell);
    question.limit(limitMs, this.#limits);
    for (const index of indexes) this.#node(index).send(question);
    return question;
  }

  #node(index: number): RedisNode {
    const node = this.all[index];
    if (!node) throw new Error(`there is no node ${index}`);
    return node;
  }

  /** Of each resource, its keys of these kinds; then the waiter's own. */
  #keys(
    { resources, owner }: Holding,
    kinds: readonly ('lock' | 'fence' | 'line')[],
    withWaiter = false,
  ): string[] {
    const { keyPrefix } = this.#options;
    const keys: string[] = [];
    for (const resource of resources) {
      for (const kind of kinds) keys.push(`${keyPrefix}${kind}:${resource}`);
    }
    if (withWaiter) keys.push(`${keyPrefix}waiter:${owner}`);
    return keys;
  }
}
