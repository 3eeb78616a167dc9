import type { AttemptOutcome, FailedAttempt } from './attempt.js';
import type { NodeAnswer } from './core/answers.js';
import { backoffMs } from './core/backoff.js';
import { majorityOf } from './core/quorum.js';
import { isTaken } from './core/tally.js';
import type { Request, Wait } from './lock-service.js';
import { Holding, type Nodes, type Ticket } from './redis/nodes.js';
import type { WakeUps } from './redis/wake-ups.js';
import { type Runtime, sleep } from './runtime.js';

/** For how long a waiter that has vanished is waited for, at most: in its place, and then in its turn. */
const TURN_MAX_MS = 2_000;
/** How often, in the time that its place lasts, a waiter asks again. */
const ASKS_PER_TURN = 3;
/** How long a waiter that some nodes have called waits for the others. */
const OTHERS_MS = 10;
/** How many attempts in a row may win some nodes only, before the waiter lets those go. */
const SPLITS_MAX = 2;

/**
 * The place of one caller in the lines of all nodes. It asks whenever a majority says that its turn has come, and slowly by the
 * clock besides: a message may be lost, and its place is kept only for who is heard of.
 *
 * Whether it has the lock is decided by its attempts alone, as for everybody else.
 */
export class Place implements Wait {
  readonly #nodes: Nodes;
  readonly #request: Request;
  readonly #wakeUps: WakeUps;
  readonly #runtime: Runtime;
  readonly #called = new Set<number>();
  #holding: Holding | null = null;
  #ticket: Ticket | null = null;
  #isInLine = false;
  #hasTurn = false;
  #splits = 0;
  #unsubscribe: () => void = () => {};
  #awaken: () => void = () => {};

  constructor(nodes: Nodes, request: Request, wakeUps: WakeUps, runtime: Runtime) {
    this.#nodes = nodes;
    this.#request = request;
    this.#wakeUps = wakeUps;
    this.#runtime = runtime;
  }

  /** What the next attempt is to take, and under which owner id. */
  get holding(): Holding {
    this.#holding ??= new Holding(this.#request.resources, this.#runtime.uniqueId(), true);
    return this.#holding;
  }

  /** Null as long as no node has said that somebody else holds the lock. */
  get ticket(): Ticket | null {
    return this.#ticket;
  }

  /** Whether a majority has said that it may take the lock now. */
  get hasTurn(): boolean {
    return this.#hasTurn;
  }

  /** Takes note of an attempt for `holding`. Only one that stands in line goes on under its owner id. */
  note(outcome: AttemptOutcome): void {
    if (outcome.ok || outcome.reason !== 'held' || this.#ticket === null) {
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

  async pause(attempts: number, attempt: FailedAttempt, leftMs: number): Promise<void> {
    const { signal } = this.#request;
    if (attempt.reason === 'held' && this.#ticket === null) {
      this.#ticket = this.#newTicket(attempt.nodes);
      this.#listen();
      return;
    }
    const delayMs = this.#delayMs(attempts, attempt);
    if (this.#splits === SPLITS_MAX) this.#stepBack();
    if (this.#ticket && this.#holding === null) this.#listen();
    const woken = new Promise<void>((resolve) => {
      this.#awaken = resolve;
    });
    if (this.#isCalled) this.#awaken();
    await sleep(this.#runtime, Math.min(delayMs, leftMs), signal, woken);
    this.#hasTurn = this.#isCalled;
    this.#called.clear();
  }

  [Symbol.dispose](): void {
    if (this.#isInLine) this.#stepBack();
    this.#leave();
  }

  #delayMs(attempts: number, { reason, retryAfterMs }: FailedAttempt): number {
    const chance = this.#runtime.random();
    if (this.#splits > 0) return OTHERS_MS * (1 + chance);
    const isHeard = this.#wakeUps.heard >= majorityOf(this.#nodes.all.length);
    if (!this.#ticket || reason !== 'held' || !isHeard) {
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
    this.#called.clear();
    this.#splits = 0;
    this.#holding = null;
  }

  #listen(): void {
    const { owner } = this.holding;
    this.#unsubscribe = this.#wakeUps.subscribe(owner, (node) => {
      this.#called.add(node);
      if (this.#isCalled) this.#awaken();
      else this.#runtime.after(OTHERS_MS, () => this.#awaken(), 'background');
    });
  }

  get #isCalled(): boolean {
    return this.#called.size >= majorityOf(this.#nodes.all.length);
  }

  /** By the clock in the middle of those of the nodes that answered, and of our own where they are even: one that is wrong is outvoted. */
  #newTicket(answers: readonly NodeAnswer[]): Ticket {
    const times = answers.flatMap(({ timeMs }) => (timeMs === undefined ? [] : [timeMs]));
    if (times.length % 2 === 0) times.push(this.#runtime.wallClockMs());
    const middle = times.toSorted((a, b) => a - b)[Math.floor((times.length - 1) / 2)] ?? 0;
    return {
      score: middle + this.#runtime.random(),
      channel: this.#wakeUps.channel,
      turnMs: Math.min(this.#request.ttlMs, TURN_MAX_MS),
    };
  }
}
