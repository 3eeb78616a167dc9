import { startLocalRedis } from '@fenced/testbed';
import { type CyclesReport, lockRounds } from './lock-orders.ts';
import { LockProcess } from './lock-process.ts';
import { failures, finished, named } from './lock-results.ts';
import { lockSubjects } from './lock-subjects.ts';
import { type BenchOptions, type Extras, inTurn, measure, type Row, row, sum } from './measure.ts';

const BENCH = 'lock-faults';
const HEALTHY = 'healthy';
const STATES = [HEALTHY, 'one node down', 'one node hung'];
/** A lock that takes longer is not asked again. */
const PROMPT_MS = 1_000;
const ORDER = { workers: 1, resource: null, holdMs: null };

/** A lock on nodes of one state. */
interface Case {
  /** The lock and the state. */
  readonly name: string;
  readonly healthy: string;
  readonly lock: LockProcess;
}

/** What does it cost that one node of five is down, or neither answers nor closes its connections (SIGSTOP)? */
export async function benchFaults(options: BenchOptions): Promise<Row[]> {
  await using parts = new AsyncDisposableStack();
  const opened: Case[] = [];
  const { rounds, durationMs, warmUpMs } = lockRounds(options);
  for (const state of STATES) opened.push(...(await openCases(state, warmUpMs, parts)));
  // One right after the other, so that what a lock is compared with has met the same machine.
  const cases = lockSubjects.flatMap(({ name }) =>
    opened.filter(({ lock }) => lock.subject === name),
  );
  // Where a fault makes a lock wait, that takes seconds, in which all others may as well wait for it, too.
  const patienceMs = options.isQuick ? 1_500 : 20_000;
  const first = await Promise.all(
    cases.map(({ lock }) => lock.cycles({ ...ORDER, durationMs: 1, patienceMs })),
  );
  const reports = new Map(cases.map((one, index) => [one, first.slice(index, index + 1)]));
  const prompt = cases.filter((one) => isPrompt(reports.get(one) ?? []));
  for (const one of cases) if (!prompt.includes(one)) await one.lock[Symbol.asyncDispose]();
  const results = await inTurn(prompt, rounds, ({ lock }) =>
    lock.cycles({ ...ORDER, durationMs, patienceMs }),
  );
  for (const [one, its] of results) reports.set(one, its);
  const heaps = new Map<Case, Extras>();
  for (const one of prompt) heaps.set(one, await heapGrowth(one.lock, durationMs, patienceMs));
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

/** All locks on nodes of their own, which meet their fault when everybody is connected and has had a lock. */
async function openCases(
  state: string,
  warmUpMs: number,
  parts: AsyncDisposableStack,
): Promise<Case[]> {
  const redis = parts.use(await startLocalRedis(5));
  // A floor does nothing about failures.
  const subjects = lockSubjects.filter(({ kind }) => kind !== 'floor');
  const cases = await Promise.all(
    subjects.map(async ({ name }) => ({
      name: `${name}, ${state}`,
      healthy: `${name}, ${HEALTHY}`,
      lock: parts.use(await LockProcess.start(redis, name)),
    })),
  );
  const warmUp = { ...ORDER, durationMs: warmUpMs, patienceMs: 10_000 };
  for (const { lock } of cases) await lock.cycles(warmUp);
  const [node] = redis.nodes;
  if (state === 'one node down') await node?.kill();
  if (state === 'one node hung') await node?.pause();
  return cases;
}

function isPrompt(reports: readonly CyclesReport[]): boolean {
  return reports.every(({ durationsMs }) => Math.max(...durationsMs) < PROMPT_MS);
}

/** In a round of its own, whose times do not count. */
async function heapGrowth(
  lock: LockProcess,
  durationMs: number,
  patienceMs: number,
): Promise<Extras> {
  const order = { ...ORDER, durationMs, patienceMs, readsHeap: true };
  const { heapGrowthBytes, durationsMs } = await lock.cycles(order);
  return { bytesPerCycle: heapGrowthBytes / durationsMs.length };
}

function extras(reports: readonly CyclesReport[]): Extras {
  const cycles = sum(reports.map(({ durationsMs }) => durationsMs.length));
  return {
    cycles,
    unfinished: sum(reports.map(({ unfinished }) => unfinished)),
    // They are never fewer than after the round before, unless they are dropped.
    queuedCommands: reports.at(-1)?.queuedCommands ?? 0,
    ...failures(reports),
  };
}
