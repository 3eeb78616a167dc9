import type { Cell } from './cell.js';
import { Comparisons } from './comparisons.js';
import type { Event } from './history.js';
import { leasesIn } from './leases.js';
import { pausedBeforeWrite } from './stories/paused-before-write.js';

type Client = 'client 1' | 'client 2';

/** A moment of story 1 that its picture shows. */
export interface Moment {
  readonly kind: 'acquire' | 'pause' | 'over' | 'wake' | 'write';
  readonly client: Client;
  /** Milliseconds since the run began. */
  readonly atMs: number;
  /** Token of the client's lease. */
  readonly token: string;
  /** Of an acquire: the validity of the lease. */
  readonly validMs: number;
  /** Of a write: the storage's comparison, as in `33 < 34: refused`. */
  readonly comparison: string;
}

const kinds: Partial<Record<`${Event['operation']} ${Event['phase']}`, Moment['kind']>> = {
  'acquire ok': 'acquire',
  'pause ok': 'pause',
  'wake ok': 'wake',
  'write ok': 'write',
  'write refused': 'write',
};

/** Returns the moments of a run of story 1 under the protection `token`, in the order of time. */
export function momentsOf({ history }: Pick<Cell, 'history'>): readonly Moment[] {
  const comparisons = new Comparisons({ story: pausedBeforeWrite, protection: 'token' });
  const leases = leasesIn(history);
  const moments = history.flatMap((event): Moment[] => {
    const comparison = comparisons.of(event);
    const kind = kinds[`${event.operation} ${event.phase}`];
    const lease = leases.findLast(({ actor, fromMs }) => {
      return actor === event.actor && fromMs <= event.atMs;
    });
    if (kind === undefined || !lease) return [];
    const { atMs, validMs = 0 } = event;
    const client = event.actor as Client;
    return [{ kind, client, atMs, token: `${lease.token}`, validMs, comparison }];
  });
  const [first] = moments;
  const [lease] = leases;
  if (!first || !lease) return [];
  // The end of the lease by the stopped client's own clock. On the nodes it ends later, by the
  // allowance for clock drift.
  const over: Moment = { ...first, kind: 'over', atMs: lease.untilMs };
  return [...moments, over].sort((a, b) => a.atMs - b.atMs);
}
