import { type NodeAnswer, type NodeFailure, nodeAnswer } from '../core/answers.js';
import { describeMismatch, isMismatch } from '../core/mismatch.js';
import type { ResolvedOptions } from '../core/options.js';
import { majorityOf } from '../core/quorum.js';
import {
  findOutlived,
  findTwins,
  type Gathering,
  type Inspection,
  isSeenAgain,
  type Promised,
  planGathering,
  planReadmission,
  type Readmission,
  type Seed,
} from '../core/readmission.js';
import { NODE_TIMEOUT_MAX_MS } from '../core/validity.js';
import { publish } from '../lease/events.js';
import type { RedisNode } from '../redis/node.js';
import type { AdmitReply, InspectReply, PromiseReply, RetireReply } from '../redis/replies.js';
import { inTime, type Runtime } from '../runtime/runtime.js';

/** The result of `readmit`. `ok` only if it is known to be done; see `outcomeOf`. */
export type ReadmitResult =
  | { readonly ok: true }
  | {
      readonly ok: false;
      /** Every node's answer, and advice. */
      readonly reason: string;
      /** Milliseconds after which another try may succeed, according to the nodes; else 0. */
      readonly retryAfterMs: number;
    };

/** The end of a round of readmission. */
export interface Round {
  /** Indexes of the nodes whose votes are known to count. */
  readonly voting: readonly number[];
  /** Indexes of the nodes that answered, and have no vote that is known to count. */
  readonly left: readonly number[];
  /** The reason why not all nodes vote: every node's answer. */
  readonly reason: string;
  readonly retryAfterMs: number;
  /** Milliseconds after which another round may help a node; null if none is needed. */
  readonly againMs: number | null;
  /** By index, the answers of nodes that were set up otherwise, or are no masters; else null. */
  readonly mismatches: readonly (NodeAnswer | null)[];
}

/** An operator's decision that no node can make. `index`: the node concerned; null for all. */
export interface Force {
  readonly index: number | null;
}

type Said = InspectReply | PromiseReply | AdmitReply | RetireReply | null;

/** The number of times that a round inspects nodes that have changed meanwhile. */
const LOOKS_MAX = 5;
/** Mean pause in milliseconds before it inspects them again. */
const LOOK_AGAIN_MS = 20;
/** Mean pause in milliseconds after a round that other clients obstructed. */
const RETRY_MS = 250;

/**
 * Readmits nodes that lost their memory, or never had any. It works in rounds, at most one at a
 * time, in the background. Never rejects.
 *
 * A round inspects the nodes, claims for those without a vote, collects promises for the claims,
 * and admits these nodes. Several clients may do this at once. A promise is to one incarnation.
 * Only the inspected incarnation carries out an ADMIT, and only once.
 */
export class Readmissions {
  readonly #nodes: readonly RedisNode[];
  readonly #options: ResolvedOptions;
  readonly #runtime: Runtime;
  #round: Promise<Round> | null = null;
  #cancelNext: (() => void) | null = null;
  #last: Round | null = null;
  #isClosed = false;

  /** @param nodes sorted by name */
  constructor(nodes: readonly RedisNode[], options: ResolvedOptions, runtime: Runtime) {
    this.#nodes = nodes;
    this.#options = options;
    this.#runtime = runtime;
  }

  /** The end of the last round; null before the first. */
  get last(): Round | null {
    return this.#last;
  }

  /**
   * Readmits a node that has no vote, or one that does not count, unless a round is running or
   * planned.
   */
  call(): void {
    if (!this.#cancelNext && !this.#isClosed) void this.run();
  }

  /** Runs a round now, or joins the one that is running. */
  run(): Promise<Round> {
    this.#forgetNext();
    this.#round ??= this.#runRound().then((round) => {
      const { againMs } = round;
      this.#round = null;
      this.#last = round;
      // Further acquisitions meet a node that cannot be readmitted yet. A round for each of them
      // would only be load.
      const next = (): void => (againMs === null ? this.#forgetNext() : void this.run());
      if (!this.#isClosed) {
        this.#cancelNext = this.#runtime.after(againMs ?? RETRY_MS, next, 'background');
      }
      return round;
    });
    return this.#round;
  }

