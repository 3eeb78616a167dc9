import { type Given, type NodeAnswer, nodeAnswer, type VoteReply } from '../core/answers.js';
import { FirstAsked, PATIENCE_MS } from '../core/first-asked.js';
import { NODE_TIMEOUT_MAX_MS, nodeTimeoutMs } from '../core/validity.js';
import { afterReading, noAnswer, type Runtime } from '../runtime/runtime.js';
import { type Call, Command, type Reply } from './calls.js';
import type { Read, RedisNode } from './node.js';
import {
  type ExtendReply,
  extended,
  type NodeFailure,
  type ReleaseReply,
  released,
  vote,
} from './replies.js';

/** By how much others may have come before one who waits in the same process as the holder, and is served before them. */
const TOGETHER_MS = 50;

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
  /** Whether ACQUIRE was sent: some node may hold it. */
  mayHold = false;
  /** The owner ids of those to whom it was handed on: their places in line are given up with it. */
  readonly heirs: string[] = [];

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
  /** To how many others the lock may be handed on, whose owner ids begin like this. */
  readonly heirsMax: number;
  readonly family: string;
}

export interface ReleaseOptions {
  /** After how many milliseconds nobody is waited for any more. */
  readonly limitMs: number;
  /** Whether its time is over by now: others may have held it already. */
  readonly isOver: boolean;
  /** The owner id of who asks for the same lock right behind this, if anybody does. */
  readonly next: string | undefined;
}

export interface NodesOptions {
  readonly keyPrefix: string;
  readonly fenceTtlMs: number;
  readonly maxTtlMs: number;
}

/**
 * Hears what each node answers, once: a node that has not answered in time has failed.
 *
 * @param isMore whether another node has failed at the same time, and is told next: there is nothing to be decided before
 */
type Tell<Answer> = (index: number, answer: Answer, isMore: boolean) => void;

/** Calls back once after `delayMs`, unless the returned function is called before. Does not keep a process alive. */
type After = (delayMs: number, callback: () => void) => () => void;

/** How long a request may take. */
interface Patience {
  /** How long it is worth sending, in milliseconds. */
  readonly worthMs?: number;
  /** Called where some node has not answered after `PATIENCE_MS`. */
  readonly late?: (() => void) | undefined;
}

