import { type LockSetting, measureInTurn } from './lock-in-turn.ts';
import { best, bestPeer, isOf, named } from './lock-results.ts';
import type { LockSubject } from './lock-subject.ts';
import { FLOOR, lockSubjects, OURS } from './lock-subjects.ts';
import { type BenchOptions, type Row, row } from './measure.ts';

const BENCH = 'lock-64-at-once';
const EXTENT = { workers: 64, sets: 4 };

/** How many locks a second does one process get and give back, if 64 parts of it each want one of their own? */
export async function benchAtOnce(options: BenchOptions): Promise<Row[]> {
  const all = await measureInTurn(options, EXTENT, lockSubjects.flatMap(settings));
  const ours = best(
    all.filter(({ subject }) => isOf(OURS, subject)),
    'perSecond',
  );
  const floor = named(all, FLOOR);
  return [
    ...all.map((one) => row(BENCH, one, floor, 'perSecond')),
    row(BENCH, ours, bestPeer(all, 'perSecond'), 'perSecond'),
  ];
}

/** Autopipelining is a setting of the locks; a floor is measured as it is. */
function settings({ name, kind }: LockSubject): LockSetting[] {
  const both = kind === 'floor' ? [false] : [false, true];
  return both.map((autoPipelining) => ({ name, autoPipelining }));
}
