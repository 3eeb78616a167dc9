import type { Runtime } from './runtime.js';

/** What is to happen at a time, in a ring with the others, the earliest first. */
class Alarm {
  readonly dueMs: number;
  readonly ring: () => void;
  before: Alarm = this;
  next: Alarm = this;

  constructor(dueMs: number, ring: () => void) {
    this.dueMs = dueMs;
    this.ring = ring;
  }

  /** Takes it out of the ring; false where it was in none. */
  leave(): boolean {
    const wasSet = this.next !== this;
    this.before.next = this.next;
    this.next.before = this.before;
    this.before = this;
    this.next = this;
    return wasSet;
  }
}

/** How late a timer may be that is not lost. */
const LOST_MS = 100;

/** A clock and its timers. */
type Clock = Pick<Runtime, 'nowMs' | 'after'>;

/**
 * Time limits that hardly ever run out: all share one timer, which stays set when they are called off, so that to begin one and
 * to call it off costs next to nothing where they are all about as long.
 */
export class Alarms {
  readonly #clock: Clock;
  /** Where the ring of those that are set begins and ends. */
  readonly #start = new Alarm(Number.POSITIVE_INFINITY, () => undefined);
  #timerDueMs = Number.POSITIVE_INFINITY;
  #stopTimer = (): void => undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Calls back once after `delayMs`, unless the returned function is called before.
   *
   * @param nowMs for who has just read the clock
   */
  after(delayMs: number, ring: () => void, nowMs: number = this.#clock.nowMs()): () => void {
    const alarm = new Alarm(nowMs + delayMs, ring);
    let before = this.#start.before;
    while (before !== this.#start && before.dueMs > alarm.dueMs) before = before.before;
    alarm.before = before;
    alarm.next = before.next;
    before.next.before = alarm;
    before.next = alarm;
    // One that should have rung long ago may never ring: a timer that was a test's, and is gone with its clock.
    if (this.#timerDueMs + LOST_MS < nowMs) this.#setTimer(nowMs, 0);
    else if (alarm.dueMs < this.#timerDueMs) this.#setTimer(alarm.dueMs, delayMs);
    return () => void alarm.leave();
  }

  #setTimer(dueMs: number, delayMs: number): void {
    this.#stopTimer();
    this.#timerDueMs = dueMs;
    this.#stopTimer = this.#clock.after(delayMs, () => this.#ringDue());
  }

  #ringDue(): void {
    this.#timerDueMs = Number.POSITIVE_INFINITY;
    const nowMs = this.#clock.nowMs();
    const due: Alarm[] = [];
    let alarm = this.#start.next;
    for (; alarm.dueMs <= nowMs; alarm = alarm.next) due.push(alarm);
    if (alarm !== this.#start) this.#setTimer(alarm.dueMs, alarm.dueMs - nowMs);
    // One that rings may call off another.
    for (const one of due) if (one.leave()) one.ring();
  }
}
