import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { describeMachine } from '@fenced/testbed';
import { readCommandLine, UsageError } from '@fenced/testbed/command-line';
import { Random } from '../simulation/random.ts';
import { toEdn } from './edn.ts';
import { describeOverlap, type Exclusion, judgeExclusion } from './exclusion.ts';
import { EXCLUSION_FAULTS, FAULT_KINDS } from './faults.ts';
import { LIBRARY_NAMES, TOKEN_NAMES } from './foreign.ts';
import { type Operation, sha256Of } from './history.ts';
import { fromJsonLines, HistoryError, toJsonLines } from './json-lines.ts';
import { judge, type Violation } from './judge.ts';
import { MUTANTS, OURS, SUBJECTS } from './locks.ts';
import { alter, PLANTS, plant, plantOverlap } from './plant.ts';
import { PorcupineMissingError, porcupine } from './porcupine.ts';
import {
  announceRun,
  type JudgedChanges,
  recordChanges,
  recordFailure,
  recordRun,
} from './record.ts';
import { writeReport } from './report.ts';
import { type Run, torture } from './run.ts';
import { shortest } from './shortest.ts';
import { isTelling, verdictOf } from './verdict.ts';

/** Operations that are printed. */
const SHOWN_MAX = 12;
const WORKLOADS = ['mixed', 'update', 'claim', 'queue', 'rare', 'election'];
const USAGE = `npm run torture -- [--seed N] [--seconds S] [--workload NAME] [--threads N] [--faults KINDS] [--subject NAME] [--out FOLDER]
npm run torture -- --judge FILE [--plant N] [--seed N]
npm run torture -- --report FOLDER

Clients take locks and write on real servers while faults are made. Two judges decide from the history
whether a token was not above an earlier one, or a store was not linearizable: ours, and porcupine,
which needs Go. With --faults exclusion, our judge also decides whether two clients held one lock.

  --seed N          decides what is drawn, not how the processes interleave (the time of day)
  --seconds S       duration (60)
  --workload NAME   ${WORKLOADS.join(', ')} (mixed)
  --faults KINDS    all; exclusion, which are those that break no mutual exclusion; or kinds
                    with commas between (all): ${FAULT_KINDS.join(', ')}
  --threads N       rounds that each of the four clients runs at the same time (3)
  --subject NAME    ${OURS.join(', ')} (fenced), or a control: naive, LIBRARY+TOKENS, or a mutant
                    LIBRARY: ${LIBRARY_NAMES.join(', ')}
                    TOKENS: ${TOKEN_NAMES.join(', ')}
                    mutants: ${MUTANTS.join(', ')}
  --out FOLDER      for the history as JSON lines and EDN, the faults, and the verdict
  --record FOLDER   announces the run in a report, such as docs/report, and adds its result
  --report FOLDER   writes the tables of the page from the recorded runs
  --judge FILE      judges a recorded history instead, and writes it as EDN. With --faults
                    exclusion, it also judges mutual exclusion
  --plant N         plants N violations of each kind, one at a time, which both judges must find; makes
                    N random changes, on which they must agree

Exit code: 0 no violation, and the judges agree; 1 otherwise; 2 the history shows too little, has a
wrong line, or no place for a violation to plant, or porcupine could not run.`;

const options = readCommandLine(USAGE, () => {
  const { values } = parseArgs({
    options: {
      seed: { type: 'string', default: String(Date.now()) },
      seconds: { type: 'string', default: '60' },
      workload: { type: 'string', default: 'mixed' },
      subject: { type: 'string', default: 'fenced' },
      threads: { type: 'string', default: '3' },
      faults: { type: 'string', default: 'all' },
      out: { type: 'string' },
      record: { type: 'string' },
      report: { type: 'string' },
      judge: { type: 'string' },
      plant: { type: 'string', default: '0' },
    },
  });
  const seed = wholeNumber('seed', values.seed);
  return {
    seed,
    judge: values.judge,
    plant: wholeNumber('plant', values.plant),
    seconds: wholeNumber('seconds', values.seconds),
    workload: oneOf('workload', values.workload, WORKLOADS),
    subject: oneOf('subject', values.subject, SUBJECTS),
    threads: wholeNumber('threads', values.threads),
    faultKinds: values.faults,
    faults: faultsNamed(values.faults),
    record: values.record,
    report: values.report,
    out: values.out ?? join(tmpdir(), `fenced-torture-${seed}`),
  };
});

await mkdir(options.out, { recursive: true });
if (options.report !== undefined) writeReport(options.report);
else if (options.judge !== undefined) await judgeFile(options.judge);
else await runAndJudge();
// Without this call, Node 24.21 sometimes loops for ever in its own cleanup of closed sockets.
process.exit();

