import { type RedisService, startRedis } from '@fenced/testbed';
import { LockProcess } from './lock-process.ts';
import { best, failures, isOf, rowsOf } from './lock-results.ts';
import type { LockSubject } from './lock-subject.ts';
import { lockSubjects, RAW } from './lock-subjects.ts';
import type { CyclesReport } from './lock-tasks.ts';
import {
  type BenchOptions,
  type Extras,
  inTurn,
  measure,
  type Round,
  type Row,
  sum,
} from './measure.ts';

const BENCH = 'lock-contended';
const PROCESSES = 4;
const WORKERS_EACH = 5;
const HOLD_MS = 5;
/** For locks that poll: 200 ms is the default of most, and some do better with 30 ms. */
const RETRY_DELAYS_MS = [30, 200];

/** A lock, and its interval of polling if it has one. */
interface Setting {
  readonly label: string;
  readonly name: string;
  readonly retryDelayMs?: number;
}

/** Figures of one round, of all processes together. */
interface Contest extends Round {
  readonly reports: readonly CyclesReport[];
}

/**
 * How many of 20 workers in four processes get one lock a second, if each holds it for 5 ms? How
 * long does one wait, and how often is the unluckiest worker served?
 */
export async function benchContended({ isQuick }: BenchOptions): Promise<Row[]> {
  await using redis = await startRedis(5);
  const delaysMs = isQuick ? RETRY_DELAYS_MS.slice(0, 1) : RETRY_DELAYS_MS;
  const settings = lockSubjects.flatMap((lock) => settingsOf(lock, delaysMs));
  const durationMs = isQuick ? 500 : 10_000;
  const results = await inTurn(settings, isQuick ? 1 : 3, (one) => contest(redis, one, durationMs));
  const all = results.map(([{ label }, contests]) => measure(label, contests, extras));
  const raw = best(
    all.filter(({ subject }) => isOf(RAW, subject)),
    'perSecond',
  );
  return rowsOf(BENCH, all, raw, 'perSecond');
}

/** Uses new processes, because some libraries retry for ever. */
async function contest(
  redis: RedisService,
  { label, name, ...polling }: Setting,
  durationMs: number,
): Promise<Contest> {
  await using parts = new AsyncDisposableStack();
  const locks = await Promise.all(
    Array.from({ length: PROCESSES }, async () =>
      parts.use(await LockProcess.start(redis, name, polling)),
    ),
  );
  // Warms up on a free lock. So the measurement has no connecting, no loading of scripts, and no
  // first start of the nodes.
  const warmUp = { workers: WORKERS_EACH, durationMs: 500, overtimeMs: 2_000, holdMs: 0 };
  await Promise.all(
    locks.map((lock) => lock.cycles({ ...warmUp, resource: `warm-up/${label}/${lock.pid}` })),
  );
  // A new name for each contest, because the lock of the one before may still be held.
  const resource = `contended/${label}/${locks.map(({ pid }) => pid).join('/')}`;
  const task = { workers: WORKERS_EACH, durationMs, overtimeMs: 0, holdMs: HOLD_MS, resource };
  const reports = await Promise.all(locks.map((lock) => lock.cycles(task)));
  return {
    durationsMs: reports.flatMap((report) => report.durationsMs),
    elapsedMs: Math.max(...reports.map(({ elapsedMs }) => elapsedMs)),
    done: sum(reports.flatMap(({ served }) => served)),
    reports,
  };
}

/** Omits a `floor`, which is no real lock and cannot wait. Ours does not poll: no interval. */
function settingsOf({ name, kind }: LockSubject, delaysMs: readonly number[]): Setting[] {
  if (kind === 'floor') return [];
  if (kind === 'ours') return [{ label: name, name }];
  return delaysMs.map((retryDelayMs) => ({
    label: `${name}, every ${retryDelayMs} ms`,
    name,
    retryDelayMs,
  }));
}

function extras(contests: readonly Contest[]): Extras {
  const served = contests.flatMap(({ reports }) => reports.flatMap((report) => report.served));
  return {
    // An unfinished wait counts with its duration so far.
    longestWaitMs: contests
      .flatMap(({ durationsMs }) => durationsMs)
      .reduce((longest, durationMs) => Math.max(longest, durationMs), 0),
    servedLeast: Math.min(...served),
    servedMost: Math.max(...served),
    ...failures(contests.flatMap(({ reports }) => reports)),
  };
}
