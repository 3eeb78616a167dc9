import type { NodeFailure } from '../core/answers.js';
import {
  decidingLeases,
  describeSet,
  type Evidence,
  evidenceOf,
  type HeldRecord,
  isUntouched,
  type MoveView,
  mergeLeases,
  moveStateOf,
  type Sealed,
  type SealedLeases,
} from '../core/move.js';
import { consistentQuorum, majorityOf, type Voter } from '../core/quorum.js';
import { findTwins, type Inspection, type Promised } from '../core/readmission.js';
import type { RedisNode } from '../redis/node.js';
import type { LeasesReply, SealReply } from '../redis/replies.js';
import { inTime, type Runtime } from '../runtime/runtime.js';
import { type Arrival, type NodeSet, RETRY_MS, ReadmissionRound } from './readmission-round.js';

/**
 * The state of a move to the next node set. `JSON.stringify` writes tokens as decimal strings.
 *
 * - `not-begun`: the present set serves.
 * - `begun`: the present set is sealed, at least in part, and the next one does not serve yet.
 * - `done`: the next set serves.
 * - `refused`: the move is impossible. Nothing was changed by this call.
 */
export interface MoveStatus {
  readonly state: 'not-begun' | 'begun' | 'done' | 'refused';
  /** The nodes' own answers, or the reason of a refusal; empty if there is nothing to say. */
  readonly reason: string;
  /** Milliseconds after which `move` should be called again, if the state is `begun`; else 0. */
  readonly retryAfterMs: number;
}

export interface MoveOptions {
  /** True if this call may begin the move. Otherwise it only goes on with a move that has begun. */
  readonly mayBegin: boolean;
  /** True if the silent nodes of the present set are gone for good, according to an operator. */
  readonly isForced?: boolean;
}

/** The most leases that one CARRY takes to a node. */
const LEASES_PER_CARRY = 100;

/**
 * Least milliseconds for the other nodes after a majority has answered. They have as long as the
 * majority took, if that is longer.
 */
const LOOK_MORE_MS = 50;

/** Maximum number of times that the next set is prepared, if a node changes meanwhile. */
const PREPARES_MAX = 3;

type Reply = { readonly answer: string };

/** The nodes of each set that have answered. */
interface Views {
  readonly present: readonly MoveView[];
  readonly next: readonly MoveView[];
}

/**
 * Moves a lock service from one node set to another, in four steps. Each step may be repeated, and
 * several processes may do them at once.
 *
 * 1. PREPARE: the next set does not start by itself any more.
 * 2. SEAL: the nodes of the present set end their votes. Once a majority has, it grants nothing.
 * 3. LEASES, CARRY: the next set holds the leases of the present one, under the same owners.
 * 4. INSPECT, PROMISE, ADMIT: the next set votes, above the tokens of the present one.
 */
export class Move {
  readonly #present: NodeSet;
  readonly #next: NodeSet;
  readonly #runtime: Runtime;

  constructor(present: NodeSet, next: NodeSet, runtime: Runtime) {
    this.#present = present;
    this.#next = next;
    this.#runtime = runtime;
  }

  /**
   * The state of the move. Changes nothing and never rejects.
   *
   * @param isQuick true to decide without nodes that are late, such as nodes that are down
   */
  async look(isQuick = false): Promise<MoveStatus> {
    return this.#stateOf(await this.#see(isQuick));
  }

