import { appendFile, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { MachineFacts } from '@fenced/testbed';
import { type Operation, sha256Of } from './history.ts';
import { toJsonLines } from './json-lines.ts';
import type { Verdict } from './verdict.ts';

/** One run, as a line of `runs.jsonl` in the folder of a report. */
export interface RecordedRun extends Omit<Verdict, 'violations'>, MachineFacts {
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
    readonly porcupine: number;
    /** Histories of which both convict the same objects, or none. */
    readonly agreed: number;
  }[];
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
