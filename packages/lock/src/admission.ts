import {
  type Admission,
  findOutlived,
  findTwins,
  type Gathering,
  type Inspection,
  isSeenAgain,
  type Promised,
  planAdmission,
  planGathering,
  type Seed,
} from './core/admission.js';
import type { ResolvedOptions } from './core/options.js';
import { majorityOf } from './core/quorum.js';
import { NODE_TIMEOUT_MAX_MS } from './core/validity.js';
import { tell } from './events.js';
import type { RedisNode } from './redis/node.js';
import type { AdmitReply, InspectReply, NodeFailure } from './redis/replies.js';
import { inTime, type Runtime } from './runtime.js';

/** Whether a majority may vote now, and if not, why. */
export type AdmissionOutcome =
  | { readonly ok: true }
  | {
      readonly ok: false;
      readonly reason: string;
      /** Milliseconds after which it may be otherwise, as far as the nodes can tell; else 0. */
      readonly retryAfterMs: number;
    };

/** An outcome, and after how many milliseconds there is more to be done for a node; null where there is nothing. */
type Round = AdmissionOutcome & { readonly againMs: number | null };

/** What an operator decides that no node can know. `index`: the node concerned; null for all. */
export interface Force {
  readonly index: number | null;
}

/** How often a round looks again at nodes that have changed meanwhile. */
const LOOKS_MAX = 5;
/** About how long it waits before. */
const LOOK_AGAIN_MS = 20;
/** About how long to wait after a round that others got in the way of. */
const RETRY_MS = 250;

/**
 * Lets nodes vote that lost their memory, or never had any: in rounds, at most one at a time, in the background. Never rejects.
 *
 * A round inspects the nodes, has those that were found without a vote claimed for and promised, and admits them. Several
 * clients doing this at once do no harm: a promise is to one incarnation, and an ADMIT is carried out only by the very
 * incarnation that was inspected, and only once.
 */
export class Admissions {
  readonly #nodes: readonly RedisNode[];
  readonly #options: ResolvedOptions;
  readonly #runtime: Runtime;
  #round: Promise<AdmissionOutcome> | null = null;
  #cancelNext: (() => void) | null = null;
  #isClosed = false;

  /** @param nodes sorted by name */
  constructor(nodes: readonly RedisNode[], options: ResolvedOptions, runtime: Runtime) {
    this.#nodes = nodes;
    this.#options = options;
    this.#runtime = runtime;
  }

  /** A node has no vote, or one that does not count: sees to it, unless that is under way or waits for its time. */
  call(): void {
    if (!this.#cancelNext && !this.#isClosed) void this.admit();
  }

  /** Goes through a round now, or joins the one that is under way. */
  admit(): Promise<AdmissionOutcome> {
    this.#forgetNext();
    this.#round ??= this.#runRound().then(({ againMs, ...outcome }) => {
      this.#round = null;
      // Attempts go on meeting a node that cannot be helped now; asking again at each of them would only be load.
      const next = (): void => (againMs === null ? this.#forgetNext() : void this.admit());
      if (!this.#isClosed) {
        this.#cancelNext = this.#runtime.after(againMs ?? RETRY_MS, next, 'background');
      }
      return outcome;
    });
    return this.#round;
  }

  /**
   * Goes through a round in which nothing is waited for, and nodes that do not answer count as gone for good. Where one node
   * is named, only that is not waited for, and it begins a new incarnation, whatever it remembers.
   */
  async force(force: Force): Promise<AdmissionOutcome> {
    await this.#round;
    const node = force.index === null ? null : this.#node(force.index);
    const obstacle = node && (await this.#endIncarnation(node));
    if (node && obstacle) return refuse(`node ${node.name} ${obstacle}${node.state}`);
    const { againMs: _, ...outcome } = await this.#runRound(force);
    return outcome;
  }

  /** Takes the node's vote away. @returns why it may still have one, or null */
  async #endIncarnation(node: RedisNode): Promise<string | null> {
    const seen = await this.#inTime(node, node.inspect(this.#runtime.uniqueId()));
    if (seen.answer !== 'inspected') return 'did not answer, and goes on as it was';
    if (!seen.admitted) return null;
    const reply = await this.#inTime(node, node.retire(seen, this.#runtime.uniqueId()));
    if (reply.answer === 'retired') return null;
    return reply.answer === 'changed'
      ? 'was changed by somebody else meanwhile: look at its status'
      : 'did not answer: whether it has begun anew is unknown; ask again';
  }