  /**
   * Runs a round without recovery waits, in which silent nodes count as gone for good.
   *
   * If one node is named, only that node skips its wait, and no node counts as gone. The named node
   * begins a new incarnation, whatever it remembers.
   */
  async force(force: Force): Promise<Round> {
    await this.#round;
    const obstacle =
      force.index === null ? null : await this.#endIncarnation(this.#node(force.index));
    return obstacle ?? this.#runRound(force);
  }

  /** Takes the node's vote away. @returns the reason why it may still have one, or null */
  async #endIncarnation(node: RedisNode): Promise<Round | null> {
    const seen = await this.#inTime(node, node.inspect(this.#runtime.uniqueId()));
    if (seen.answer !== 'inspected') {
      return refuse(`node ${node.name} goes on as it was: ${phrase(seen)}`);
    }
    if (!seen.voting) return null;
    const reply = await this.#inTime(node, node.retire(seen, this.#runtime.uniqueId()));
    if (reply.answer === 'retired') return null;
    return refuse(
      reply.answer === 'error'
        ? `node ${node.name} did not answer: whether it has begun anew is unknown; ask again (${phrase(reply)})`
        : `node ${node.name} goes on as it was: ${phrase(reply)}; look at its status`,
    );
  }

  /** Cancels the planned round; a running round ends by itself. */
  close(): void {
    this.#isClosed = true;
    this.#forgetNext();
  }

  #forgetNext(): void {
    this.#cancelNext?.();
    this.#cancelNext = null;
  }

  async #runRound(force: Force | null = null): Promise<Round> {
    const said: Said[] = this.#nodes.map(() => null);
    for (let looks = 1; looks <= LOOKS_MAX; looks += 1) {
      const round = await this.#look(force, looks === LOOKS_MAX, said);
      if (round) return round;
      await this.#pause();
    }
    const reason = `nodes go on changing while they are being readmitted: ${this.#list(said)}`;
    return { ...refuse(reason, this.#retryMs()), mismatches: this.#mismatches(said) };
  }

  /**
   * Returns null if other clients were faster, or if a node has changed since its inspection.
   *
   * @param said the last reply of every node, for messages
   */
  async #look(force: Force | null, isLast: boolean, said: Said[]): Promise<Round | null> {
    const inspect = (node: RedisNode) => node.inspect(this.#runtime.uniqueId());
    const seen = knownIn(await this.#ask(said, inspect));
    const twins = findTwins(seen);
    if (twins) return refuse(this.#sameServer(twins));
    const seed = {
      wallClockMs: this.#runtime.wallClockMs(),
      firstToken: this.#options.firstToken,
    };
    const gathering = planGathering(seen, seed, force?.index === null);
    if (!gathering) {
      const reason = this.#tooFew(said, force?.index === null);
      return { ...refuse(reason), mismatches: this.#mismatches(said) };
    }
    if (gathering.everybody !== null && !(await this.#isMoment(seen, said))) return null;
    const outlived = findOutlived(seen, gathering.everybody);
    if (outlived.length > 0) return this.#retire(outlived, said);
    if (gathering.claims.length === 0) return this.#result(seen, gathering, said);
    // If some nodes vote already, another client may be about to admit the rest from the first
    // token on, not from the clock.
    if (gathering.everybody !== null && seed.firstToken !== null && !isLast) {
      if (seen.some((one) => one?.voting)) return null;
    }
    const readmission = await this.#promised(seen, gathering, seed, said);
    if (!readmission) return null;
    await this.#carryOut(seen, gathering, readmission, force, said);
    return this.#result(seen, gathering, said);
  }

  /**
   * True if all nodes were in the inspected state at the same moment.
   *
   * One may have answered long before another. Each could then be without a vote at some time,
   * while a majority voted all the time. Claims for everybody would void those votes.
   */
  async #isMoment(seen: readonly (Inspection | null)[], said: Said[]): Promise<boolean> {
    const again = await this.#ask(said, (node, index) =>
      seen[index] ? node.inspect(this.#runtime.uniqueId()) : null,
    );
    return isSeenAgain(seen, knownIn(again));
  }

  #sameServer(twins: readonly number[]): string {
    const names = twins.map((index) => this.#node(index).name).join(' and ');
    return `nodes ${names} are the same Redis server: give each node a server of its own`;
  }

  /**
   * Ends the incarnations that others know later ones of, so the nodes can be readmitted anew; see
   * retire.lua.
   */
  async #retire(
    outlived: readonly (Inspection & { readonly index: number })[],
    said: Said[],
  ): Promise<null> {
    await this.#ask(said, (node, index) => {
      const voter = outlived.find((one) => one.index === index);
      return voter ? node.retire(voter, this.#runtime.uniqueId()) : null;
    });
    return null;
  }

  async #promised(
    seen: readonly (Inspection | null)[],
    gathering: Gathering,
    seed: Seed,
    said: Said[],
  ): Promise<Readmission | null> {
    const replies = await this.#ask(said, (node, index) => {
      const inspection = seen[index];
      return inspection ? node.promise(inspection, gathering.claims) : null;
    });
    const promises = replies.flatMap((reply, index): Promised[] =>
      reply?.answer === 'promised' ? [{ index, ...reply }] : [],
    );
    // Another client does the same, and knows more by now.
    if (promises.some(({ index, voting }) => voting && !seen[index]?.voting)) return null;
    return planReadmission(gathering, promises, this.#nodes.length, seed);
  }

  async #carryOut(
    seen: readonly (Inspection | null)[],
    { claims }: Gathering,
    readmission: Readmission,
    force: Force | null,
    said: Said[],
  ): Promise<void> {
    const replies = await this.#ask(said, (node, index) => {
      const inspection = seen[index];
      const claim = claims.find((one) => one.index === index);
      if (!inspection || !claim) return null;
      const isForced = force !== null && (force.index ?? index) === index;
      const recoveryWaitMs = isForced ? 0 : this.#recoveryWaitMs(node, inspection, readmission);
      return node.admit(inspection, claim.generation, readmission, recoveryWaitMs);
    });
    for (const { index, generation } of claims) {
      const node = this.#node(index).name;
      if (replies[index]?.answer === 'admitted') {
        publish('fenced:lock:readmitted', () => ({ node, generation }));
      }
    }
  }

  /**
   * The votes that are known now. A node that was claimed for votes only if it said so: if the
   * reply of ADMIT was lost, that is unknown.
   */
  #result(
    seen: readonly (Inspection | null)[],
    { claims }: Gathering,
    said: readonly Said[],
  ): Round {
    const left = claims.map(({ index }) => index).filter((index) => !hasVote(said[index]));
    const voting = seen.flatMap((one, index) =>
      hasVote(said[index]) || (one?.voting && !left.includes(index)) ? [index] : [],
    );
    const early = said.flatMap((one) => (one?.answer === 'too-early' ? [one.leftMs] : []));
    const againMs =
      early.length > 0 ? Math.min(...early) : left.length > 0 ? this.#retryMs() : null;
    const isFew = voting.length < majorityOf(this.#nodes.length);
    const why =
      early.length > 0 ? `; those that may have forgotten a lease stay out until it is over` : '';
    const reason = `${isFew ? 'too few nodes may vote yet' : 'not all nodes vote'}${why}: ${this.#list(said)}`;
    return { ...refuse(reason, againMs), voting, left, mismatches: this.#mismatches(said) };
  }

  /**
   * Recovery wait. According to the Redis documentation, a crashed node must stay out until no
   * lease that it may have forgotten can be valid. That protects mutual exclusion; tokens do not
   * rest on it.
   */
  #recoveryWaitMs(node: RedisNode, seen: Inspection, { longestMs }: Readmission): number {
    const forgotNothing = node.durable && seen.generation > 0;
    return forgotNothing ? 0 : longestMs;
  }

  /**
   * Returns every node's reply, by index; null for a node that is not asked.
   *
   * @param said notes each reply
   */
  #ask<Reply extends NonNullable<Said>>(
    said: Said[],
    request: (node: RedisNode, index: number) => Promise<Reply | NodeFailure> | null,
  ): Promise<readonly (Reply | NodeFailure | null)[]> {
    return Promise.all(
      this.#nodes.map(async (node, index) => {
        const question = request(node, index);
        if (!question) return null;
        const reply = await this.#inTime(node, question);
        said[index] = reply;
        return reply;
      }),
    );
  }

  #inTime<Reply>(node: RedisNode, reply: Promise<Reply>): Promise<Reply | NodeFailure> {
    return inTime(this.#runtime, node, reply, NODE_TIMEOUT_MAX_MS);
  }

  /** The message if too few nodes answered to admit any. */
  #tooFew(said: readonly Said[], isForced: boolean): string {
    const majority = majorityOf(this.#nodes.length);
    const known = said.filter((one) => one?.answer === 'inspected').length;
    if (isForced)
      return `${known} of ${this.#nodes.length} nodes can be readmitted, and a majority is ${majority}: ${this.#list(said)}`;
    const away = this.#nodes.filter((_, at) => isFailure(said[at] ?? null)).map(({ name }) => name);
    const force =
      known < majority ? '' : '; or, if they are gone for good, say so: fenced readmit --force';
    const advice = away.length > 0 ? `; bring back ${away.join(', ')}${force}` : '';
    return `nodes without memory are readmitted only while a majority votes or all nodes answer: ${this.#list(said)}${advice}`;
  }

  /** The last reply of every node, and the differences between their configurations. */
  #list(said: readonly Said[]): string {
    const words = this.#nodes.map((node, at) => `${node.name} (${phrase(said[at] ?? null)})`);
    const mismatches = this.#mismatches(said);
    const differences = describeMismatch(
      this.#nodes.map(({ name }, at) => mismatches[at] ?? { name, ...PENDING }),
    );
    return differences === '' ? words.join(', ') : `${words.join(', ')}; ${differences}`;
  }

  #mismatches(said: readonly Said[]): readonly (NodeAnswer | null)[] {
    return this.#nodes.map(({ name }, at) => {
      const reply = said[at];
      return reply && isMismatch(reply) ? nodeAnswer(name, reply) : null;
    });
  }

  /** Long enough for another client to make progress, short beside a caller's `waitMs`. */
  #pause(): Promise<void> {
    const ms = LOOK_AGAIN_MS * (0.5 + this.#runtime.random());
    return new Promise((resolve) => this.#runtime.after(ms, resolve));
  }

  #retryMs(): number {
    return RETRY_MS * (0.5 + this.#runtime.random());
  }

  #node(index: number): RedisNode {
    const node = this.#nodes[index];
    if (!node) throw new Error(`there is no node ${index}`);
    return node;
  }
}

