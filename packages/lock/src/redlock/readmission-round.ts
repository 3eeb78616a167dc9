import type { NodeAnswer } from '../core/answers.js';
import type { ResolvedOptions } from '../core/options.js';
import { majorityOf } from '../core/quorum.js';
import {
  findOutlived,
  findTwins,
  type Gathering,
  type Inspection,
  isSeenAgain,
  limitIn,
  type Promised,
  planGathering,
  planReadmission,
  type Readmission,
  type Seed,
} from '../core/readmission.js';
import { publish } from '../lease/events.js';
import type { RedisNode } from '../redis/node.js';
import { type Runtime, sleep } from '../runtime/runtime.js';
import { LastReplies, type NodeReply, phrase } from './last-replies.js';

/** The result of a round of readmission. */
export interface RoundOutcome {
  /** Indexes of the nodes whose votes are known to count. */
  readonly voting: readonly number[];
  /** Indexes of the nodes that answered, and have no vote that is known to count. */
  readonly notVoting: readonly number[];
  /** The reason why not all nodes vote: every node's answer. */
  readonly reason: string;
  /** Milliseconds after which another round may help a node; null if none is needed. */
  readonly againMs: number | null;
  /**
   * By index: the answer of a node that was set up with another configuration, or is no master;
   * null for any other node.
   */
  readonly mismatches: readonly (NodeAnswer | null)[];
}

/** An operator's decision that no node can make. `index`: the node concerned; null for all. */
export interface Force {
  readonly index: number | null;
}

type Inspections = readonly (Inspection | null)[];

/**
 * The move that a round finishes: prepares these nodes for their first vote.
 *
 * @returns the facts of the previous set; null if a node has changed since its inspection
 */
export type Arrival = (seen: Inspections) => Promise<NonNullable<Seed['moved']> | null>;

/** The nodes of one lock service: the same servers under another key prefix are another set. */
export interface NodeSet {
  /** Sorted by name. */
  readonly nodes: readonly RedisNode[];
  readonly options: ResolvedOptions;
}

/** The options of a round. The usual round has none. */
export interface RoundKind {
  readonly force?: Force | null;
  readonly arrival?: Arrival | null;
}

/** Maximum number of inspections in a round. It inspects again if a node has changed meanwhile. */
const INSPECTIONS_MAX = 5;
/** Mean pause in milliseconds between two inspections. */
const INSPECT_AGAIN_MS = 20;
const AWAITS_MOVE =
  'nodes of this set wait for a move from another set, which begins its votes: see fenced nodes status';
/** Mean pause in milliseconds after a round that other clients obstructed. */
export const RETRY_MS = 250;

/**
 * One round: it inspects the nodes, nominates those without a vote, collects promises for the
 * nominations, and admits these nodes. Several clients may do this at once. A promise is valid for
 * one incarnation. Only the inspected incarnation carries out an ADMIT, and only once.
 */
export class ReadmissionRound {
  readonly #set: NodeSet;
  readonly #runtime: Runtime;
  readonly #force: Force | null;
  readonly #arrival: Arrival | null;
  readonly #replies: LastReplies;

  constructor(set: NodeSet, { force = null, arrival = null }: RoundKind, runtime: Runtime) {
    this.#set = set;
    this.#runtime = runtime;
    this.#force = force;
    this.#arrival = arrival;
    this.#replies = new LastReplies(set.nodes);
  }

  /** Never rejects. */
  async run(): Promise<RoundOutcome> {
    const { index = null } = this.#force ?? {};
    const obstacle = index === null ? null : await this.#endIncarnation(index);
    if (obstacle !== null) return this.#refuse(obstacle);
    for (let count = 1; count <= INSPECTIONS_MAX; count += 1) {
      const outcome = await this.#readmit(count === INSPECTIONS_MAX);
      if (outcome) return outcome;
      await this.#pause();
    }
    const reason = `nodes go on changing while they are being readmitted: ${this.#replies.list()}`;
    return this.#refuse(reason, this.#retryMs());
  }

