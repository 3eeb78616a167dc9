import { startRedis } from '@fenced/testbed';
import { lockRounds } from './lock-orders.ts';
import { LockProcess } from './lock-process.ts';
import { bestPeer, failures, named } from './lock-results.ts';
import { lockSubjects, OURS, RAW } from './lock-subjects.ts';
import { type BenchOptions, inTurn, measure, type Row, row } from './measure.ts';

const BENCH = 'lock-sequential';

/** How long does one client take to get a lock that nobody else wants, and to give it back? */
export async function benchSequential(options: BenchOptions): Promise<Row[]> {
  await using redis = await startRedis(5);
  await using parts = new AsyncDisposableStack();
  const locks = await Promise.all(
    lockSubjects.map(async ({ name }) => parts.use(await LockProcess.start(redis, name))),
  );
  const { rounds, durationMs, warmUpMs } = lockRounds(options);
  const order = { workers: 1, durationMs, patienceMs: 10_000, resource: null, holdMs: null };
  for (const lock of locks) await lock.cycles({ ...order, durationMs: warmUpMs });
  const results = await inTurn(locks, rounds, (lock) => lock.cycles(order));
  const all = results.map(([{ subject }, its]) => measure(subject, its, failures));
  const raw = named(all, RAW);
  return [
    ...all.map((one) => row(BENCH, one, raw, 'p50Ms')),
    row(BENCH, named(all, OURS), bestPeer(all, 'p50Ms'), 'p50Ms'),
  ];
}
