import { measureInTurn } from './lock-in-turn.ts';
import { bestPeer, named } from './lock-results.ts';
import { lockSubjects, OURS, RAW } from './lock-subjects.ts';
import { type BenchOptions, type Row, row } from './measure.ts';

const BENCH = 'lock-sequential';
/** Many sets: the best differ by less than two processes of the same do. */
const EXTENT = { workers: 1, sets: 10 };

/** How long does one client take to get a lock that nobody else wants, and to give it back? */
export async function benchSequential(options: BenchOptions): Promise<Row[]> {
  const settings = lockSubjects.map(({ name }) => ({ name, autoPipelining: false }));
  const all = await measureInTurn(options, EXTENT, settings);
  const raw = named(all, RAW);
  return [
    ...all.map((one) => row(BENCH, one, raw, 'p50Ms')),
    row(BENCH, named(all, OURS), bestPeer(all, 'p50Ms'), 'p50Ms'),
  ];
}
