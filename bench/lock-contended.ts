import { type RedisService, startRedis } from '@fenced/testbed';
import type { CyclesReport } from './lock-orders.ts';
import { LockProcess } from './lock-process.ts';
import { best, bestPeer, failures, isOf, named } from './lock-results.ts';
import type { LockSubject } from './lock-subject.ts';
import { lockSubjects, OURS, RAW } from './lock-subjects.ts';
import {
  type BenchOptions,
  type Extras,
  inTurn,
  measure,
  type Round,
  type Row,
  row,
  sum,
} from './measure.ts';

const BENCH = 'lock-contended';
const PROCESSES = 4;
const WORKERS_EACH = 5;
const HOLD_MS = 5;
/** Of those that poll: the default of most, and one with which others of them get more. */
const RETRY_DELAYS_MS = [30, 200];

/** A lock, and how often it asks again where it has to be told that. */
interface Setting {
  readonly label: string;
  readonly name: string;
  readonly retryDelayMs?: number;
}

/** What all processes together saw. */
interface Contest extends Round {
  readonly reports: readonly CyclesReport[];
}

/**
 * If 20 workers in four processes want the same lock all the time, and each keeps it for 5 ms: how many get it a second,
 * how long does one have to wait for it, and how often is the unluckiest served?
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
  return [
    ...all.map((one) => row(BENCH, one, raw, 'perSecond')),
    row(BENCH, named(all, OURS), bestPeer(all, 'perSecond'), 'perSecond'),
  ];
}

/** In new processes: some that are left retry for ever. */
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
  // One that nobody else wants, so that connections, scripts and admission are not part of what is measured.
  const warmUp = { workers: WORKERS_EACH, durationMs: 500, patienceMs: 2_000, holdMs: 0 };
  await Promise.all(
    locks.map((lock) => lock.cycles({ ...warmUp, resource: `warm-up/${label}/${lock.pid}` })),
  );
  // What the last contest left behind may still be held.
  const resource = `contended/${label}/${locks.map(({ pid }) => pid).join('/')}`;
  const order = { workers: WORKERS_EACH, durationMs, patienceMs: 0, holdMs: HOLD_MS, resource };
  const reports = await Promise.all(locks.map((lock) => lock.cycles(order)));
  return {
    durationsMs: reports.flatMap((report) => report.durationsMs),
    elapsedMs: Math.max(...reports.map(({ elapsedMs }) => elapsedMs)),
    done: sum(reports.flatMap(({ served }) => served)),
    reports,
  };
}

/** A floor does not wait for a lock that is held, and we are told when it is our turn. */
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
    // A wait that had not ended when time was up counts as long as it had lasted.
    longestWaitMs: contests
      .flatMap(({ durationsMs }) => durationsMs)
      .reduce((longest, durationMs) => Math.max(longest, durationMs), 0),
    servedLeast: Math.min(...served),
    servedMost: Math.max(...served),
    ...failures(contests.flatMap(({ reports }) => reports)),
  };
}
