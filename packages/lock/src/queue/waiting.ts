import type { NodeAnswer } from '../core/answers.js';
import { backoffMs } from '../core/backoff.js';
import type { AcquireFailure } from '../core/failure.js';
import { majorityOf } from '../core/quorum.js';
import { isTaken } from '../core/tally.js';
import type { AcquireRequest, LeaseClaim } from '../lease/transport.js';
import { Holding, type Nodes, type Ticket } from '../redis/nodes.js';
import type { AttemptOutcome } from '../redlock/attempt.js';
import { type Runtime, sleep } from '../runtime/runtime.js';
import type { WakeUps } from './wake-ups.js';

/** For how long a waiter that has vanished is waited for, at most. */
const TURN_MAX_MS = 2_000;
/** To how many in this process a lock is handed on, at most, before the nodes are asked again. */
const HEIRS_MAX = 16;
/** So that two processes hardly ever have the same; where they do, one may be served a little before its time. */
const FAMILY_LENGTH = 8;
/** By how much the scores of those differ who come to the line at the same time. */
const SCORE_STEP = 0.001;
/** For how long the answer that came soonest tells the clock of the nodes. */
const CLOCK_MS = 1_000;
/** How long it takes another process to get the lock once it is given up here. */
const PASS_MS = 3;
/** How often, in the time that its place lasts, a waiter asks again. */
const ASKS_PER_TURN = 3;
/** How long a waiter that some nodes have called waits for the others. */
const OTHERS_MS = 10;
/** How many attempts in a row may win some nodes only, before the waiter lets those go. */
const SPLITS_MAX = 2;