  /** Ends what waits; a round that is under way ends by itself. */
  close(): void {
    this.#isClosed = true;
    this.#forgetNext();
  }

  #forgetNext(): void {
    this.#cancelNext?.();
    this.#cancelNext = null;
  }

  async #runRound(force: Force | null = null): Promise<Round> {
    for (let looks = 1; looks <= LOOKS_MAX; looks += 1) {
      const round = await this.#look(force, looks === LOOKS_MAX);
      if (round) return round;
      await this.#pause();
    }
    return refuse('nodes go on changing while they are being admitted', this.#retryMs());
  }

  /** Null where others were faster, or something has changed since it was looked at. */
  async #look(force: Force | null, isLast: boolean): Promise<Round | null> {
    const inspected = await this.#ask((node) => node.inspect(this.#runtime.uniqueId()));
    const seen = this.#knownIn(inspected);
    const twins = findTwins(seen);
    if (twins) return refuse(this.#sameServer(twins));
    const seed = {
      wallClockMs: this.#runtime.wallClockMs(),
      firstToken: this.#options.firstToken,
    };
    const gathering = planGathering(seen, seed, force?.index === null);
    if (!gathering) return refuse(this.#silence(inspected));
    if (gathering.everybody !== null && !(await this.#isMoment(seen))) return null;
    const outlived = findOutlived(seen, gathering.everybody);
    if (outlived.length > 0) return this.#retire(outlived);
    if (gathering.claims.length === 0) return { ok: true, againMs: null };
    // Where some vote already, another client may be about to admit the rest from the first token on: not from the clock.
    if (gathering.everybody !== null && seed.firstToken !== null && !isLast) {
      if (seen.some((one) => one?.admitted)) return null;
    }
    const admission = await this.#promised(seen, gathering, seed);
    return admission && this.#carryOut(seen, gathering, admission, force);
  }

  #knownIn(inspected: readonly (InspectReply | null)[]): (Inspection | null)[] {
    return inspected.map((reply, index) =>
      reply?.answer === 'inspected' && this.#node(index).isKnownAs(reply) ? reply : null,
    );
  }

  /**
   * Whether there was a moment at which all nodes were as they were seen. One may have answered long before another, so that each
   * was without a vote in its turn while a majority voted all the time: claims for everybody would void those votes.
   */
  async #isMoment(seen: readonly (Inspection | null)[]): Promise<boolean> {
    const again = await this.#ask((node, index) =>
      seen[index] ? node.inspect(this.#runtime.uniqueId()) : null,
    );
    return isSeenAgain(seen, this.#knownIn(again));
  }

  #sameServer(twins: readonly number[]): string {
    const names = twins.map((index) => this.#node(index).name).join(' and ');
    return `nodes ${names} are the same Redis server: give each node a server of its own`;
  }

  /** Ends incarnations that others know later ones of, so that the nodes can be admitted anew; see retire.lua. */
  async #retire(outlived: readonly (Inspection & { readonly index: number })[]): Promise<null> {
    await this.#ask((node, index) => {
      const voter = outlived.find((one) => one.index === index);
      return voter ? node.retire(voter, this.#runtime.uniqueId()) : null;
    });
    return null;
  }

  async #promised(
    seen: readonly (Inspection | null)[],
    gathering: Gathering,
    seed: Seed,
  ): Promise<Admission | null> {
    const replies = await this.#ask((node, index) => {
      const inspection = seen[index];
      return inspection ? node.promise(inspection, gathering.claims) : null;
    });
    const promises = replies.flatMap((reply, index): Promised[] =>
      reply?.answer === 'promised' ? [{ index, ...reply }] : [],
    );
    // Somebody else is at it, and knows more by now.
    if (promises.some(({ index, admitted }) => admitted && !seen[index]?.admitted)) return null;
    return planAdmission(gathering, promises, this.#nodes.length, seed);
  }

  async #carryOut(
    seen: readonly (Inspection | null)[],
    { claims }: Gathering,
    admission: Admission,
    force: Force | null,
  ): Promise<Round> {
    const replies = await this.#ask((node, index) => {
      const inspection = seen[index];
      const claim = claims.find((one) => one.index === index);
      if (!inspection || !claim) return null;
      const isForced = force !== null && (force.index ?? index) === index;
      const quarantineMs = isForced ? 0 : this.#quarantineMs(node, inspection, admission);
      return node.admit(inspection, claim.generation, admission, quarantineMs);
    });
    for (const { index, generation } of claims) {
      const node = this.#node(index).name;
      if (replies[index]?.answer === 'admitted') {
        tell('fenced:lock:admitted', () => ({ node, generation }));
      }
    }
    const early = replies.flatMap((reply) => (reply?.answer === 'too-early' ? [reply.leftMs] : []));
    const isLeft = replies.some((reply) => reply && !isAdmitted(reply));
    const againMs = early.length > 0 ? Math.min(...early) : isLeft ? this.#retryMs() : null;

    const votes = seen.filter((one, index) => one?.admitted || isAdmitted(replies[index])).length;
    if (votes >= majorityOf(this.#nodes.length)) return { ok: true, againMs };
    return refuse(this.#whoIsLeft(replies), againMs ?? this.#retryMs());
  }

  /**
   * The Redis documentation asks that a node which crashed stays out as long as a lease may last that it has forgotten.
   * That protects mutual exclusion; tokens do not rest on it.
   */
  #quarantineMs(node: RedisNode, seen: Inspection, { longestMs }: Admission): number {
    const forgotNothing = node.durable && seen.generation > 0;
    // Nobody holds a lease that is longer than anybody may ask for now.
    return forgotNothing ? 0 : Math.min(longestMs, this.#options.maxTtlMs);
  }

  /** What every node says, by its place; null where it is not asked. */
  #ask<Reply>(
    request: (node: RedisNode, index: number) => Promise<Reply>,
  ): Promise<(Reply | NodeFailure)[]>;
  #ask<Reply>(
    request: (node: RedisNode, index: number) => Promise<Reply> | null,
  ): Promise<(Reply | NodeFailure | null)[]>;
  #ask<Reply>(
    request: (node: RedisNode, index: number) => Promise<Reply> | null,
  ): Promise<(Reply | NodeFailure | null)[]> {
    return Promise.all(
      this.#nodes.map((node, index) => {
        const reply = request(node, index);
        return reply && this.#inTime(node, reply);
      }),
    );
  }

  #inTime<Reply>(node: RedisNode, reply: Promise<Reply>): Promise<Reply | NodeFailure> {
    return inTime(this.#runtime, node, reply, NODE_TIMEOUT_MAX_MS);
  }

  #silence(inspected: readonly InspectReply[]): string {
    const silent = inspected.flatMap((reply, at) => {
      const node = this.#node(at);
      if ('error' in reply) return [`${node.name} (${reply.error.message})`];
      return node.isKnownAs(reply) ? [] : [`${node.name} (its clients name the nodes otherwise)`];
    });
    return `nodes without memory are admitted only while a majority votes or all nodes answer; bring back ${silent.join(', ')}; or, if they are gone for good, say so: fenced admit --force`;
  }

  #whoIsLeft(replies: readonly (AdmitReply | null)[]): string {
    const left = replies.flatMap((reply, at) => {
      if (!reply || isAdmitted(reply)) return [];
      const why = reply.answer === 'too-early' ? `for another ${reply.leftMs} ms` : reply.answer;
      return [`${this.#node(at).name} (${why})`];
    });
    return `too few nodes may vote yet; those that may have forgotten a lease stay out until it is over: ${left.join(', ')}`;
  }

  /** Long enough for another client to get on, short beside what a caller waits for. */
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

function isAdmitted(reply: AdmitReply | null | undefined): boolean {
  return reply?.answer === 'admitted' || reply?.answer === 'already-admitted';
}

function refuse(reason: string, againMs: number | null = null): Round {
  return { ok: false, reason, retryAfterMs: againMs ?? 0, againMs };
}
