import type { VoteReply } from '../../packages/lock/src/core/answers.ts';
import { isLater, type Roster, type Voter } from '../../packages/lock/src/core/quorum.ts';
import type {
  Inspection,
  Nomination,
  Readmission,
} from '../../packages/lock/src/core/readmission.ts';
import type {
  AdmitReply,
  InspectReply,
  PromiseReply,
  ReleaseReply,
  RetireReply,
} from '../../packages/lock/src/redis/replies.ts';
import { EPOCH_MS } from './computer.ts';
import type { NodeFlaw } from './redis-process.ts';

export const NAMES: readonly string[] = ['a', 'b', 'c', 'd', 'e'];
/** Length of every lease. */
export const LEASE_MS = 40;

/** A request to a node. `random`: the name of an incarnation that begins there ends with it. */
export type Request =
  | { readonly name: 'inspect'; readonly random: number }
  | { readonly name: 'retire'; readonly incarnation: string; readonly random: number }
  | {
      readonly name: 'promise';
      readonly incarnation: string;
      readonly nominations: readonly Nominated[];
    }
  | {
      readonly name: 'admit';
      readonly history: string;
      readonly incarnation: string;
      readonly generation: number;
      readonly plan: Readmission;
    }
  | { readonly name: 'acquire' | 'release'; readonly owner: string }
  | { readonly name: 'confirm'; readonly owner: string; readonly token: bigint };

interface Nominated extends Nomination {
  /** The generation that the node reported in place of it. */
  readonly seenGeneration: number;
}

export type Answer =
  | InspectReply
  | RetireReply
  | PromiseReply
  | AdmitReply
  | VoteReply
  | ReleaseReply;

/** The process of a node: until it loses its memory. */
export interface Process {
  readonly history: string;
  alive: boolean;
  /** Its vote; null if it does not vote. The same object until the vote changes. */
  readonly voter: Voter | null;
  /** The facts that INSPECT would report. */
  readonly known: Pick<Inspection, 'generation' | 'incarnation' | 'roster'>;
  carryOut(request: Request): Answer;
  /** A process with the same memory. */
  copy(clock: Clock): Process;
}

export interface Clock {
  readonly nowMs: number;
}

interface Memory {
  incarnation: string;
  generation: number;
  roster: Roster;
  voter: Voter | null;
  max: bigint;
  floor: bigint;
  longestMs: number;
  /** The limit of the leases; null before the first ADMIT. */
  maxTtlMs: number | null;
  /** The record of the only resource: its last token, and its holder with the end of the lease. */
  token: bigint | null;
  owner: string | null;
  endsMs: number;
}

const EMPTY: Memory = {
  ...{ incarnation: '', generation: 0, roster: [], voter: null, max: 0n, floor: 0n, longestMs: 0 },
  ...{ maxTtlMs: null, token: null, owner: null, endsMs: 0 },
};

const NOTHING: Roster = NAMES.map(() => ({ generation: 0, incarnation: '' }));
/** The flaws that `FastNode` may have. */
export const FAST_FLAWS: ReadonlySet<NodeFlaw> = new Set(['roster-ties-by-place']);

/**
 * A node as `NodeModel`, but only with the rules that matter in worlds of readmissions. There, no
 * configuration differs, no hash is old enough to rotate, and nobody waits. It keeps facts, where
 * the model keeps texts, so many more worlds are played in the same time. A test plays worlds with
 * both, and compares every answer.
 */
export class FastNode implements Process {
  readonly history: string;
  alive = true;
  readonly #index: number;
  readonly #clock: Clock;
  readonly #flaws: ReadonlySet<NodeFlaw>;
  readonly #memory: Memory;

  constructor(
    index: number,
    history: string,
    clock: Clock,
    flaws: ReadonlySet<NodeFlaw>,
    memory: Memory = EMPTY,
  ) {
    this.#index = index;
    this.history = history;
    this.#clock = clock;
    this.#flaws = flaws;
    this.#memory = { ...memory };
  }

  get voter(): Voter | null {
    return this.#memory.voter;
  }

  get known(): Process['known'] {
    return this.#memory;
  }

  copy(clock: Clock): FastNode {
    return new FastNode(this.#index, this.history, clock, this.#flaws, this.#memory);
  }

  carryOut(request: Request): Answer {
    switch (request.name) {
      case 'inspect':
        return this.#inspect(request.random);
      case 'retire':
        return this.#retire(request.incarnation, request.random);
      case 'promise':
        return this.#promise(request.incarnation, request.nominations);
      case 'admit':
        return this.#admit(request.incarnation, request.generation, request.plan);
      case 'acquire':
        return this.#acquire(request.owner);
      case 'confirm':
        return this.#confirm(request.owner, request.token);
      case 'release':
        return this.#release(request.owner);
    }
  }

  #inspect(random: number): Answer {
    const memory = this.#memory;
    if (memory.incarnation === '') memory.incarnation = this.#newName(random);
    const { incarnation, generation, roster, voter, max, longestMs, maxTtlMs } = memory;
    return {
      answer: 'inspected',
      history: this.history,
      incarnation,
      voting: voter !== null,
      generation,
      roster,
      max,
      longestMs,
      awaits: null,
      maxTtlMs,
    };
  }