/**
 * Returns the outcome for the caller. `ok` only if a majority is known to vote. A named node must
 * vote, too. With force and no name, all nodes that answered must vote.
 */
export function outcomeOf(
  { voting, left, reason, retryAfterMs }: Round,
  nodeCount: number,
  index: number | null,
  isForced: boolean,
): ReadmitResult {
  const isDone = index === null ? !isForced || left.length === 0 : voting.includes(index);
  if (isDone && voting.length >= majorityOf(nodeCount)) return { ok: true };
  return { ok: false, reason, retryAfterMs };
}

const PENDING = { answer: 'pending' } as const;

function knownIn(inspected: readonly (InspectReply | null)[]): (Inspection | null)[] {
  return inspected.map((reply) => (reply?.answer === 'inspected' ? reply : null));
}

function hasVote(reply: Said | undefined): boolean {
  return reply?.answer === 'admitted' || reply?.answer === 'already-admitted';
}

const isFailure = (said: Said): said is NodeFailure => said !== null && 'error' in said;

/** A node's last reply, for people. */
function phrase(said: Said): string {
  if (!said) return 'not waited for';
  if (isFailure(said)) return said.error.message;
  switch (said.answer) {
    case 'inspected':
    case 'promised':
      return said.voting ? 'votes' : 'has no vote';
    case 'admitted':
    case 'already-admitted':
      return 'votes';
    case 'too-early':
      return `for another ${said.leftMs} ms`;
    case 'refused':
    case 'changed':
      return 'changed by another client meanwhile';
    case 'retired':
      return 'begins anew';
    case 'not-master':
      return `not-master: its server is a ${said.role}`;
    default:
      return said.answer;
  }
}

function refuse(reason: string, againMs: number | null = null): Round {
  return { voting: [], left: [], reason, retryAfterMs: againMs ?? 0, againMs, mismatches: [] };
}
