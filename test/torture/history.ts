import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** Outcome of an operation. `refused` and `failed` changed nothing. `unknown` may have happened. */
export type Outcome = 'ok' | 'refused' | 'failed' | 'unknown';

/** One operation of one client process: one line of a history. See docs/torture.md. */
export interface Operation {
  /** A client and a thread: `c1.0`. A client that was started anew has another name. */
  readonly process: string;
  readonly kind: 'acquire' | 'extend' | 'release' | 'update' | 'put' | 'claim' | 'read';
  /** `lock/r0`, or a store and a resource: `s3/r0`, `records/r0`, `table/r0`. */
  readonly object: string;
  /** Nanoseconds since the run began, by the monotonic clock that all processes share. */
  readonly callNs: number;
  /** The time of the outcome. Null if the process was killed before. */
  readonly returnNs: number | null;
  readonly outcome: Outcome;
  /** The token that was granted, or that the write presented. */
  readonly token?: string | undefined;
  /** The value that was written or read. Each attempt of a write has a value of its own. */
  readonly value?: string | null | undefined;
  /** The value that an update replaced. */
  readonly from?: string | null | undefined;
  /** The highest token, as a refusal or a read reported it. */
  readonly highest?: string | undefined;
  /** The time until which the holder believed in its lease. */
  readonly untilNs?: number;
  /** Code of the error. */
  readonly code?: string;
}

/** Records a run in a folder, with a file for each process. Lines of killed processes are kept. */
export class Recorder {
  readonly #startedNs: bigint = process.hrtime.bigint();
  readonly #folder: string;
  readonly #processes: string[] = [];

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** Makes the file of a new process. Returns it, and the time at which the run began. */
  open(process: string): { readonly file: string; readonly startedNs: string } {
    const file = join(this.#folder, process);
    writeFileSync(file, '');
    this.#processes.push(process);
    return { file, startedNs: String(this.#startedNs) };
  }

  /** Nanoseconds since the run began. */
  nowNs(): number {
    return Number(process.hrtime.bigint() - this.#startedNs);
  }

  /** All operations in the order of their calls. Those without an outcome are unknown. */
  operations(): readonly Operation[] {
    return this.#processes
      .flatMap((process) => operationsIn(readFileSync(join(this.#folder, process), 'utf8')))
      .toSorted((a, b) => a.callNs - b.callNs);
  }
}

/** @param text lines of JSON with the `id` of an operation; a killed process may cut the last */
function operationsIn(text: string): readonly Operation[] {
  const byId = new Map<number, Partial<Operation>>();
  for (const line of text.split('\n').slice(0, -1)) {
    const { id, ...facts } = JSON.parse(line);
    const known = byId.get(id);
    if (known) Object.assign(known, facts);
    else byId.set(id, facts);
  }
  return [...byId.values()]
    .map((facts) => ({ returnNs: null, outcome: lostOutcome(facts), ...facts }) as Operation)
    .flatMap((operation) => [operation.object].flat().map((object) => ({ ...operation, object })));
}

/** An update without a value was killed before it computed one, so it sent no write. */
function lostOutcome({ kind, value }: Partial<Operation>): Outcome {
  return kind === 'update' && value === undefined ? 'failed' : 'unknown';
}

export function sha256Of(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
