import type { NodeAnswer, VoteReply } from '../core/answers.js';
import type { AcquireFailure } from '../core/failure.js';
import { PATIENCE_MS, type Probe } from '../core/first-asked.js';
import { callsForAdmission, decide, isTaken, retryAfterMs, type Vote } from '../core/tally.js';
import { validityMs } from '../core/validity.js';
import type { Holding, Nodes, Ticket } from '../redis/nodes.js';
import { onAbort, type Runtime } from '../runtime/runtime.js';

/** How one attempt to acquire ended. `deadlineMs` is on the runtime's monotonic clock. */
export type AttemptOutcome =
  | {
      readonly ok: true;
      readonly token: bigint;
      /** The last of the tokens that are its own, and the highest that the nodes know of. */
      readonly lastToken: bigint;
      readonly deadlineMs: number;
      /** How many stand directly behind it who wait in this process: one token is for each. */
      readonly followers: number;
      /** Whether others stand behind those. */
      readonly othersWait: boolean;
      /** The nodes that have not been asked. */
      readonly unasked: readonly number[];
      /** What every node has said by now. */
      readonly answers: () => readonly NodeAnswer[];
    }
  | AcquireFailure;

/** How long an attempt that has some nodes, while others hold some, waits for the rest. */
const SPLIT_MIN_MS = 50;
/** The same, in the time that it took until then: the rest may only be far away. */
const SPLIT_FACTOR = 3;

const PENDING: Vote = { answer: 'pending' };

/** Whether a node that was to grant the lock did, or said who has it. */
const isVote = ({ answer }: VoteReply): boolean => answer === 'granted' || answer === 'held';

/**
 * One attempt to acquire: ACQUIRE on all nodes at once, or on a majority and on the rest where that has not decided it; CONFIRM on those
 * that granted a lower token than the highest. It settles as soon as the votes decide, whatever the other nodes do, and if it fails it
 * holds nothing: it releases on every node that it has asked, also on those that have not answered. Only who stands in line there keeps
 * what it has.
 */
export class Attempt {
  readonly #nodes: Nodes;
  readonly #holding: Holding;
  readonly #ttlMs: number;
  readonly #ticket: Ticket | null;
  readonly #runtime: Runtime;
  readonly #callForAdmission: () => void;
  readonly #votes: Vote[];
  /** The token that each node has last been asked to confirm; null where none was. */
  #asked: Map<number, bigint> | null = null;
  /** How many requests have not been answered. */
  #unanswered = 0;
  /** Where all nodes were asked at once, and no other attempt shows how they vote. */
  #probe: Probe | null = null;
  /** The nodes that have not been asked. */
  #rest: readonly number[] = [];
  readonly #startedMs: number;
  readonly #limitMs: number;
  readonly #settle = Promise.withResolvers<AttemptOutcome>();
  #outcome: AttemptOutcome | null = null;
  #ignoreAbort: (() => void) | null = null;
  #needsAdmission = false;
  #cancelSplit: (() => void) | null = null;
  readonly #questions: { endLimit(): void }[] = [];

  /**
   * @param limitMs for how long answers are awaited in all
   * @param ticket of who waits in line where somebody else holds the lock
   * @param callForAdmission called when votes show that a node is to be admitted
   */
  constructor(
    nodes: Nodes,
    holding: Holding,
    ttlMs: number,
    limitMs: number,
    ticket: Ticket | null,
    runtime: Runtime,
    callForAdmission: () => void,
  ) {
    this.#nodes = nodes;
    this.#holding = holding;
    this.#ttlMs = ttlMs;
    this.#limitMs = limitMs;
    this.#ticket = ticket;
    this.#runtime = runtime;
    this.#callForAdmission = callForAdmission;
    this.#votes = nodes.all.map(() => PENDING);
    this.#startedMs = runtime.nowMs();
  }

  /** Never rejects: an aborted attempt is a failed one. To be called once. */
  run(signal: AbortSignal): Promise<AttemptOutcome> {
    const abort = (): void => this.#lose('aborted');
    this.#ignoreAbort = onAbort(signal, abort);
    // An abort before now has no event any more.
    if (signal.aborted) abort();
    // Who stood in line may have been handed the lock meanwhile.
    else if (this.#holding.isGivenUp) this.#lose('held');
    else this.#askFirst();
    return this.#settle.promise;
  }

  #askFirst(): void {
    const { first } = this.#nodes;
    const chosen = first.choose(this.#startedMs);
    if (chosen === first.all) this.#beginProbe();
    else this.#rest = first.all.filter((index) => !chosen.includes(index));
    this.#ask(chosen);
  }

  #beginProbe(): void {
    const probe = this.#nodes.first.probe(this.#startedMs);
    this.#probe = probe;
    if (probe) this.#nodes.after(PATIENCE_MS, () => probe.end());
  }

  /** A node has not answered for a while. */
  readonly #late = (): void => {
    if (this.#rest.length === 0) return;
    this.#nodes.first.doubt();
    this.#askRest();
    this.#limitSplit();
  };