  /** Takes the node's vote away. @returns the reason why it may still have one, or null */
  async #endIncarnation(index: number): Promise<string | null> {
    const node = this.#node(index);
    const seen = await node.inspect();
    if (seen.answer !== 'inspected') return `node ${node.name} goes on as it was: ${phrase(seen)}`;
    if (!seen.voting) return null;
    const reply = await node.retire(seen);
    if (reply.answer === 'retired') return null;
    return reply.answer === 'error'
      ? `node ${node.name} did not answer: whether it has begun anew is unknown; ask again (${phrase(reply)})`
      : `node ${node.name} goes on as it was: ${phrase(reply)}; look at its status`;
  }

  /** Returns null if other clients were faster, or if a node has changed since its inspection. */
  async #readmit(isLast: boolean): Promise<RoundOutcome | null> {
    const seen = await this.#inspect(() => true);
    const twins = findTwins(seen);
    if (twins) {
      const names = twins.map((index) => this.#node(index).name).join(' and ');
      return this.#refuse(
        `nodes ${names} are the same Redis server: give each node a server of its own`,
      );
    }
    let seed: Seed = {
      wallClockMs: this.#runtime.wallClockMs(),
      firstToken: this.#set.options.firstToken,
    };
    const isForced = this.#force?.index === null;
    const gathering = planGathering(seen, seed, isForced);
    if (!gathering) return this.#refuse(this.#replies.tooFew(isForced));
    const { nextSet } = this.#replies;
    if (gathering.everybody !== null && nextSet !== null) {
      return this.#refuse(`this set moves to ${nextSet}, and never starts again`);
    }
    if (gathering.everybody !== null && !this.#arrival && isBeforeMove(seen)) {
      return this.#refuse(AWAITS_MOVE, this.#retryMs());
    }
    if (gathering.everybody !== null && !(await this.#isMoment(seen))) return null;
    const outlived = findOutlived(seen, gathering.everybody);
    if (outlived.length > 0) return this.#retire(outlived);
    if (gathering.nominations.length === 0) return this.#outcome(seen, gathering);
    // If some nodes vote already, another client may be about to admit the others. It began at
    // `firstToken`, but this client would begin at the clock; see planReadmission. So it inspects
    // again first.
    if (gathering.everybody !== null && seed.firstToken !== null && !isLast) {
      if (seen.some((one) => one?.voting)) return null;
    }
    if (gathering.everybody !== null && this.#arrival) {
      const moved = await this.#arrival(seen);
      if (!moved) return null;
      seed = { ...seed, firstToken: null, moved };
    }
    const readmission = await this.#promised(seen, gathering, seed);
    if (!readmission) return null;
    await this.#admit(seen, gathering, readmission, seed.moved ?? null);
    return this.#outcome(seen, gathering);
  }

  /** Inspects these nodes. @returns by index; null for a node that did not answer */
  async #inspect(isAsked: (index: number) => boolean): Promise<Inspections> {
    const replies = await this.#ask((node, index) => (isAsked(index) ? node.inspect() : null));
    return replies.map((reply) => (reply?.answer === 'inspected' ? reply : null));
  }

  /**
   * True if all nodes were in the inspected state at the same moment.
   *
   * One node may have answered long before another. So each may have lacked a vote when it
   * answered, and yet a majority voted at every moment. To nominate all nodes would then void valid
   * votes.
   */
  async #isMoment(seen: Inspections): Promise<boolean> {
    return isSeenAgain(seen, await this.#inspect((index) => seen[index] !== null));
  }

  /**
   * Ends these incarnations, because other nodes know later ones of the same nodes. Then the nodes
   * can be readmitted; see retire.lua.
   */
  async #retire(outlived: readonly (Inspection & { readonly index: number })[]): Promise<null> {
    await this.#ask((node, index) => {
      const voter = outlived.find((one) => one.index === index);
      return voter ? node.retire(voter) : null;
    });
    return null;
  }

  async #promised(
    seen: Inspections,
    gathering: Gathering,
    seed: Seed,
  ): Promise<Readmission | null> {
    const replies = await this.#ask((node, index) => {
      const inspection = seen[index];
      return inspection ? node.promise(inspection, gathering.nominations) : null;
    });
    const promises = replies.flatMap((reply, index): Promised[] =>
      reply?.answer === 'promised' ? [{ index, ...reply }] : [],
    );
    // A node votes that had no vote when it was inspected: another client was faster.
    if (promises.some(({ index, voting }) => voting && !seen[index]?.voting)) return null;
    return planReadmission(gathering, promises, this.#set.nodes.length, seed);
  }

  async #admit(
    seen: Inspections,
    { nominations }: Gathering,
    readmission: Readmission,
    moved: Seed['moved'] | null,
  ): Promise<void> {
    const maxTtlMs = limitIn(seen) ?? moved?.maxTtlMs ?? this.#set.options.firstMaxTtlMs;
    const replies = await this.#ask((node, index) => {
      const inspection = seen[index];
      const nomination = nominations.find((one) => one.index === index);
      if (!inspection || !nomination) return null;
      const isForced = this.#force !== null && (this.#force.index ?? index) === index;
      const waitMs = moved
        ? movedWaitMsOf(moved, readmission)
        : recoveryWaitMsOf(node, inspection, readmission);
      const recoveryWaitMs = isForced ? 0 : waitMs;
      const admission = { ...readmission, maxTtlMs, recoveryWaitMs };
      return node.admit(inspection, nomination.generation, admission);
    });
    for (const { index, generation } of nominations) {
      const node = this.#node(index).name;
      if (replies[index]?.answer === 'admitted') {
        publish('fenced:lock:readmitted', () => ({ node, generation }));
      }
    }
  }

  /**
   * The result of the round. A nominated node counts as voting only if its reply to ADMIT says so.
   * If the reply was lost, its vote is unknown.
   */
  #outcome(seen: Inspections, { nominations }: Gathering): RoundOutcome {
    const replies = this.#replies;
    const notVoting = nominations
      .map(({ index }) => index)
      .filter((index) => !replies.hasVote(index));
    const voting = seen.flatMap((one, index) =>
      replies.hasVote(index) || (one?.voting && !notVoting.includes(index)) ? [index] : [],
    );
    const earlyMs = replies.tooEarlyMs;
    const againMs = earlyMs ?? (notVoting.length > 0 ? this.#retryMs() : null);
    const isFew = voting.length < majorityOf(this.#set.nodes.length);
    const why =
      earlyMs === null ? '' : '; those that may have forgotten a lease stay out until it is over';
    const reason = `${isFew ? 'too few nodes may vote yet' : 'not all nodes vote'}${why}: ${replies.list()}`;
    return { ...this.#refuse(reason, againMs), voting, notVoting };
  }

  /** Returns every node's reply, by index; null for a node that is not asked. */
  #ask<Reply extends NodeReply>(
    request: (node: RedisNode, index: number) => Promise<Reply> | null,
  ): Promise<readonly (Reply | null)[]> {
    return Promise.all(
      this.#set.nodes.map(async (node, index) => {
        const reply = await request(node, index);
        if (reply) this.#replies.note(index, reply);
        return reply;
      }),
    );
  }

  /** The end of a round in which no vote became known. */
  #refuse(reason: string, againMs: number | null = null): RoundOutcome {
    const mismatches = this.#replies.mismatches();
    return { voting: [], notVoting: [], reason, againMs, mismatches };
  }

  /** Long enough for another client to make progress, short beside a caller's `waitMs`. */
  #pause(): Promise<void> {
    return sleep(this.#runtime, INSPECT_AGAIN_MS * (0.5 + this.#runtime.random()));
  }

  #retryMs(): number {
    return RETRY_MS * (0.5 + this.#runtime.random());
  }

  #node(index: number): RedisNode {
    const node = this.#set.nodes[index];
    if (!node) throw new Error(`there is no node ${index}`);
    return node;
  }
}

/**
 * Recovery wait. According to the Redis documentation, a crashed node must stay out until no lease
 * that it may have forgotten can be valid. That protects mutual exclusion; tokens do not rest on
 * it.
 */
function recoveryWaitMsOf(node: RedisNode, seen: Inspection, { longestMs }: Readmission): number {
  const forgotNothing = node.durable && seen.generation > 0;
  return forgotNothing ? 0 : longestMs;
}

/** True if nodes wait for a move that has admitted none of them, so none knows its lowest token. */
function isBeforeMove(seen: Inspections): boolean {
  return seen.some((one) => one?.awaits) && !seen.some((one) => one && one.generation > 0);
}

/**
 * Recovery wait of a node that a move admits. If leases of the previous set may be missing, even a
 * durable node must wait until they are over.
 */
function movedWaitMsOf({ isCertain }: NonNullable<Seed['moved']>, { longestMs }: Readmission) {
  return isCertain ? 0 : longestMs;
}
