import type { CheckResult } from '../../../demo/src/checker.ts';
import type { Event, Lane } from '../../../demo/src/history.ts';

/** A lane of the picture: a client, the letter of a lock node, or the storage. */
export type Place = Exclude<Lane, 'lock nodes'> | (string & {});

/** A message between two lanes. Times are virtual milliseconds since the run began. */
export interface Message {
  readonly from: Place;
  readonly to: Place;
  readonly sentMs: number;
  /** Null if it did not arrive. */
  arrivedMs: number | null;
  /** A word or two, as in `granted 33`. */
  readonly label: string;
  readonly tone: 'plain' | 'good' | 'bad' | 'faint';
}

/** A time in which a lock node says that a client holds the lock. */
export interface NodeLease {
  readonly node: string;
  readonly client: Place;
  readonly fromMs: number;
  /** Null if the run ended before. */
  untilMs: number | null;
}

/** A fault, for its chip on the time axis. */
export interface Inflicted {
  readonly atMs: number;
  readonly place: Place;
  readonly text: string;
}

/** Everything that the page shows of one run. */
export interface Run {
  readonly nodes: readonly string[];
  /** The demo's events: the checker sees nothing else. */
  readonly events: readonly Event[];
  readonly messages: readonly Message[];
  readonly leases: readonly NodeLease[];
  readonly faults: readonly Inflicted[];
  readonly verdict: CheckResult;
  readonly endMs: number;
}