  /**
   * PREPARE before the move: the nodes of the next set do not start it by themselves from now on.
   * So a program that knows the next set alone gets no lock too early, and an operator can tell
   * that programs know this set. It prepares no node if the next set may have voted before, or if
   * the present set does not vote. A repeated or late PREPARE changes nothing. Never rejects.
   *
   * @returns true if no node needs another announcement, as long as it keeps its data
   */
  async announce(): Promise<boolean> {
    const { nodes } = this.#next;
    const seen = await Promise.all(nodes.map((node) => node.status()));
    const reports = seen.map((reply) => (reply.answer === 'status' ? reply : null));
    const hasVoted = reports.some((one) => one && (one.generation > 0 || one.nextSet !== null));
    const fresh = nodes.filter((_, at) => reports[at] && reports[at].awaits === null);
    if (hasVoted || fresh.length === 0) return hasVoted || !reports.includes(null);
    const inspections = await Promise.all(fresh.map((node) => node.inspect()));
    // The present set still votes after the inspection, so the next one had not voted before it.
    if (!isVoting((await this.#see(false)).present, this.#present)) return false;
    const previous = textOf(this.#present);
    const preparing = fresh.map((node, at) => {
      const inspection = inspections[at];
      return inspection?.answer === 'inspected' && inspection.generation === 0
        ? node.prepare(inspection, true, previous)
        : null;
    });
    const replies = await Promise.all(preparing);
    return !reports.includes(null) && replies.every((one) => one?.answer === 'prepared');
  }

  /** Takes all steps that are possible now. Never rejects. */
  async run({ mayBegin, isForced = false }: MoveOptions): Promise<MoveStatus> {
    const views = await this.#see(!mayBegin);
    const seen = this.#stateOf(views);
    const isBegun = seen.state === 'begun';
    if (seen.state !== 'begun' && !(seen.state === 'not-begun' && mayBegin)) return seen;
    const prepared = await this.#prepare(isBegun);
    if ('state' in prepared) return prepared;
    const sealed = await this.#seal(views.present, isBegun);
    if ('state' in sealed) return sealed;
    const total = this.#present.nodes.length;
    const evidence = evidenceOf(sealed.seals, total, isForced && !sealed.isContested);
    if (!evidence) {
      return this.#later(`too few nodes of the present set are sealed: ${sealed.list}`);
    }
    const leases = await this.#leases(sealed.seals);
    const arrival: Arrival = (seen) => this.#arrive(seen, evidence, leases);
    const kind = prepared.hasVoted ? {} : { arrival };
    const round = await new ReadmissionRound(this.#next, kind, this.#runtime).run();
    if (round.voting.length >= majorityOf(this.#next.nodes.length))
      return { state: 'done', reason: '', retryAfterMs: 0 };
    return this.#later(`the next set does not vote yet: ${round.reason}`, round.againMs);
  }

  /**
   * Lets every node of the next set wait for this move.
   *
   * @returns the obstacle; or `hasVoted`. It is true if the move has admitted a node before, and a
   * node may have forgotten its votes since. Then the usual readmission goes on, without the move
   */
  async #prepare(
    isBegun: boolean,
    triesLeft = PREPARES_MAX - 1,
  ): Promise<MoveStatus | { readonly hasVoted: boolean }> {
    const { nodes } = this.#next;
    const refuse = async (why: string): Promise<MoveStatus> => {
      // Another process may have begun the move meanwhile.
      const hasBegun = isBegun || (await this.look()).state !== 'not-begun';
      return hasBegun ? this.#later(why) : refused(why);
    };
    const seen = await Promise.all(nodes.map((node) => node.inspect()));
    const inspections = seen.map((reply) => (reply.answer === 'inspected' ? reply : null));
    if (inspections.includes(null)) {
      return refuse(`every node of the next set must answer: ${listed(nodes, seen)}`);
    }
    const twins = findTwins(inspections);
    if (twins) {
      const names = twins.map((at) => nodes[at]?.name).join(' and ');
      return refused(
        `nodes ${names} of the next set are the same Redis server: give each node a server of its own`,
      );
    }
    const isAdmitted = inspections.some((one) => one !== null && one.generation > 0);
    if (isBegun && isAdmitted && !isUntouched(inspections)) return { hasVoted: true };
    // If the present set still votes after the inspection, the next set had not voted before it.
    const isEarly = !isBegun && isVoting((await this.#see(false)).present, this.#present);
    if (!isBegun && !isEarly) {
      return refuse('no majority of the present set votes: see fenced status');
    }
    const previous = textOf(this.#present);
    const replies = await Promise.all(
      nodes.map((node, at) => {
        const inspection = inspections[at];
        if (!inspection) throw new Error(`node ${node.name} was not inspected`);
        return node.prepare(inspection, isEarly, previous);
      }),
    );
    const isReady = ({ answer }: Reply): boolean =>
      answer === 'prepared' || (isBegun && answer === 'voting');
    if (replies.every(isReady)) return { hasVoted: false };
    // An announcement may have been faster. It begins an incarnation that waits already.
    const hasChanged = replies.some(({ answer }) => answer === 'changed');
    if (hasChanged && triesLeft > 0) return this.#prepare(isBegun, triesLeft - 1);
    return refuse(`every node of the next set must wait for the move: ${listed(nodes, replies)}`);
  }

  /**
   * Seals all nodes of the present set, the first one by name before the others. So if two moves to
   * different sets compete, the first node usually stops one of them. If that node is down, each
   * move may seal some of the others. Then only the move that can still seal a majority goes on.
   *
   * @param views the nodes that have just answered; the move waits for others only `LOOK_MORE_MS`
   */
  async #seal(
    views: readonly MoveView[],
    isBegun: boolean,
  ): Promise<MoveStatus | { seals: readonly Sealed[]; list: string; isContested: boolean }> {
    const { nodes } = this.#present;
    const names = this.#next.nodes.map(({ name }) => name);
    const replies: SealReply[] = [];
    for (const part of [nodes.slice(0, 1), nodes.slice(1)]) {
      const seal = (node: RedisNode): Promise<SealReply> => {
        const isUp = views.some(({ index }) => nodes[index] === node);
        const reply = node.seal(textOf(this.#next), names);
        return isUp ? reply : inTime(this.#runtime, node, reply, LOOK_MORE_MS);
      };
      replies.push(...(await Promise.all(part.map(seal))));
      const [other, ...others] = sealedForOthers(replies);
      const mayMiss = isBegun || replies.length > 1 ? nodes.length - majorityOf(nodes.length) : 0;
      if (other && 1 + others.length > mayMiss) {
        return refused(`the present set moves to ${other.nextSet}, not to ${textOf(this.#next)}`);
      }
    }
    const seals = replies.flatMap((reply, index) =>
      reply.answer === 'sealed' ? [{ index, ...reply }] : [],
    );
    const isContested = sealedForOthers(replies).length > 0;
    return { seals, list: listed(nodes, replies), isContested };
  }

  /** The leases of each sealed node that is still the incarnation that voted. */
  async #leases(seals: readonly Promised[]): Promise<readonly SealedLeases[]> {
    const found = await Promise.all(
      seals.filter(({ voting }) => voting).map((voter) => this.#leasesOf(voter)),
    );
    return found.flatMap((one) => one ?? []);
  }

  async #leasesOf(voter: Voter): Promise<SealedLeases | null> {
    const node = this.#present.nodes[voter.index];
    if (!node) throw new Error(`there is no node ${voter.index}`);
    const leases: HeldRecord[] = [];
    for (const hash of [1, 2] as const) {
      let cursor: string | null = '0';
      while (cursor !== null) {
        const reply: LeasesReply = await node.leases(voter.incarnation, hash, cursor);
        if (reply.answer !== 'leases') return null;
        leases.push(...reply.leases);
        cursor = reply.cursor === '0' ? null : reply.cursor;
      }
    }
    return { voter, leases };
  }

  /** Carries the leases to the inspected nodes of the next set, if it is known which are valid. */
  async #arrive(
    seen: readonly (Inspection | null)[],
    { floor, longestMs, isComplete, maxTtlMs }: Evidence,
    sealed: readonly SealedLeases[],
  ): ReturnType<Arrival> {
    if (!seen.every((one) => one?.voting || one?.awaits)) return null;
    const total = this.#present.nodes.length;
    const deciding = isComplete && isUntouched(seen) ? decidingLeases(sealed, total) : null;
    // Otherwise, nothing is carried: a lease may have ended in the next set already.
    if (deciding && !(await this.#carry(seen, mergeLeases(deciding, total)))) return null;
    return { floor, longestMs, isCertain: deciding !== null, maxTtlMs };
  }

  async #carry(
    seen: readonly (Inspection | null)[],
    leases: readonly HeldRecord[],
  ): Promise<boolean> {
    for (let from = 0; from < leases.length; from += LEASES_PER_CARRY) {
      const piece = leases.slice(from, from + LEASES_PER_CARRY);
      const carrying = this.#next.nodes.map((node, at) => {
        const inspection = seen[at];
        if (!inspection) throw new Error(`node ${node.name} was not inspected`);
        return node.carry(inspection, piece);
      });
      const replies = await Promise.all(carrying);
      const isHeld = replies.every(({ answer }) => answer === 'carried' || answer === 'voting');
      if (!isHeld) return false;
    }
    return true;
  }

  #see(isQuick: boolean): Promise<Views> {
    const views = { present: [] as MoveView[], next: [] as MoveView[] };
    const startedMs = this.#runtime.nowMs();
    return new Promise((resolve) => {
      let left = this.#present.nodes.length + this.#next.nodes.length;
      let isDecided = false;
      const add = async (own: MoveView[], node: RedisNode, index: number): Promise<void> => {
        const reply = await node.status();
        const isMember = reply.answer === 'status' && reply.role === 'master';
        if (isMember && (reply.setUp?.isOwn ?? true)) own.push({ index, ...reply });
        left -= 1;
        const isDone = isQuick && this.#stateOf(views).state === 'done';
        if (left === 0 || isDone) resolve(views);
        if (!isQuick || isDecided || !this.#isMost(views)) return;
        isDecided = true;
        const tookMs = this.#runtime.nowMs() - startedMs;
        this.#runtime.after(Math.max(LOOK_MORE_MS, tookMs), () => resolve(views));
      };
      for (const [at, node] of this.#present.nodes.entries()) void add(views.present, node, at);
      for (const [at, node] of this.#next.nodes.entries()) void add(views.next, node, at);
    });
  }

  /** True if a majority of each set has answered. */
  #isMost({ present, next }: Views): boolean {
    return (
      present.length >= majorityOf(this.#present.nodes.length) &&
      next.length >= majorityOf(this.#next.nodes.length)
    );
  }

  #stateOf({ present, next }: Views): MoveStatus {
    const sets = { present: textOf(this.#present), next: textOf(this.#next) };
    const counts = {
      presentCount: this.#present.nodes.length,
      nextCount: this.#next.nodes.length,
    };
    const quiet = { reason: '', retryAfterMs: 0 };
    return { ...quiet, ...moveStateOf(present, next, { ...sets, ...counts }) };
  }

  #later(reason: string, againMs: number | null = null): MoveStatus {
    const pauseMs = RETRY_MS * (0.5 + this.#runtime.random());
    return { state: 'begun', reason, retryAfterMs: againMs ?? pauseMs };
  }
}

function refused(reason: string): MoveStatus {
  return { state: 'refused', reason, retryAfterMs: 0 };
}

function textOf({ nodes, options }: NodeSet): string {
  return describeSet(
    options.keyPrefix,
    nodes.map(({ name }) => name),
  );
}

function sealedForOthers(replies: readonly SealReply[]) {
  return replies.filter((reply) => reply.answer === 'sealed-for');
}

function isVoting(views: readonly MoveView[], { nodes }: NodeSet): boolean {
  const voters = views.filter(({ voting }) => voting);
  return consistentQuorum(voters, majorityOf(nodes.length)) !== null;
}

function listed(nodes: readonly RedisNode[], replies: readonly (Reply | NodeFailure)[]): string {
  return nodes
    .map(({ name }, at) => {
      const reply = replies[at];
      return `${name} (${reply && 'error' in reply ? reply.error.message : reply?.answer})`;
    })
    .join(', ');
}
