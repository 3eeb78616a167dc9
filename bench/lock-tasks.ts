import type { LockSettings } from './lock-subject.ts';
import type { BenchOptions } from './measure.ts';

/** Arguments of a `LockProcess`. */
export interface ProgramOptions extends LockSettings {
  /** Name of one of `lockSubjects`. */
  readonly subject: string;
  readonly ports: readonly number[];
  readonly autoPipelining: boolean;
}

/** Acquires and releases, again and again. */
export interface CyclesTask {
  readonly kind: 'cycles';
  /** Concurrent cycles. */
  readonly workers: number;
  readonly durationMs: number;
  /**
   * Additional time for cycles that began in time. Then an unfinished one counts with its duration
   * so far.
   */
  readonly overtimeMs: number;
  /** Resource of all workers. Null: each worker has its own. */
  readonly resource: string | null;
  /**
   * Holds each lock for this time and measures only the acquisition. Null: no hold, measures both.
   */
  readonly holdMs: number | null;
  /** Collects garbage before and after. V8 then discards compiled code, and is slow for seconds. */
  readonly readsHeap?: boolean;
}

/**
 * Returns the sizes of rounds. They are many and short, because a shared machine changes its speed
 * for seconds at a time. The warm-up is as long as all rounds: V8 compiles rarely used code late.
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
  /** Number of acquisitions of each worker. */
  readonly served: readonly number[];
  /** Rejected acquisitions and releases, and uncaught errors. */
  readonly failures: number;
  /** Unfinished cycles at the end of the overtime. */
  readonly unfinished: number;
  /** Commands without a reply, of the node's client that has the most. */
  readonly queuedCommands: number;
  /** Growth of the heap. 0 without `readsHeap`. */
  readonly heapGrowthBytes: number;
}

/** Holds many locks at once. Then lets many waiters wait for one. */
export interface HoldTask {
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
  /** Open connections while locks are held. */
  readonly sockets: number;
  readonly socketsWaiting: number;
}

export type Task = CyclesTask | HoldTask;
