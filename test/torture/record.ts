import { appendFile, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import type { MachineFacts } from '@fenced/testbed';
import { describeOverlap, type Exclusion, firstOverlap } from './exclusion.ts';
import { type Operation, sha256Of } from './history.ts';
import { toJsonLines } from './json-lines.ts';
import type { Verdict } from './verdict.ts';

/** One run, as a line of `runs.jsonl` in the folder of a report. */
export interface RecordedRun extends Omit<Verdict, 'violations' | 'exclusion'>, MachineFacts {
  /** Number of the run in `log.jsonl`. Old runs have none. */
  readonly run?: number;
  readonly seed: number;
  readonly seconds: number;
  readonly workload: string;
  readonly subject: string;
  /** Number of rounds at the same time in each of four clients. Old runs: two in six clients. */
  readonly threads?: number;
  /** Hash of `history.jsonl`. */
  readonly sha256: string;
  /** The reason of the first violation of each object. */
  readonly violated: Readonly<Record<string, string>>;
  readonly porcupine: string;
  /** The shortest part that is a violation, in `convictions`. Null without one. */
  readonly conviction: Conviction | null;
  /** Null if a fault may break mutual exclusion. Old runs were not judged. */
  readonly exclusion?: RecordedExclusion | null;
  /** The compressed history, in `histories`. Null if it is too large. Old runs: see the page. */
  readonly history?: string | null;
}

interface RecordedExclusion extends Omit<Exclusion, 'overlaps'> {
  readonly overlaps: number;
  /** The first overlap. Null without one. */
  readonly overlap: string | null;
  /** The operations that show it, in `convictions`. */
  readonly conviction: Conviction | null;
}

/**
 * A line of `log.jsonl`. It is written before the servers of a recorded run start, so a run without
 * a result shows. A second line has the error of a run that failed.
 */
export interface LoggedRun {
  readonly run: number;
  readonly seed?: number;
  readonly seconds?: number;
  readonly workload?: string;
  readonly subject?: string;
  readonly threads?: number;
  /** `all`, `exclusion`, or kinds of faults. */
  readonly faultKinds?: string;
  readonly date?: string;
  readonly commit?: string;
  readonly error?: string;
}

interface Conviction {
  readonly file: string;
  readonly operations: number;
  readonly sha256: string;
}

/** Verdicts about changed copies of one history, as a line of `changes.jsonl`. */
export interface JudgedChanges {
  readonly date: string;
  readonly commit: string;
  /** Hash of the history that was changed. */
  readonly sha256: string;
  readonly operations: number;
  readonly changes: readonly {
    readonly kind: string;
    /** True if changes of this kind are always violations. */
    readonly isPlanted: boolean;
    readonly histories: number;
    /** Histories that our judge convicts. */
    readonly ours: number;
    /** Null if only our judge knows the rule. */
    readonly porcupine: number | null;
    /** Histories of which both convict the same objects, or none. */
    readonly agreed: number | null;
  }[];
}

/** The most bytes of a compressed history that the report keeps. */
const HISTORY_BYTES_MAX = 1_000_000;

/** Announces a run. Returns its number, which is one more than that of the run before. */
export async function announceRun(folder: string, run: Omit<LoggedRun, 'run'>): Promise<number> {
  const log = await readFile(join(folder, 'log.jsonl'), 'utf8').catch(() => '');
  const numbers = log.split('\n').flatMap((line) => (line ? [JSON.parse(line).run as number] : []));
  const number = 1 + Math.max(0, ...numbers);
  await appendFile(join(folder, 'log.jsonl'), `${JSON.stringify({ run: number, ...run })}\n`);
  return number;
}

export async function recordFailure(folder: string, run: number, error: unknown): Promise<void> {
  const line = { run, error: error instanceof Error ? error.message : String(error) };
  await appendFile(join(folder, 'log.jsonl'), `${JSON.stringify(line)}\n`);
}

/**
 * Appends a run to `runs.jsonl`, and keeps its history and the shortest parts that convict it.
 *
 * @param shortest the part that violates a rule of tokens or stores
 */
export async function recordRun(
  folder: string,
  {
    exclusion,
    ...facts
  }: Omit<RecordedRun, 'conviction' | 'exclusion' | 'history'> & Pick<Verdict, 'exclusion'>,
  { history, shortest }: Record<'history' | 'shortest', readonly Operation[]>,
): Promise<void> {
  const name = `${facts.run}-${facts.subject.replaceAll(/[^a-z0-9+]+/g, '-')}`;
  const conviction = await keepConviction(folder, name, shortest);
  const both = firstOverlap(exclusion?.overlaps ?? []);
  const [first] = exclusion?.overlaps ?? [];
  const judged = exclusion && {
    ...exclusion,
    overlaps: exclusion.overlaps.length,
    overlap: first ? describeOverlap(first) : null,
    conviction: await keepConviction(folder, `${name}-exclusion`, both),
  };
  const kept = await keepHistory(folder, `${name}.jsonl.gz`, history);
  const line = { ...facts, conviction, exclusion: judged, history: kept };
  await appendFile(join(folder, 'runs.jsonl'), `${JSON.stringify(line)}\n`);
}

async function keepConviction(
  folder: string,
  name: string,
  part: readonly Operation[],
): Promise<Conviction | null> {
  if (part.length === 0) return null;
  const text = toJsonLines(part);
  await mkdir(join(folder, 'convictions'), { recursive: true });
  await writeFile(join(folder, 'convictions', `${name}.jsonl`), text);
  return { file: `${name}.jsonl`, operations: part.length, sha256: sha256Of(text) };
}

async function keepHistory(
  folder: string,
  file: string,
  history: readonly Operation[],
): Promise<string | null> {
  const compressed = gzipSync(toJsonLines(history), { level: 9 });
  if (compressed.length > HISTORY_BYTES_MAX) return null;
  await mkdir(join(folder, 'histories'), { recursive: true });
  await writeFile(join(folder, 'histories', file), compressed);
  return file;
}

export async function recordChanges(folder: string, changes: JudgedChanges): Promise<void> {
  await appendFile(join(folder, 'changes.jsonl'), `${JSON.stringify(changes)}\n`);
}
