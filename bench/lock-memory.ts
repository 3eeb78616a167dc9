import { startRedis } from '@fenced/testbed';
import { LockProcess } from './lock-process.ts';
import { named } from './lock-results.ts';
import { lockSubjects, RAW } from './lock-subjects.ts';
import type { HoldReport } from './lock-tasks.ts';
import { type BenchOptions, type Extras, inTurn, measure, type Row, row, sum } from './measure.ts';

const BENCH = 'lock-memory';
const TTL_MS = 60_000;
/** Default of the libraries that poll, except redis-semaphore (10 ms). */
const RETRY_DELAY_MS = 200;

/** How much memory do 10,000 held locks take, and 1,000 waiters for one lock? */
export async function benchMemory({ isQuick }: BenchOptions): Promise<Row[]> {
  await using redis = await startRedis(5);
  // A `floor` is no real lock: it cannot wait for a held one.
  const names = lockSubjects.filter(({ kind }) => kind !== 'floor').map(({ name }) => name);
  const task = { leases: isQuick ? 500 : 10_000, waiters: isQuick ? 50 : 1_000 };
  const results = await inTurn(names, isQuick ? 1 : 3, async (name) => {
    await using lock = await LockProcess.start(redis, name, {
      ttlMs: TTL_MS,
      retryDelayMs: RETRY_DELAY_MS,
    });
    return await lock.hold(task);
  });
  const all = results.map(([name, reports]) => measure(name, reports, extras));
  const raw = named(all, RAW);
  return all.map((one) => row(BENCH, one, raw, 'bytesPerLease'));
}

/** Returns the means. */
function extras(reports: readonly HoldReport[]): Extras {
  const mean = (of: (report: HoldReport) => number): number =>
    sum(reports.map(of)) / reports.length;
  return {
    bytesPerLease: mean((report) => report.bytesPerLease),
    bytesPerLeaseReleased: mean((report) => report.bytesPerLeaseReleased),
    timersPerLease: mean((report) => report.timersPerLease),
    sockets: mean((report) => report.sockets),
    bytesPerWaiter: mean((report) => report.bytesPerWaiter),
    timersPerWaiter: mean((report) => report.timersPerWaiter),
    socketsWaiting: mean((report) => report.socketsWaiting),
  };
}
