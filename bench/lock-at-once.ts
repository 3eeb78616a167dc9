import { type LockSetting, measureInTurn } from './lock-in-turn.ts';
import { named, rowsOf } from './lock-results.ts';
import type { LockSubject } from './lock-subject.ts';
import { FLOOR, lockSubjects } from './lock-subjects.ts';
import type { BenchOptions, Row } from './measure.ts';

const BENCH = 'lock-64-at-once';
const EXTENT = { workers: 64, sets: 4 };

/**
 * How many locks a second does one process acquire and release, if 64 of its workers do so at once?
 */
export async function benchAtOnce(options: BenchOptions): Promise<Row[]> {
  const all = await measureInTurn(options, EXTENT, lockSubjects.flatMap(settings));
  return rowsOf(BENCH, all, named(all, FLOOR), 'perSecond');
}

/** Returns a lock with and without autopipelining. A `floor`, no real lock, has no such setting. */
function settings({ name, kind }: LockSubject): LockSetting[] {
  const both = kind === 'floor' ? [false] : [false, true];
  return both.map((autoPipelining) => ({ name, autoPipelining }));
}
