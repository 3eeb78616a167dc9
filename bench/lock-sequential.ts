import { startRedis } from '@fenced/testbed';
import { LockProcess } from './lock-process.ts';
import { bestPeer, failures, named } from './lock-results.ts';
import { lockSubjects, OURS, RAW } from './lock-subjects.ts';
import { type BenchOptions, inTurn, measure, type Row, row } from './measure.ts';

const BENCH = 'lock-sequential';
/** V8 compiles what runs only a few thousand times a second after many seconds. */
const WARM_UP_ROUNDS = 20;
/** Many, and short: a machine that others use is now fast and now slow, for seconds at a time. */
const ROUNDS = 20;

/** How long does one client take to get a lock that nobody else wants, and to give it back? */
export async function benchSequential({ isQuick }: BenchOptions): Promise<Row[]> {
  await using redis = await startRedis(5);
  await using parts = new AsyncDisposableStack();
  const locks = await Promise.all(
    lockSubjects.map(async ({ name }) => parts.use(await LockProcess.start(redis, name))),
  );
  const durationMs = isQuick ? 50 : 500;
  const order = { workers: 1, durationMs, patienceMs: 10_000, resource: null, holdMs: null };
  const warmUp = { ...order, durationMs: WARM_UP_ROUNDS * durationMs };
  for (const lock of locks) await lock.cycles(warmUp);
  const results = await inTurn(locks, isQuick ? 2 : ROUNDS, (lock) => lock.cycles(order));
  const all = results.map(([{ subject }, rounds]) => measure(subject, rounds, failures));
  const raw = named(all, RAW);
  return [
    ...all.map((one) => row(BENCH, one, raw, 'p50Ms')),
    row(BENCH, named(all, OURS), bestPeer(all, 'p50Ms'), 'p50Ms'),
  ];
}