  #retire(incarnation: string, random: number): Answer {
    const memory = this.#memory;
    if (!memory.voter || memory.incarnation !== incarnation) return { answer: 'changed' };
    memory.voter = null;
    memory.generation = 0;
    memory.incarnation = this.#newName(random);
    return { answer: 'retired' };
  }

  #promise(incarnation: string, nominations: readonly Nominated[]): Answer {
    const memory = this.#memory;
    if (memory.incarnation !== incarnation) return { answer: 'changed' };
    const before = memory.roster.length > 0 ? memory.roster : NOTHING;
    const promised = before.slice();
    for (const { index, incarnation: nominated, generation, seenGeneration } of nominations) {
      const known = promised[index];
      if (!known) throw new Error('a nomination for a node that is not there');
      const isKnown = known.incarnation === nominated && known.generation === generation;
      const isNext = known.generation === seenGeneration && known.generation < generation;
      if (!isKnown && !isNext) return { answer: 'refused' };
      promised[index] = { generation, incarnation: nominated };
    }
    memory.roster = promised;
    const { max, longestMs, generation, voter } = memory;
    if (voter) memory.voter = { ...voter, roster: promised };
    return {
      answer: 'promised',
      max,
      longestMs,
      voting: voter !== null,
      generation,
      incarnation,
      roster: before,
    };
  }

  #admit(incarnation: string, generation: number, plan: Readmission): Answer {
    const memory = this.#memory;
    if (memory.incarnation !== incarnation) return { answer: 'changed' };
    if (memory.voter && memory.generation >= generation) return { answer: 'already-admitted' };
    const keepsTies = this.#flaws.has('roster-ties-by-place');
    const roster = plan.roster.map((given, at) => {
      const one = memory.roster[at];
      if (!one || (keepsTies && one.generation === given.generation)) return given;
      return isLater(one, given) ? one : given;
    });
    memory.generation = generation;
    memory.roster = roster;
    memory.voter = { index: this.#index, generation, incarnation, roster };
    if (plan.floor > memory.max) memory.max = plan.floor;
    memory.floor = memory.max;
    memory.longestMs = Math.max(plan.longestMs, memory.longestMs);
    memory.maxTtlMs = LEASE_MS;
    return { answer: 'admitted' };
  }

  #acquire(owner: string): Answer {
    const memory = this.#memory;
    const { voter, floor, max, token, endsMs } = memory;
    if (!voter) return { answer: 'not-voting' };
    const { nowMs } = this.#clock;
    const isHeld = memory.owner !== null && endsMs >= nowMs;
    if (isHeld && memory.owner !== owner) {
      return { answer: 'held', remainingMs: endsMs - nowMs, timeMs: EPOCH_MS + nowMs };
    }
    memory.longestMs = Math.max(memory.longestMs, LEASE_MS);
    const ends = Math.max(nowMs + LEASE_MS, isHeld ? endsMs : 0);
    return this.#grant(voter, 1n + (token === null ? max : larger(token, floor)), owner, ends);
  }

  #confirm(owner: string, wanted: bigint): Answer {
    const { voter, floor, token, owner: holder, endsMs } = this.#memory;
    if (!voter) return { answer: 'not-voting' };
    const holds = holder === owner && endsMs >= this.#clock.nowMs;
    if (!holds || token === null) return { answer: 'not-held' };
    return this.#grant(voter, larger(wanted, 1n + larger(token, floor)), owner, endsMs);
  }

  #grant(voter: Voter, token: bigint, owner: string, endsMs: number): Answer {
    const memory = this.#memory;
    memory.max = larger(memory.max, token);
    memory.token = token;
    memory.owner = owner;
    memory.endsMs = endsMs;
    const { generation, incarnation, roster } = voter;
    return { answer: 'granted', token, generation, incarnation, roster };
  }

  #release(owner: string): Answer {
    const memory = this.#memory;
    if (memory.owner !== owner) return { answer: 'not-held' };
    memory.owner = null;
    memory.endsMs = 0;
    return { answer: 'released' };
  }

  /** As `begin_incarnation` in incarnation.lua. */
  #newName(random: number): string {
    const nowMs = EPOCH_MS + this.#clock.nowMs;
    const seconds = Math.floor(nowMs / 1_000);
    return `${idText(random)}.${seconds}.${nowMs * 1_000 - seconds * 1_000_000}`;
  }
}

function larger(one: bigint, other: bigint): bigint {
  return one > other ? one : other;
}

/** Text of a random number, as at the end of a unique id. */
export function idText(random: number): string {
  return random.toString(16).padStart(8, '0');
}
