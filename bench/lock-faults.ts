import { startLocalRedis } from '@fenced/testbed';
import { LockProcess } from './lock-process.ts';
import { failures, finished, named } from './lock-results.ts';
import { lockSubjects } from './lock-subjects.ts';
import { type CyclesReport, lockRounds } from './lock-tasks.ts';
import { type BenchOptions, type Extras, inTurn, measure, type Row, row, sum } from './measure.ts';

const BENCH = 'lock-faults';
const HEALTHY = 'healthy';
const STATES = [HEALTHY, 'one node down', 'one node hung'];
/** A lock whose first cycle takes longer is not measured again. */
const PROMPT_MS = 1_000;
const TASK = { workers: 1, resource: null, holdMs: null };

/** A lock, and the state of its nodes. */
interface Case {
  /** Name of the lock and the state. */
  readonly name: string;
  readonly healthy: string;
  readonly lock: LockProcess;
}

/** How long does a lock take if one of five nodes is down, or hangs (SIGSTOP)? */
export async function benchFaults(options: BenchOptions): Promise<Row[]> {
  await using parts = new AsyncDisposableStack();
  const opened: Case[] = [];
  const { rounds, durationMs, warmUpMs } = lockRounds(options);
  for (const state of STATES) opened.push(...(await openCases(state, warmUpMs, parts)));
  // A lock's cases run one after the other, so that the machine has the same speed for them.
  const cases = lockSubjects.flatMap(({ name }) =>
    opened.filter(({ lock }) => lock.subject === name),
  );
  // Locks that wait for a faulty node take seconds, so all locks do this at the same time.
  const overtimeMs = options.isQuick ? 1_500 : 20_000;
  const first = await Promise.all(
    cases.map(({ lock }) => lock.cycles({ ...TASK, durationMs: 1, overtimeMs })),
  );
  const reports = new Map(cases.map((one, index) => [one, first.slice(index, index + 1)]));
  const prompt = cases.filter((one) => isPrompt(reports.get(one) ?? []));
  for (const one of cases) if (!prompt.includes(one)) await one.lock[Symbol.asyncDispose]();
  const results = await inTurn(prompt, rounds, ({ lock }) =>
    lock.cycles({ ...TASK, durationMs, overtimeMs }),
  );
  for (const [one, its] of results) reports.set(one, its);
  const heaps = new Map<Case, Extras>();
  for (const one of prompt) heaps.set(one, await heapGrowth(one.lock, durationMs, overtimeMs));
  const all = cases.map((one) =>
    measure(one.name, (reports.get(one) ?? []).map(finished), (its) => ({
      ...extras(its),
      ...heaps.get(one),
    })),
  );
  return cases.map(({ name, healthy }) =>
    row(BENCH, named(all, name), named(all, healthy), 'p99Ms'),
  );
}

/** Opens all locks on new nodes. The fault begins after each has acquired a lock. */
async function openCases(
  state: string,
  warmUpMs: number,
  parts: AsyncDisposableStack,
): Promise<Case[]> {
  const redis = parts.use(await startLocalRedis(5));
  // A `floor` is no real lock: it does not handle failures.
  const subjects = lockSubjects.filter(({ kind }) => kind !== 'floor');
  const cases = await Promise.all(
    subjects.map(async ({ name }) => ({
      name: `${name}, ${state}`,
      healthy: `${name}, ${HEALTHY}`,
      lock: parts.use(await LockProcess.start(redis, name)),
    })),
  );
  const warmUp = { ...TASK, durationMs: warmUpMs, overtimeMs: 10_000 };
  for (const { lock } of cases) await lock.cycles(warmUp);
  const [node] = redis.nodes;
  if (state === 'one node down') await node?.kill();
  if (state === 'one node hung') await node?.pause();
  return cases;
}

function isPrompt(reports: readonly CyclesReport[]): boolean {
  return reports.every(({ durationsMs }) => Math.max(...durationsMs) < PROMPT_MS);
}

/** Measures in an additional round, whose times do not count. */
async function heapGrowth(
  lock: LockProcess,
  durationMs: number,
  overtimeMs: number,
): Promise<Extras> {
  const task = { ...TASK, durationMs, overtimeMs, readsHeap: true };
  const { heapGrowthBytes, durationsMs } = await lock.cycles(task);
  return { bytesPerCycle: heapGrowthBytes / durationsMs.length };
}

function extras(reports: readonly CyclesReport[]): Extras {
  const cycles = sum(reports.map(({ durationsMs }) => durationsMs.length));
  return {
    cycles,
    unfinished: sum(reports.map(({ unfinished }) => unfinished)),
    // The last report counts the commands of all rounds, except for those that the client dropped.
    queuedCommands: reports.at(-1)?.queuedCommands ?? 0,
    ...failures(reports),
  };
}
