import { measureInTurn } from './lock-in-turn.ts';
import { named, rowsOf } from './lock-results.ts';
import { lockSubjects, OURS, overNodeRedis, RAW, rawNodeRedis } from './lock-subjects.ts';
import { type BenchOptions, type Row, row } from './measure.ts';

const BENCH = 'lock-sequential';
/** Many sets, because two processes of one lock differ by more than the best locks do. */
const EXTENT = { workers: 1, sets: 10 };

/** How long does a free lock take, if one client acquires and releases it again and again? */
export async function benchSequential(options: BenchOptions): Promise<Row[]> {
  const subjects = [...lockSubjects, rawNodeRedis, overNodeRedis];
  const settings = subjects.map(({ name }) => ({ name, autoPipelining: false }));
  const all = await measureInTurn(options, EXTENT, settings);
  return [
    ...rowsOf(BENCH, all, named(all, RAW), 'p50Ms'),
    row(BENCH, named(all, overNodeRedis.name), named(all, OURS), 'p50Ms'),
  ];
}
