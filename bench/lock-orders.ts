import type { LockSettings } from './lock-subject.ts';
import type { BenchOptions } from './measure.ts';

/** What a process is told on its command line. */
export interface ChildOptions extends LockSettings {
  /** Of `lockSubjects`. */
  readonly subject: string;
  readonly ports: readonly number[];
  readonly autoPipelining: boolean;
}

/** Acquire and release, again and again. */
export interface CyclesOrder {
  readonly kind: 'cycles';
  /** How many at once. */
  readonly workers: number;
  readonly durationMs: number;
  /** What begins in time may last this much longer. What has not ended then counts as long as it has lasted. */
  readonly patienceMs: number;
  /** All workers want this one; null: each has its own. */
  readonly resource: string | null;
  /** Keeps each lock for so long and measures only the wait for it; null: gives it back at once and measures both. */
  readonly holdMs: number | null;
  /** Collects all garbage before and after: V8 then forgets what it has compiled, and all is slow for seconds. */
  readonly readsHeap?: boolean;
}

/**
 * In rounds that are many, and short: a machine that others use is now fast and now slow, for seconds at a time. What is measured is warmed up for as
 * long as all of them last: V8 compiles what runs only a few thousand times a second after many seconds.
 */
export function lockRounds({ isQuick }: BenchOptions): {
  rounds: number;
  durationMs: number;
  warmUpMs: number;
} {
  const [rounds, durationMs] = isQuick ? [2, 50] : [20, 500];
  return { rounds, durationMs, warmUpMs: rounds * durationMs };
}

export interface CyclesReport {
  readonly durationsMs: readonly number[];
  readonly elapsedMs: number;
  /** Of each worker: how often it got the lock. */
  readonly served: readonly number[];
  /** Acquisitions and releases that rejected, and errors that nobody caught. */
  readonly failures: number;
  /** What had not ended when patience was over. */
  readonly unfinished: number;
  /** The commands that the client of one node, the one with most of them, still keeps. */
  readonly queuedCommands: number;
  /** How much more is on the heap than before; 0 where that was not to be read. */
  readonly heapGrowthBytes: number;
}

/** Many locks held at once, then many waiters for one. */
export interface HoldOrder {
  readonly kind: 'hold';
  readonly leases: number;
  readonly waiters: number;
}

export interface HoldReport {
  readonly durationsMs: readonly number[];
  readonly elapsedMs: number;
  readonly bytesPerLease: number;
  readonly bytesPerLeaseReleased: number;
  readonly timersPerLease: number;
  readonly bytesPerWaiter: number;
  readonly timersPerWaiter: number;
  /** Connections of the process while locks are held. */
  readonly sockets: number;
  readonly socketsWaiting: number;
}

export type Order = CyclesOrder | HoldOrder;
