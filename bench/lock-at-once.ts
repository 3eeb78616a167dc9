import { startRedis } from '@fenced/testbed';
import { lockRounds } from './lock-orders.ts';
import { LockProcess } from './lock-process.ts';
import { best, bestPeer, failures, isOf, named } from './lock-results.ts';
import { FLOOR, type LockSubject, lockSubjects, OURS } from './lock-subjects.ts';
import { type BenchOptions, inTurn, measure, type Row, row } from './measure.ts';

const BENCH = 'lock-64-at-once';
const WORKERS = 64;

/** How many locks a second does one process get and give back, if 64 parts of it each want one of their own? */
export async function benchAtOnce(options: BenchOptions): Promise<Row[]> {
  await using redis = await startRedis(5);
  await using parts = new AsyncDisposableStack();
  const locks = await Promise.all(
    lockSubjects.flatMap(settings).map(async ({ name, autoPipelining }) => {
      const label = autoPipelining ? `${name}, autopipelining` : name;
      return { label, lock: parts.use(await LockProcess.start(redis, name, { autoPipelining })) };
    }),
  );
  const { rounds, durationMs, warmUpMs } = lockRounds(options);
  const order = { workers: WORKERS, durationMs, patienceMs: 10_000, resource: null, holdMs: null };
  for (const { lock } of locks) await lock.cycles({ ...order, durationMs: warmUpMs });
  const results = await inTurn(locks, rounds, ({ lock }) => lock.cycles(order));
  const all = results.map(([{ label }, its]) => measure(label, its, failures));
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
function settings({ name, kind }: LockSubject): { name: string; autoPipelining: boolean }[] {
  const both = kind === 'floor' ? [false] : [false, true];
  return both.map((autoPipelining) => ({ name, autoPipelining }));
}
