import { startRedis } from '@fenced/testbed';
import { LockProcess } from './lock-process.ts';
import { failures } from './lock-results.ts';
import { type CyclesReport, lockRounds } from './lock-tasks.ts';
import { type BenchOptions, inTurn, type Measured, measure } from './measure.ts';

/** One of `lockSubjects`, and its setting. */
export interface LockSetting {
  readonly name: string;
  readonly autoPipelining: boolean;
}

interface Extent {
  /** Concurrent cycles. */
  readonly workers: number;
  /** The rounds are divided into this many sets. A quick bench has one set. */
  readonly sets: number;
}

/**
 * Measures cycles of workers, each of which has a lock of its own. Each set of rounds has new
 * processes and nodes: of two equal processes, one may be 10 % faster for its whole life.
 */
export async function measureInTurn(
  options: BenchOptions,
  { workers, sets }: Extent,
  settings: readonly LockSetting[],
): Promise<readonly Measured[]> {
  const { rounds, durationMs, warmUpMs } = lockRounds(options);
  const setCount = options.isQuick ? 1 : sets;
  const task = { workers, durationMs, overtimeMs: 10_000, resource: null, holdMs: null };
  const reports = settings.map((): CyclesReport[] => []);
  for (let set = 0; set < setCount; set += 1) {
    await using redis = await startRedis(5);
    await using parts = new AsyncDisposableStack();
    const locks = await Promise.all(
      settings.map(async ({ name, autoPipelining }) =>
        parts.use(await LockProcess.start(redis, name, { autoPipelining })),
      ),
    );
    for (const lock of locks) await lock.cycles({ ...task, durationMs: warmUpMs });
    const results = await inTurn(locks, rounds / setCount, (lock) => lock.cycles(task));
    for (const [at, [, its]] of results.entries()) reports[at]?.push(...its);
  }
  return settings.map(({ name, autoPipelining }, at) => {
    const label = autoPipelining ? `${name}, autopipelining` : name;
    return measure(label, reports[at] ?? [], failures);
  });
}