  #askRest(): void {
    const rest = this.#rest;
    this.#rest = [];
    if (rest.length > 0) this.#ask(rest);
  }

  #ask(indexes: readonly number[]): void {
    this.#unanswered += indexes.length;
    const tell = (index: number, vote: VoteReply, isMore: boolean): void =>
      this.#hear(index, vote, isMore);
    this.#questions.push(
      this.#nodes.acquire(
        indexes,
        this.#holding,
        this.#ttlMs,
        this.#ticket,
        this.#leftMs,
        tell,
        this.#late,
      ),
    );
  }

  /** @param asked the token the node was to confirm; none where it was to grant one */
  #hear(index: number, vote: VoteReply, isMore: boolean, asked?: bigint): void {
    this.#unanswered -= 1;
    if (asked === undefined) {
      if (!isVote(vote)) this.#nodes.first.doubt(index);
      this.#probe?.heard(index, isVote(vote), this.#runtime.nowMs());
    }
    // Replies may overtake each other; only the one to the latest question is this node's vote.
    if (this.#asked?.get(index) === asked) {
      this.#votes[index] = vote;
      if (callsForAdmission(this.#votes, index)) this.#needsAdmission = true;
    }
    if (!isMore) this.#goOn(vote);
  }

  /** @param vote the last that came */
  #goOn(vote: VoteReply): void {
    if (this.#outcome) {
      // The nodes that had not been waited for tell, too.
      if (this.#needsAdmission) this.#callForAdmission();
      return;
    }
    const decision = decide(this.#votes);
    if (decision.state === 'lost') this.#lose(decision.reason);
    else if (decision.state === 'won') this.#win(decision.token);
    else {
      // Now, so that a caller who cannot win hears in time why not.
      if (this.#needsAdmission) this.#callForAdmission();
      this.#confirm(decision.laggards, decision.token);
      // Where all of the first hold it for another that is decided by them, and the rest need not be bothered.
      if (!isVote(vote) || this.#unanswered === 0) this.#askRest();
      this.#limitSplit();
    }
  }

  #confirm(laggards: readonly number[], token: bigint): void {
    const indexes = laggards.filter((laggard) => this.#asked?.get(laggard) !== token);
    if (indexes.length === 0) return;
    this.#asked ??= new Map();
    for (const index of indexes) this.#asked.set(index, token);
    this.#unanswered += indexes.length;
    const tell = (index: number, vote: VoteReply, isMore: boolean): void =>
      this.#hear(index, vote, isMore, token);
    this.#questions.push(
      this.#nodes.confirm(indexes, this.#holding, token, this.#leftMs, tell, this.#late),
    );
  }

  /** For how long answers are still awaited. */
  get #leftMs(): number {
    return Math.max(1, this.#startedMs + this.#limitMs - this.#runtime.nowMs());
  }

  /** Where others hold a part of the nodes, and we another, whoever waits for the rest keeps both waiting. */
  #limitSplit(): void {
    if (this.#rest.length > 0 || this.#cancelSplit) return;
    const has = (answer: Vote['answer']): boolean =>
      this.#votes.some((vote) => vote.answer === answer);
    if (!has('held') || !has('granted')) return;
    const limitMs = Math.max(
      SPLIT_MIN_MS,
      SPLIT_FACTOR * (this.#runtime.nowMs() - this.#startedMs),
    );
    this.#cancelSplit = this.#runtime.after(limitMs, () => this.#lose('held'), 'background');
  }

  // Redlock's own check, step 3 of the Redis documentation: votes that came too late are worth nothing.
  #win(lastToken: bigint): void {
    const nowMs = this.#runtime.nowMs();
    const validMs = validityMs(this.#ttlMs, nowMs - this.#startedMs);
    if (validMs > 0) {
      this.#finish({
        ok: true,
        ...this.#granted(lastToken),
        lastToken,
        deadlineMs: nowMs + validMs,
        unasked: this.#rest,
        answers: () => this.#nodes.answers(this.#votes),
      });
    } else this.#lose('too-slow');
  }

  /** A token that was confirmed may follow directly on those of others. */
  #granted(lastToken: bigint) {
    const own = { token: lastToken, followers: 0, othersWait: false };
    if (this.#asked) return own;
    let followers = this.#ticket?.heirsMax ?? 0;
    own.token -= BigInt(followers);
    for (const vote of this.#votes) {
      if (vote.answer !== 'granted' || vote.token !== lastToken) continue;
      followers = Math.min(followers, vote.followers ?? 0);
      own.othersWait ||= vote.othersWait === true;
    }
    return { ...own, followers };
  }

  #lose(reason: AcquireFailure['reason']): void {
    // An abort may come between the win and the moment at which `run` hears of it.
    if (this.#outcome) return;
    // What it has got where a majority holds the lock for another would be in the way of that one only.
    const hasNone =
      this.#unanswered === 0 && !this.#votes.some(({ answer }) => answer === 'granted');
    const isInLine =
      reason === 'held' && this.#ticket !== null && (hasNone || !isTaken(this.#votes));
    if (!isInLine) this.#nodes.giveUp(this.#holding);
    this.#finish({
      ok: false,
      reason,
      retryAfterMs: retryAfterMs(this.#votes),
      nodes: this.#nodes.answers(this.#votes),
    });
  }

  #finish(outcome: AttemptOutcome): void {
    this.#outcome = outcome;
    this.#probe?.decided(this.#runtime.nowMs());
    this.#ignoreAbort?.();
    this.#cancelSplit?.();
    for (const question of this.#questions) question.endLimit();
    if (this.#needsAdmission) this.#callForAdmission();
    // Another attempt must not travel in one script with the release of this: nobody else would ever get between the two.
    if (outcome.ok) this.#settle.resolve(outcome);
    else this.#runtime.soon(() => this.#settle.resolve(outcome));
  }
}
