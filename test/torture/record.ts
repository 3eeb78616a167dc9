import { execFile } from 'node:child_process';
import { appendFile, mkdir, writeFile } from 'node:fs/promises';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type Operation, sha256Of, toJsonLines } from './history.ts';
import type { Verdict } from './verdict.ts';

/** One run, as a line of `runs.jsonl` in the folder of a report. */
export interface RecordedRun extends Omit<Verdict, 'violations'> {
  /** Day on which the run ended. */
  readonly date: string;
  /** Short id of the commit. It ends in `+` if files differed from it. */
  readonly commit: string;
  readonly seed: number;
  readonly seconds: number;
  readonly workload: string;
  readonly subject: string;
  /** Names and versions of the servers, of Node, and of the processors. */
  readonly machine: Readonly<Record<string, string>>;
  /** Hash of `history.jsonl`. */
  readonly sha256: string;
  /** The reason of the first violation of each object. */
  readonly violated: Readonly<Record<string, string>>;
  readonly porcupine: string;
  /** The shortest part that is a violation, in `convictions`. Null without one. */
  readonly conviction: Conviction | null;
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
    /** True if each change is a violation. */
    readonly isPlanted: boolean;
    readonly histories: number;
    /** Histories that our judge convicts. */
    readonly ours: number;
    readonly porcupine: number;
    /** Histories of which both convict the same objects, or none. */
    readonly agreed: number;
  }[];
}

/** Returns what is known about the machine and the code. */
export async function describeMachine(
  programs: Readonly<Record<string, string>>,
): Promise<Pick<RecordedRun, 'date' | 'commit' | 'machine'>> {
  const all = cpus();
  const processors = `${all.length} × ${all[0]?.model.trim() ?? 'unknown'}`;
  const node = process.versions.node;
  return {
    date: new Date().toISOString().slice(0, 10),
    commit: await commitOfTree(),
    machine: { ...programs, node, system: process.platform, processors },
  };
}

/** Appends a run to `runs.jsonl`, and keeps the shortest part of its history that convicts it. */
export async function recordRun(
  folder: string,
  run: Omit<RecordedRun, 'conviction'>,
  shortest: readonly Operation[],
): Promise<void> {
  const name = `${run.subject.replaceAll(/[^a-z0-9+]+/g, '-')}-${run.seed}.jsonl`;
  const text = toJsonLines(shortest);
  const isConvicted = shortest.length > 0;
  const conviction = isConvicted
    ? { file: name, operations: shortest.length, sha256: sha256Of(text) }
    : null;
  await mkdir(join(folder, 'convictions'), { recursive: true });
  if (isConvicted) await writeFile(join(folder, 'convictions', name), text);
  await appendFile(join(folder, 'runs.jsonl'), `${JSON.stringify({ ...run, conviction })}\n`);
}

export async function recordChanges(folder: string, changes: JudgedChanges): Promise<void> {
  await appendFile(join(folder, 'changes.jsonl'), `${JSON.stringify(changes)}\n`);
}

async function commitOfTree(): Promise<string> {
  try {
    const git = async (...args: string[]) => (await promisify(execFile)('git', args)).stdout.trim();
    const isClean = (await git('status', '--porcelain', '--', 'packages', 'test')) === '';
    return `${await git('rev-parse', '--short', 'HEAD')}${isClean ? '' : '+'}`;
  } catch {
    return 'unknown';
  }
}
