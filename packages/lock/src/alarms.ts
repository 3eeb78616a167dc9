import type { Runtime } from './runtime.js';

/** What is to happen at a time, in a ring with the others. */
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

/** A clock and its timers. */
type Clock = Pick<Runtime, 'nowMs' | 'after'>;

/**
 * Time limits that hardly ever run out: all share one timer, which stays set when they are called off, so that to begin one and
 * to call it off costs next to nothing.
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

  /** Calls back once after `delayMs`, unless the returned function is called before. */
  after(delayMs: number, ring: () => void): () => void {
    const nowMs = this.#clock.nowMs();
    const alarm = new Alarm(nowMs + delayMs, ring);
    alarm.before = this.#start.before;
    alarm.next = this.#start;
    this.#start.before.next = alarm;
    this.#start.before = alarm;
    // One that should have rung long ago may never ring: a timer that was a test's, and is gone with its clock.
    if (this.#timerDueMs < nowMs) this.#setTimer(nowMs, 0);
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
    let nextMs = Number.POSITIVE_INFINITY;
    for (let alarm = this.#start.next; alarm !== this.#start; alarm = alarm.next) {
      if (alarm.dueMs <= nowMs) due.push(alarm);
      else nextMs = Math.min(nextMs, alarm.dueMs);
    }
    if (nextMs < Number.POSITIVE_INFINITY) this.#setTimer(nextMs, nextMs - nowMs);
    // One that rings may call off another.
    for (const alarm of due) if (alarm.leave()) alarm.ring();
  }
}
