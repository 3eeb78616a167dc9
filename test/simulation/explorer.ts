// One worker thread: runs every `stride`th world from a seed on, until one violates an invariant.
import { parentPort, workerData } from 'node:worker_threads';
import { type Counts, NO_COUNTS } from './counts.ts';
import { mutantNamed } from './mutant-list.ts';
import { runFromSources } from './sources.ts';

export interface Task {
  readonly firstSeed: number;
  readonly count: number;
  readonly stride: number;
  /** Name of a mutant, or null for the unchanged code. */
  readonly mutant: string | null;
  /** Faults to leave out in every world. If given, a world with a violation is not shrunk. */
  readonly without: readonly number[] | null;
  /** True for worlds in which the locks move to another node set. */
  readonly moves: boolean;
  /** True for short worlds. */
  readonly short: boolean;
  /** True for worlds of readmissions. */
  readonly readmissions: boolean;
}

export interface Finding {
  readonly seed: number;
  readonly violation: string;
  readonly without: readonly number[];
  readonly trace: readonly string[];
}

export type Message =
  | { readonly kind: 'lived'; readonly counts: Counts }
  | { readonly kind: 'violated'; readonly finding: Finding };

const REPORT_EVERY = 25;
const task: Task = workerData;
const mutant = task.mutant === null ? null : mutantNamed(task.mutant);
runFromSources(mutant?.patch ? [mutant.patch] : []);
// Saves time: each world has many errors, and nothing reads their stacks.
Error.stackTraceLimit = 0;
const { worldOf } = await import('./kinds.ts');
const { replay, shrink } = await import('./shrink.ts');

const flaws = new Set(mutant?.flaw ? [mutant.flaw] : []);
let counts = NO_COUNTS;
const { moves, short } = task;
const readmissions = task.readmissions || (mutant?.world?.readmissions ?? false);
const kind = { ...mutant?.world, flaws, moves, short, readmissions };
for (let at = 0; at < task.count; at += task.stride) {
  const options = { ...kind, without: new Set(task.without) };
  const outcome = await worldOf(task.firstSeed + at, options);
  counts = {
    seeds: counts.seeds + 1,
    steps: counts.steps + outcome.steps,
    acquisitions: counts.acquisitions + outcome.acquisitions,
    readmissions: counts.readmissions + outcome.readmissions,
    writeBacks: counts.writeBacks + outcome.writeBacks,
    moves: counts.moves + outcome.moves,
    carried: counts.carried + outcome.carried,
    excepted: counts.excepted + outcome.excepted,
    handOvers: counts.handOvers + outcome.handOvers,
    handOversBeside: counts.handOversBeside + outcome.handOversBeside,
  };
  if (outcome.violation !== null) {
    // A world of readmissions has no planned faults that could be left out.
    const isWhole = task.without !== null || readmissions;
    const minimal = isWhole ? replay(outcome.seed, options, worldOf) : shrink(outcome, options);
    const { without, trace, outcome: last } = await minimal;
    const violation = last.violation ?? outcome.violation;
    const finding = { seed: outcome.seed, violation, without: [...without], trace };
    post({ kind: 'lived', counts });
    post({ kind: 'violated', finding });
    break;
  }
  if (counts.seeds % REPORT_EVERY === 0) report();
}
report();

function report(): void {
  post({ kind: 'lived', counts });
  counts = NO_COUNTS;
}

function post(message: Message): void {
  parentPort?.postMessage(message);
}