async function runAndJudge(): Promise<void> {
  const { seed, seconds, workload, subject, threads, faultKinds, record } = options;
  say(`seed ${seed}, ${seconds} s, workload ${workload}, subject ${subject}`);
  if (record === undefined) return judgeRun(await torture(options));
  const { date, commit } = await describeMachine({});
  const facts = { date, commit, seed, seconds, workload, subject, threads, faultKinds };
  const number = await announceRun(record, facts);
  try {
    await judgeRun(await torture(options), { folder: record, number });
  } catch (error) {
    await recordFailure(record, number, error);
    throw error;
  }
}

/** @param report the folder to which the result is added, and the number of the run */
async function judgeRun(
  run: Run,
  report?: { readonly folder: string; readonly number: number },
): Promise<void> {
  const { seed, seconds, workload, subject, threads, out } = options;
  const { violations, exclusion, ...verdict } = verdictOf(run);
  const text = toJsonLines(run.history);
  const file = join(out, 'history.jsonl');
  await writeFile(file, text);
  await writeFile(join(out, 'history.edn'), toEdn(run.history));
  const faults = run.faults.map((fault) => `${JSON.stringify(fault)}\n`).join('');
  await writeFile(join(out, 'faults.jsonl'), faults);
  const summary = {
    ...(await describeMachine(run.programs)),
    seed,
    seconds,
    workload,
    subject,
    threads,
    sha256: sha256Of(text),
    ...verdict,
    violated: Object.fromEntries(violations.map(({ object, reason }) => [object, reason])),
    porcupine: await agreement(file, objectsOf(violations)),
  };
  await writeFile(join(out, 'verdict.json'), `${JSON.stringify(summary, null, 2)}\n`);
  say(JSON.stringify(summary, null, 2));
  if (exclusion) sayExclusion(exclusion);
  const part = shortest(run.history, violations);
  if (part.length > 0) await sayShortest(part);
  if (report)
    await recordRun(
      report.folder,
      { run: report.number, ...summary, exclusion },
      { history: run.history, shortest: part },
    );
  say(`in ${out}`);
  if (verdict.verdict === 'unknown') process.exitCode ??= 2;
  if (verdict.verdict === 'violated' || exclusion?.verdict === 'violated') process.exitCode = 1;
}

function sayExclusion({ verdict, holds, contests, overlaps }: Exclusion): void {
  for (const overlap of overlaps.slice(0, SHOWN_MAX)) say(describeOverlap(overlap));
  say(`mutual exclusion: ${verdict}; ${holds} holds, tried ${contests} times by others`);
}

/** Prints the shortest part that is a violation. Both judges must convict it, too. */
async function sayShortest(part: readonly Operation[]): Promise<void> {
  const file = join(options.out, 'shortest.jsonl');
  await writeFile(file, toJsonLines(part));
  say(`the shortest violation has ${part.length} operations: ${file}`);
  if (part.length <= SHOWN_MAX) say(toJsonLines(part));
  say(`porcupine on it: ${await agreement(file, objectsOf(judge(part)))}`);
}

async function judgeFile(file: string): Promise<void> {
  const history = await readHistory(file);
  const violations = judge(history);
  for (const { object, reason } of violations) say(`${object}: ${reason}`);
  const second = await agreement(file, objectsOf(violations));
  await writeFile(join(options.out, 'history.edn'), toEdn(history));
  const exclusion = options.faultKinds === 'exclusion' ? judgeExclusion(history) : null;
  if (exclusion) sayExclusion(exclusion);
  say(`in ${options.out}`);
  const passed = isTelling(history) ? 'ok' : 'unknown';
  say(`ours: ${violations.length === 0 ? passed : 'violated'}, porcupine: ${second}`);
  if (violations.length > 0 || exclusion?.verdict === 'violated') process.exitCode = 1;
  else if (passed === 'unknown') process.exitCode ??= 2;
  else if (options.plant > 0 && process.exitCode === undefined) await judgeChanged(history);
}

async function readHistory(file: string): Promise<readonly Operation[]> {
  try {
    return fromJsonLines(await readFile(file, 'utf8'));
  } catch (error) {
    const isMissing = Object(error).code === 'ENOENT';
    if (!(error instanceof HistoryError || isMissing)) throw error;
    say(`${file}: ${isMissing ? 'there is no such file' : Object(error).message}`);
    process.exit(2);
  }
}