/** In-process FIFO of waiters. A local release wakes them without a round trip. */
export class LocalQueue {
  readonly #runtime: Runtime;
  readonly #waiting = new Map<string, Set<Place>>();
  /** What was handed on, and is not in anybody's hands yet. */
  readonly onTheWay: Set<LeaseClaim> = new Set();
  /** By how much the nodes' clock is ahead of our monotonic one, in milliseconds, at least: an answer was some time on its way. */
  #aheadMs = Number.NEGATIVE_INFINITY;
  #heardMs = Number.NEGATIVE_INFINITY;
  #lastScore = 0;
  /** What others were last let have, and until when they are on their way to it. */
  #passing: { readonly resources: readonly string[]; readonly untilMs: number } = {
    resources: [],
    untilMs: 0,
  };
  /** What the owner ids begin with of those who may hand a lock on to each other. */
  readonly family: string;

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
    this.family = `${runtime.uniqueId().slice(0, FAMILY_LENGTH)}-`;
  }

  /** The score of who comes now: when that is by the clock of the nodes. */
  newScore(): number {
    // Else a clock that was ahead once would keep all who come later behind others.
    if (this.#waiting.size === 0) this.#lastScore = 0;
    const nodesMs = this.#runtime.nowMs() + this.#aheadMs + this.#runtime.random();
    this.#lastScore = Math.max(nodesMs, this.#lastScore + SCORE_STEP);
    return this.#lastScore;
  }

  /** For one that waits for a single resource: by how its owner id begins, a node knows that it may inherit. */
  newOwner(): string {
    return `${this.family}${this.#runtime.uniqueId()}`;
  }

  /** By the clock in the middle of those of the nodes that answered, and of our own where they are even: one that is wrong is outvoted. */
  hear(answers: readonly NodeAnswer[]): void {
    const times = answers.flatMap(({ timeMs }) => (timeMs === undefined ? [] : [timeMs]));
    if (times.length === 0 && this.#heardMs > Number.NEGATIVE_INFINITY) return;
    if (times.length % 2 === 0) times.push(this.#runtime.wallClockMs());
    const middle = times.toSorted((a, b) => a - b)[Math.floor((times.length - 1) / 2)] ?? 0;
    const nowMs = this.#runtime.nowMs();
    if (middle - nowMs < this.#aheadMs && nowMs - this.#heardMs < CLOCK_MS) return;
    this.#aheadMs = middle - nowMs;
    this.#heardMs = nowMs;
  }

  /** Who has waited longest for one of these. */
  first(resources: readonly string[]): Place | null {
    for (const resource of resources) {
      for (const place of this.#waiting.get(resource) ?? []) return place;
    }
    return null;
  }

  /** These are given up, and others stand first in line for them. */
  letPass(resources: readonly string[]): void {
    this.#passing = { resources, untilMs: this.#runtime.nowMs() + PASS_MS };
  }

  /** For how long those are on their way who were let have one of these, in milliseconds. */
  passMs(resources: readonly string[]): number {
    const isAny = resources.some((resource) => this.#passing.resources.includes(resource));
    return isAny ? this.#passing.untilMs - this.#runtime.nowMs() : 0;
  }

  /** Those who wait for this resource beside this one, in the order in which they came, as many as a lock may be handed on to. */
  others(place: Place, resource: string): readonly Place[] {
    const others: Place[] = [];
    for (const one of this.#waiting.get(resource) ?? []) {
      if (others.length === HEIRS_MAX) break;
      if (one !== place) others.push(one);
    }
    return others;
  }

  join(place: Place, resources: readonly string[]): void {
    for (const resource of resources) {
      const line = this.#waiting.get(resource);
      if (line) line.add(place);
      else this.#waiting.set(resource, new Set([place]));
    }
  }

  leave(place: Place, resources: readonly string[]): void {
    for (const resource of resources) {
      const line = this.#waiting.get(resource);
      line?.delete(place);
      if (line?.size === 0) this.#waiting.delete(resource);
    }
  }
}

/**
 * The place of one caller in the lines of all nodes. It asks whenever a majority says that its turn has come, and slowly by the
 * clock besides: a message may be lost, and its place is kept only for who is heard of.
 *
 * Whether it has the lock is decided by its attempts alone, as for everybody else.
 */
export class Place {
  readonly #nodes: Nodes;
  readonly #request: AcquireRequest;
  readonly #wakeUps: WakeUps;
  readonly #runtime: Runtime;
  readonly #localQueue: LocalQueue;
  readonly #called = new Set<number>();
  #isCalledHere = false;
  #mustAsk = false;
  #inherited: LeaseClaim | null = null;
  #interrupt: () => void = () => {};
  /** Those who waited for the same in this process when it last asked. */
  #others: readonly Place[] = [];
  #holding: Holding | null = null;
  /** Under which owner id it hears of its turn. */
  #listensAs: string | null = null;
  #ticket: Omit<Ticket, 'heirsMax' | 'family'> | null = null;
  #isInLine = false;
  #hasTurn = false;
  #isTaking = false;
  #splits = 0;
  #unsubscribe: () => void = () => {};
  #awaken: () => void = () => {};

  constructor(
    nodes: Nodes,
    request: AcquireRequest,
    wakeUps: WakeUps,
    localQueue: LocalQueue,
    runtime: Runtime,
  ) {
    this.#nodes = nodes;
    this.#request = request;
    this.#wakeUps = wakeUps;
    this.#localQueue = localQueue;
    this.#runtime = runtime;
  }

  /** What the next attempt is to take, and under which owner id. */
  get holding(): Holding {
    const { resources } = this.#request;
    const newOwner = (): string =>
      resources.length === 1 ? this.#localQueue.newOwner() : this.#runtime.uniqueId();
    this.#holding ??= new Holding(resources, newOwner(), true);
    return this.#holding;
  }

  /** As many of those who waited for the same single resource when the ticket was shown, in the order in which they came. */
  heirs(count: number): readonly Place[] {
    return this.#others.slice(0, count);
  }

  get hasInherited(): boolean {
    return this.#inherited !== null;
  }

  /** Returns the lock that another waiter of this process handed over, once. */
  takeInherited(): LeaseClaim | null {
    const inherited = this.#inherited;
    if (inherited) this.#localQueue.onTheWay.delete(inherited);
    this.#inherited = null;
    return inherited;
  }

  /** The nodes' answer to a queued waiter, or `held` if the lock is handed over before it comes. */
  unlessInherited(asked: Promise<AcquireFailure | null>): Promise<AcquireFailure | null> {
    return new Promise((resolve) => {
      this.#interrupt = () => resolve({ ok: false, reason: 'held', nodes: [], retryAfterMs: 0 });
      void asked.then(resolve);
    });
  }

  /** Who comes is in nobody's way who was just let have the lock: its place is its score. Rejects nowhere. */
  async untilPassed(): Promise<void> {
    const { resources, signal } = this.#request;
    const passMs = this.#isInLine ? 0 : this.#localQueue.passMs(resources);
    if (passMs > 0) await sleep(this.#runtime, passMs, signal).catch(() => {});
  }

  /** Whether it stands in line, and has taken nothing. */
  get isWaiting(): boolean {
    return this.#isInLine && !this.#isTaking && !this.#request.signal.aborted;
  }

  /** It asks for the lock now, until `note` is told how that ended. */
  take(): void {
    this.#isTaking = true;
  }

  /** Whether it waits for this resource alone, for a lease of the same length. */
  wants(leaseMs: number): boolean {
    const { resources, ttlMs } = this.#request;
    return resources.length === 1 && ttlMs === leaseMs;
  }

  inherit(claim: LeaseClaim): void {
    this.#localQueue.onTheWay.add(claim);
    this.#inherited = claim;
    this.#isInLine = false;
    this.#leave();
    this.#interrupt();
    this.#awaken();
  }

  /** Null as long as no node has said that somebody else holds the lock. */
  showTicket(): Ticket | null {
    if (this.#ticket === null) return null;
    const [resource = '', ...more] = this.#request.resources;
    this.#others = more.length > 0 ? [] : this.#localQueue.others(this, resource);
    return { ...this.#ticket, heirsMax: this.#others.length, family: this.#localQueue.family };
  }

  /** Whether a majority has said that it may take the lock now. */
  get hasTurn(): boolean {
    return this.#hasTurn;
  }

  /** Takes note of an attempt for `holding`. Only one that stands in line goes on under its owner id. */
  note(outcome: AttemptOutcome): void {
    const hasOnlyAsked = !this.#isTaking;
    this.#isTaking = false;
    if (this.#inherited) return;
    const keepsPlace =
      !outcome.ok &&
      (outcome.reason === 'held' || (outcome.reason === 'no-quorum' && hasOnlyAsked));
    if (outcome.ok || !keepsPlace || this.#ticket === null) {
      this.#isInLine = false;
      this.#leave();
      return;
    }
    this.#isInLine = !this.#holding?.isGivenUp;
    if (!this.#isInLine) this.#leave();
    const has = outcome.nodes.some(({ answer }) => answer === 'granted' || answer === 'turn');
    // Where a majority holds the lock for another, a turn on the rest is no more than that.
    const isSplit = has && !isTaken(outcome.nodes);
    this.#splits = isSplit || !this.#isInLine ? this.#splits + 1 : 0;
  }

  async pause(attempts: number, attempt: AcquireFailure, leftMs: number): Promise<void> {
    const { signal } = this.#request;
    if (attempt.reason === 'held') this.#localQueue.hear(attempt.nodes);
    if (attempt.reason === 'held' && this.#ticket === null) return this.enter();
    const delayMs = this.#delayMs(attempts, attempt);
    if (this.#splits === SPLITS_MAX) this.#stepBack();
    if (this.#ticket && this.#listensAs !== this.holding.owner) this.#listen();
    const woken = new Promise<void>((resolve) => {
      this.#awaken = resolve;
    });
    if (this.#isCalled || this.#mustAsk || this.#inherited) this.#awaken();
    await sleep(this.#runtime, Math.min(delayMs, leftMs), signal, woken);
    this.#hasTurn = this.#isCalled;
    this.#called.clear();
    this.#isCalledHere = false;
    this.#mustAsk = false;
  }

  /** Goes to the end of the line. */
  enter(): void {
    this.#ticket = {
      score: this.#localQueue.newScore(),
      channel: this.#wakeUps.channel,
      turnMs: Math.min(this.#request.ttlMs, TURN_MAX_MS),
    };
    this.#localQueue.join(this, this.#request.resources);
    this.#listen();
  }

  /** Wakes this waiter: a lease of this process gave up the lock. */
  call(): void {
    this.#isCalledHere = true;
    this.#awaken();
  }

  [Symbol.dispose](): void {
    this.#localQueue.leave(this, this.#request.resources);
    if (this.#isInLine) this.#stepBack();
    this.#leave();
    void this.takeInherited()?.release();
  }

  #delayMs(attempts: number, { reason, retryAfterMs }: AcquireFailure): number {
    const chance = this.#runtime.random();
    if (this.#splits > 0) return OTHERS_MS * (1 + chance);
    const isHeard = this.#wakeUps.heard >= majorityOf(this.#nodes.all.length);
    const isAnswered = reason === 'held' ? isHeard : this.#isInLine;
    if (!this.#ticket || !isAnswered) {
      return backoffMs(attempts, retryAfterMs, chance);
    }
    const askMs = this.#ticket.turnMs / ASKS_PER_TURN;
    return Math.min(askMs, retryAfterMs > 0 ? retryAfterMs : askMs) * (1 + chance / 10);
  }

  /** Lets what it has go to the next in line, which may need just that; its own place is kept by the score. */
  #stepBack(): void {
    this.#nodes.giveUp(this.holding);
    this.#isInLine = false;
    this.#leave();
  }

  /** Goes on, if at all, under another owner id. */
  #leave(): void {
    this.#unsubscribe();
    this.#unsubscribe = () => {};
    this.#listensAs = null;
    this.#called.clear();
    this.#splits = 0;
    this.#holding = null;
  }

  #listen(): void {
    const { owner } = this.holding;
    this.#unsubscribe();
    this.#listensAs = owner;
    this.#unsubscribe = this.#wakeUps.subscribe(owner, {
      told: (node) => {
        this.#called.add(node);
        if (this.#isCalled) this.#awaken();
        else this.#runtime.after(OTHERS_MS, () => this.#awaken(), 'background');
      },
      missed: () => {
        this.#mustAsk = true;
        this.#awaken();
      },
    });
  }

  get #isCalled(): boolean {
    return this.#isCalledHere || this.#called.size >= majorityOf(this.#nodes.all.length);
  }
}
