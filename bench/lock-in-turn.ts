import { startRedis } from '@fenced/testbed';
import { type CyclesReport, lockRounds } from './lock-orders.ts';
import { LockProcess } from './lock-process.ts';
import { failures } from './lock-results.ts';
import { type BenchOptions, inTurn, type Measured, measure } from './measure.ts';

/** One of `lockSubjects`, as it is measured. */
export interface LockSetting {
  readonly name: string;
  readonly autoPipelining: boolean;
}

interface Extent {
  /** How many cycles run at once. */
  readonly workers: number;
  /** Into how many the rounds are divided, evenly; a quick bench has one. */
  readonly sets: number;
}

/**
 * Cycles of so many workers, each with a lock of its own. Each set of rounds is in new processes and on new nodes: of two processes that run the
 * same, one may be a tenth faster for as long as it lives.
 */
export async function measureInTurn(
  options: BenchOptions,
  { workers, sets }: Extent,
  settings: readonly LockSetting[],
): Promise<readonly Measured[]> {
  const { rounds, durationMs, warmUpMs } = lockRounds(options);
  const setCount = options.isQuick ? 1 : sets;
  const order = { workers, durationMs, patienceMs: 10_000, resource: null, holdMs: null };
  const reports = settings.map((): CyclesReport[] => []);
  for (let set = 0; set < setCount; set += 1) {
    await using redis = await startRedis(5);
    await using parts = new AsyncDisposableStack();
    const locks = await Promise.all(
      settings.map(async ({ name, autoPipelining }) =>
        parts.use(await LockProcess.start(redis, name, { autoPipelining })),
      ),
    );
    for (const lock of locks) await lock.cycles({ ...order, durationMs: warmUpMs });
    const results = await inTurn(locks, rounds / setCount, (lock) => lock.cycles(order));
    for (const [at, [, its]] of results.entries()) reports[at]?.push(...its);
  }
  return settings.map(({ name, autoPipelining }, at) => {
    const label = autoPipelining ? `${name}, autopipelining` : name;
    return measure(label, reports[at] ?? [], failures);
  });
}