/** Changes the history in many ways, and compares the verdicts of the judges. */
async function judgeChanged(history: readonly Operation[]): Promise<void> {
  const random = new Random(options.seed, 'plants');
  const judged = async (kind: string, change: () => readonly Operation[] | null) => {
    const copies = Array.from({ length: options.plant }, change).filter((copy) => copy !== null);
    const counts = await judgeBoth(copies);
    const { histories, ours, porcupine: its, agreed } = counts;
    say(`${kind}: ${histories}, convicted by us ${ours}, by porcupine ${its}, agreed ${agreed}`);
    if (histories === 0) sayNoPlace(kind);
    const isPlanted = kind in PLANTS;
    if (agreed < histories || (isPlanted && ours < histories)) process.exitCode = 1;
    return { kind, isPlanted, ...counts };
  };
  const changes: JudgedChanges['changes'][number][] = [];
  for (const kind of Object.keys(PLANTS))
    changes.push(await judged(kind, () => plant(history, kind, random)));
  changes.push(await judged('random change', () => alter(history, random)));
  if (options.faultKinds === 'exclusion') changes.push(judgeOverlaps(history, random));
  if (options.record === undefined) return;
  const { date, commit } = await describeMachine({});
  const facts = { sha256: sha256Of(toJsonLines(history)), operations: history.length };
  await recordChanges(options.record, { date, commit, ...facts, changes });
}

/** Plants overlaps of two leases, which only our judge convicts. */
function judgeOverlaps(
  history: readonly Operation[],
  random: Random,
): JudgedChanges['changes'][number] {
  const kind = 'lock held twice';
  const copies = Array.from({ length: options.plant }, () => plantOverlap(history, random));
  const planted = copies.filter((copy) => copy !== null);
  const convicted = planted.filter((copy) => judgeExclusion(copy).verdict === 'violated');
  const [histories, ours] = [planted.length, convicted.length];
  say(`${kind}: ${histories}, convicted by us ${ours}`);
  if (histories === 0) sayNoPlace(kind);
  if (ours < histories) process.exitCode = 1;
  return { kind, isPlanted: true, histories, ours, porcupine: null, agreed: null };
}

function sayNoPlace(kind: string): void {
  say(`${kind}: not planted; the history has no place for it`);
  process.exitCode ??= 2;
}

/** Counts the histories that each judge convicts, and those about which both agree. */
async function judgeBoth(histories: readonly (readonly Operation[])[]) {
  const files = histories.map((_, at) => join(options.out, `changed-${at}.jsonl`));
  await Promise.all(files.map((file, at) => writeFile(file, toJsonLines(histories[at] ?? []))));
  const ours = histories.map((one) => String(objectsOf(judge(one))));
  const its = (await porcupine(files)).map((verdict) => String(verdict.violated));
  await Promise.all(files.map((file) => rm(file)));
  return {
    histories: histories.length,
    ours: ours.filter(Boolean).length,
    porcupine: its.filter(Boolean).length,
    agreed: ours.filter((objects, at) => objects === its[at]).length,
  };
}

function objectsOf(violations: readonly Violation[]): readonly string[] {
  return violations.map(({ object }) => object).sort();
}

/** Asks porcupine. Its verdict must name the same objects. */
async function agreement(file: string, convicted: readonly string[]): Promise<string> {
  try {
    const [found] = await porcupine([file]);
    if (!found || found.undecided.length > 0) {
      process.exitCode = 2;
      return `undecided: ${found?.undecided}`;
    }
    const isSame = JSON.stringify(found.violated) === JSON.stringify(convicted);
    if (!isSame) process.exitCode = 1;
    const verdict = found.violated.length === 0 ? 'ok' : `violated: ${found.violated}`;
    return isSame ? verdict : `${verdict}; THE JUDGES DISAGREE`;
  } catch (error) {
    if (!(error instanceof PorcupineMissingError)) throw error;
    process.exitCode = 2;
    return `not run: ${error.message}`;
  }
}

function wholeNumber(name: string, text: string): number {
  const value = Number(text);
  if (Number.isSafeInteger(value) && value >= 0) return value;
  throw new UsageError(`--${name} must be a whole number: ${text}`);
}

function faultsNamed(names: string): readonly string[] {
  if (names === 'all') return FAULT_KINDS;
  if (names === 'exclusion') return EXCLUSION_FAULTS;
  return names.split(',').map((kind) => oneOf('faults', kind, FAULT_KINDS));
}

function oneOf(name: string, value: string, known: readonly string[]): string {
  if (known.includes(value)) return value;
  throw new UsageError(`--${name} must be one of ${known.join(', ')}: ${value}`);
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}