/** One command for some nodes, and what they answer. */
class Question<Answer> implements Call<RedisNode> {
  readonly command: Command;
  readonly untilMs: number;
  readonly #nodes: readonly RedisNode[];
  readonly #read: Read<Answer>;
  readonly #tell: Tell<Answer | NodeFailure>;
  /** The nodes that are still to answer: a bit for each place. */
  #unanswered = 0;
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
    for (const index of indexes) this.#unanswered |= 1 << index;
  }

  /** Who has not answered after `limitMs` has failed; `late` is called before, where somebody has not after `PATIENCE_MS`. */
  limit(limitMs: number, after: After, late: (() => void) | undefined): void {
    const patienceMs = Math.min(PATIENCE_MS, limitMs);
    const impatient = (): void => {
      this.#cancelLimit = after(limitMs - patienceMs, () => this.#fail(limitMs));
      late?.();
    };
    this.#cancelLimit = after(patienceMs, impatient);
  }

  #fail(limitMs: number): void {
    for (const [index, node] of this.#nodes.entries()) {
      this.#settle(index, noAnswer(limitMs, node), this.#unanswered >> (index + 1) !== 0);
    }
  }

  /** From now on nodes may take as long as they like. */
  endLimit(): void {
    this.#cancelLimit?.();
    this.#cancelLimit = null;
  }

  hear(node: RedisNode, reply: Reply | Error): void {
    this.#settle(this.#nodes.indexOf(node), node.read(reply, this.#read));
  }

  #settle(index: number, answer: Answer | NodeFailure, isMore = false): void {
    const bit = 1 << index;
    if ((this.#unanswered & bit) === 0) return;
    this.#unanswered -= bit;
    if (this.#unanswered === 0) this.endLimit();
    this.#tell(index, answer, isMore);
  }
}

/** The nodes of one lock service, sorted by name, and what is asked of all of them for a lease. Never throws. */
export class Nodes {
  readonly all: readonly RedisNode[];
  readonly first: FirstAsked;
  /** A connection keeps the process alive that waits for an answer: this need not. */
  readonly after: After;
  readonly #options: NodesOptions;
  readonly #runtime: Runtime;

  constructor(all: readonly RedisNode[], options: NodesOptions, runtime: Runtime) {
    this.all = all;
    this.first = new FirstAsked(all.length);
    this.#options = options;
    this.#runtime = runtime;
    const after = afterReading(runtime);
    this.after = (delayMs, callback) => after(delayMs, callback, 'background');
  }

  /** These answers, in the order of the nodes, with their names. */
  answers(answers: readonly (Omit<NodeAnswer, 'name'> | undefined)[]): readonly NodeAnswer[] {
    return this.all.map(({ name }, at) => nodeAnswer(name, answers[at] ?? { answer: 'pending' }));
  }

  /** ACQUIRE: takes the locks of all resources or none. With a ticket, who is refused stands in line. */
  acquire(
    indexes: readonly number[],
    holding: Holding,
    ttlMs: number,
    ticket: Ticket | null,
    limitMs: number,
    tell: Tell<VoteReply>,
    late?: () => void,
  ): Question<VoteReply> {
    this.#note(indexes, holding);
    holding.mayHold = true;
    const keys = this.#keys(holding, ticket !== null);
    const place = ticket ? [ticket.score, ticket.channel, ticket.turnMs] : [];
    const heirs = ticket ? [ticket.heirsMax, ticket.family, TOGETHER_MS] : [];
    const values = [holding.owner, ttlMs, this.#options.fenceTtlMs, ...place, ...heirs];
    const take = this.#cleaning<VoteReply>(
      holding,
      vote,
      ({ answer }) => answer === 'granted' || (answer === 'held' && ticket !== null),
    );
    const command = new Command('acquire', keys, values);
    return this.#ask(indexes, command, limitMs, take, tell, { late });
  }

  /** STAND: stands in line on all nodes, and takes nothing but its turn. */
  stand(
    indexes: readonly number[],
    holding: Holding,
    ticket: Ticket,
    limitMs: number,
    tell: Tell<VoteReply>,
    late: () => void,
  ): Question<VoteReply> {
    this.#note(indexes, holding);
    const keys = this.#keys(holding, true);
    const values = [holding.owner, ticket.score, ticket.channel, ticket.turnMs];
    const stand = this.#cleaning<VoteReply>(
      holding,
      vote,
      ({ answer }) => answer === 'turn' || answer === 'held',
    );
    return this.#ask(indexes, new Command('stand', keys, values), limitMs, stand, tell, { late });
  }

  /**
   * KEEP: holds a lease on these nodes, too, that a majority holds.
   *
   * @param given the lease's token; or what the node that is asked told, with its incarnation
   */
  keep(
    indexes: readonly number[],
    holding: Holding,
    { number, incarnation }: Pick<Given, 'number'> & Partial<Given>,
    ttlMs: number,
    tell: Tell<VoteReply>,
  ): Question<VoteReply> {
    this.#note(indexes, holding);
    const keys = this.#keys(holding);
    const told = incarnation === undefined ? [] : [incarnation];
    const values = [holding.owner, ttlMs, number, this.#options.fenceTtlMs, ...told];
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
    late: () => void,
  ): Question<VoteReply> {
    const keys = this.#keys(holding);
    const values = [holding.owner, token.toString(), this.#options.fenceTtlMs];
    const command = new Command('confirm', keys, values);
    return this.#ask(indexes, command, limitMs, vote, tell, { late });
  }

  /** EXTEND: gives the lease more time where it is still held. */
  extend(holding: Holding, ttlMs: number, tell: Tell<ExtendReply>): Question<ExtendReply> {
    const command = new Command('extend', this.#keys(holding), [holding.owner, ttlMs]);
    return this.#ask(this.first.all, command, nodeTimeoutMs(ttlMs), extended, tell);
  }

  /**
   * RELEASE: gives up what the owner holds, and its place in line, where it may have any. It is carried out however long a node
   * takes.
   */
  release(
    holding: Holding,
    { limitMs, isOver, next }: ReleaseOptions,
    tell: Tell<ReleaseReply>,
    late?: () => void,
  ): Question<ReleaseReply> {
    holding.isGivenUp = true;
    const command = this.#releaseOf(holding, isOver, next);
    const patience = { worthMs: this.#options.maxTtlMs, late };
    return this.#ask(holding.asked, command, limitMs, released, tell, patience);
  }

  /** RELEASE, where nobody waits for the answers. */
  giveUp(holding: Holding): void {
    holding.isGivenUp = true;
    this.#releaseOn(
      holding.asked.map((index) => this.#node(index)),
      holding,
    );
  }

  /** Who was handed the lock gives up its place with that. */
  handOn(holding: Holding, heir: Holding): void {
    holding.heirs.push(heir.owner);
    this.#note(heir.asked, holding);
    // It may have won a part of the nodes before.
    if (heir.mayHold) this.giveUp(heir);
    heir.isGivenUp = true;
  }

  /** The first nodes are asked first: whoever asks others then has asked all. */
  #note(indexes: readonly number[], holding: Holding): void {
    const { asked } = holding;
    if (asked.length === 0) holding.asked = indexes;
    else if (asked !== indexes) holding.asked = this.first.all;
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

  #releaseOf(holding: Holding, isOver = false, next?: string): Command {
    const { owner, hasWaited, heirs } = holding;
    const keys = this.#keys(holding, hasWaited);
    for (const heir of heirs) keys.push(this.#waiter(heir));
    const waited = heirs.length + (hasWaited ? 1 : 0);
    if (next !== undefined) return new Command('release', keys, [owner, waited, next]);
    return new Command('release', keys, waited > 0 || isOver ? [owner, waited] : [owner]);
  }

  #ask<Answer extends object>(
    indexes: readonly number[],
    command: Command,
    limitMs: number,
    read: Read<Answer>,
    tell: Tell<NoInfer<Answer> | NodeFailure>,
    { worthMs = NODE_TIMEOUT_MAX_MS, late }: Patience = {},
  ): Question<Answer> {
    const nowMs = this.#runtime.nowMs();
    const question = new Question(this.all, indexes, command, nowMs + worthMs, read, tell);
    question.limit(limitMs, this.after, late);
    for (const index of indexes) this.#node(index).send(question);
    return question;
  }

  #node(index: number): RedisNode {
    const node = this.all[index];
    if (!node) throw new Error(`there is no node ${index}`);
    return node;
  }

  /** The line of each resource; then the waiter's own key. */
  #keys({ resources, owner }: Holding, withWaiter = false): string[] {
    const { keyPrefix } = this.#options;
    const keys = resources.map((resource) => `${keyPrefix}line:${resource}`);
    if (withWaiter) keys.push(this.#waiter(owner));
    return keys;
  }

  #waiter(owner: string): string {
    return `${this.#options.keyPrefix}waiter:${owner}`;
  }
}
