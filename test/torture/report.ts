import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { mutants } from '../simulation/mutant-list.ts';
import { exclusionTable, lockTable, unfinishedTable } from './coverage-tables.ts';
import { FAULT_KINDS } from './faults.ts';
import type { Operation } from './history.ts';
import { MUTANTS, RECORDED_LOCKS, SUBJECTS } from './locks.ts';
import type { JudgedChanges, LoggedRun, RecordedRun } from './record.ts';
import { type Cell, sumOf, table, tally } from './table.ts';

/** One exploration of simulated worlds, as a line of `simulations.jsonl`. */
export interface RecordedSimulation {
  readonly date: string;
  readonly commit: string;
  /** Kind of the worlds: `short` or `long`, with `, moves` if their locks move to other nodes. */
  readonly kind: string;
  readonly firstSeed: number;
  readonly seeds: number;
  readonly steps: number;
  readonly acquisitions: number;
  readonly readmissions: number;
  readonly writeBacks: number;
  /** Number of worlds whose next node set serves at the end. */
  readonly moves: number;
  /** Number of extensions that are an exception to the rule; see "Leases survive restarts". */
  readonly excepted?: number;
  readonly seconds: number;
  /** Null if every world kept the invariants. */
  readonly violation: string | null;
}

const COUNTS = [
  ...(['seeds', 'steps', 'acquisitions', 'readmissions'] as const),
  ...(['writeBacks', 'moves', 'excepted'] as const),
];

/** Reads the recorded runs of a report. */
export function readRuns(folder: string): readonly RecordedRun[] {
  return linesOf<RecordedRun>(join(folder, 'runs.jsonl'));
}

/** Reads the lines that announce runs, and those of failures. */
export function readLog(folder: string): readonly LoggedRun[] {
  return linesOf<LoggedRun>(join(folder, 'log.jsonl'));
}

/** Returns the report's page with tables of what is recorded in its folder. */
export function reportOf(folder: string): string {
  const runs = readRuns(folder);
  const ours = runs.filter(({ subject }) => RECORDED_LOCKS.includes(subject));
  const controls = runs.filter(({ subject }) => !RECORDED_LOCKS.includes(subject));
  const tables: Readonly<Record<string, string>> = {
    machines: machineTable(runs),
    locks: lockTable(ours),
    runs: runTable(ours),
    exclusion: exclusionTable(runs),
    faults: faultTable(ours, controls),
    controls: controlTable(folder, controls),
    mutants: mutantTable(folder, controls),
    changes: changeTable(linesOf(join(folder, 'changes.jsonl'))),
    simulations: simulationTable(linesOf(join(folder, 'simulations.jsonl'))),
    unfinished: unfinishedTable(readLog(folder), runs),
    histories: historyTable(ours),
  };
  return Object.entries(tables).reduce(
    (page, [name, text]) => {
      const [begin, end] = [`<!-- torture:${name} -->`, `<!-- /torture:${name} -->`];
      const [from, to] = [page.indexOf(begin), page.indexOf(end)];
      if (from < 0 || to < from) throw new Error(`the page lacks ${begin} … ${end}`);
      return `${page.slice(0, from)}${begin}\n${text}\n${page.slice(to)}`;
    },
    readFileSync(pageOf(folder), 'utf8'),
  );
}

export function writeReport(folder: string): void {
  writeFileSync(pageOf(folder), reportOf(folder));
}

function pageOf(folder: string): string {
  return join(folder, 'README.md');
}

function linesOf<Line>(file: string): readonly Line[] {
  const lines = readFileSync(file, 'utf8').split('\n').filter(Boolean);
  return lines.map((line) => JSON.parse(line) as Line);
}

function machineTable(runs: readonly RecordedRun[]): string {
  const groups = Map.groupBy(runs, ({ machine }) => JSON.stringify(machine));
  const rows = [...groups.values()].map((its) => {
    const {
      redis = '',
      etcd = '',
      zookeeper = '',
      s3 = '',
      postgres = '',
      node = '',
      system = '',
      processors = '',
    } = its[0]?.machine ?? {};
    const dates = [...new Set(its.map(({ date }) => date))];
    const locks = redis || etcd || zookeeper;
    return [dates.join(', '), its.length, locks, s3, postgres, node, system, processors];
  });
  return table(
    ['date', 'runs', 'lock servers', 'S3', 'Postgres', 'Node', 'system', 'processors'],
    rows,
  );
}

function runTable(runs: readonly RecordedRun[]): string {
  const inOrder = runs.toSorted(
    (a, b) => RECORDED_LOCKS.indexOf(a.subject) - RECORDED_LOCKS.indexOf(b.subject),
  );
  const groups = Map.groupBy(inOrder, ({ subject, workload }) => `${subject} ${workload}`);
  const rows = [...groups].map(([name, its]) => [...name.split(' '), ...figuresOf(its)]);
  const total = ['**all**', '', ...figuresOf(runs)];
  return table(
    [
      ...[
        'locks',
        'workload',
        'runs',
        'minutes',
        'operations',
        'failed',
        'leases',
        'writes applied',
      ],
      ...['stale writes tried', 'writes refused', 'outcomes unknown', 'shared leases'],
      ...['our judge', 'porcupine'],
    ],
    [...rows, total],
  );
}

function figuresOf(runs: readonly RecordedRun[]): Cell[] {
  const sum = (of: (run: RecordedRun) => number): number => sumOf(runs, of);
  const outcomes = (pattern: RegExp): number =>
    sum((run) =>
      Object.entries(run.outcomes).reduce(
        (n, [name, count]) => n + (pattern.test(name) ? count : 0),
        0,
      ),
    );
  return [
    runs.length,
    Number((sum(({ seconds }) => seconds) / 60).toFixed(1)),
    sum(({ operations }) => operations),
    outcomes(/ failed$/),
    outcomes(/^acquire ok$/),
    outcomes(/^(?:update|put|claim) ok$/),
    sum(({ staleWrites }) => staleWrites),
    outcomes(/^(?:update|put|claim) refused$/),
    outcomes(/ unknown$/),
    sum(({ sharedLeases }) => sharedLeases),
    tally(runs.map(({ verdict }) => verdict)),
    tally(runs.map(({ porcupine }) => porcupine.split(':')[0] ?? '')),
  ];
}

function faultTable(ours: readonly RecordedRun[], controls: readonly RecordedRun[]): string {
  const count = (runs: readonly RecordedRun[], kind: string): number =>
    runs.reduce((sum, { faults }) => sum + (faults[kind] ?? 0), 0);
  const bySubject = RECORDED_LOCKS.map((subject) => ours.filter((run) => run.subject === subject));
  const rows = FAULT_KINDS.map((kind) => [
    `\`${kind}\``,
    ...[...bySubject, controls].map((runs) => count(runs, kind)),
  ]);
  return table(['fault', ...RECORDED_LOCKS, 'controls'], rows);
}

const CONVICTED = ['seconds', 'operations', 'our judge', 'porcupine', 'shortest', 'violation'];

function controlTable(folder: string, runs: readonly RecordedRun[]): string {
  const inOrder = runs
    .filter(({ subject }) => !MUTANTS.includes(subject))
    .toSorted((a, b) => SUBJECTS.indexOf(a.subject) - SUBJECTS.indexOf(b.subject));
  const rows = inOrder.map((run) => [`\`${run.subject}\``, ...convicted(folder, run)]);
  return table(['control', ...CONVICTED], rows);
}

function mutantTable(folder: string, runs: readonly RecordedRun[]): string {
  const rows = mutants.flatMap(({ name, tokensGrow, excuse }): Cell[][] => {
    const its = runs.filter(({ subject }) => subject === name);
    const note = tokensGrow ? 'breaks mutual exclusion only' : excuse ? 'excused' : '';
    const row = (run: RecordedRun): Cell[] => {
      const cells = convicted(folder, run);
      return [name, run.sharedLeases, ...cells.slice(0, -1), cells.at(-1) || note];
    };
    if (its.length > 0) return its.map(row);
    const why = MUTANTS.includes(name) ? 'not tried' : 'only in the simulation';
    return [[name, '', '', '', why, '', '', note]];
  });
  return table(['mutant', 'shared leases', ...CONVICTED], rows);
}

function convicted(folder: string, run: RecordedRun): Cell[] {
  const { seconds, operations, verdict, porcupine, conviction, violated } = run;
  const figures = [seconds, operations, verdict, porcupine.split(':')[0] ?? ''];
  if (!conviction) return [...figures, '', ''];
  const [first] = linesOf<Operation>(join(folder, 'convictions', conviction.file));
  const object = first?.object ?? '';
  const shortest = `[${conviction.operations} operations](convictions/${conviction.file})`;
  return [...figures, shortest, `${object}: ${violated[object]}`];
}

function changeTable(recorded: readonly JudgedChanges[]): string {
  const rows = recorded.flatMap(({ sha256, operations, changes }) =>
    changes.map(({ kind, isPlanted, histories, ours, porcupine, agreed }) => [
      ...[`\`${sha256.slice(0, 12)}\``, operations, kind, isPlanted ? 'all' : 'unknown'],
      ...[histories, ours, porcupine ?? 'no such rule', agreed ?? ''],
    ]),
  );
  return table(
    [
      ...['history', 'operations', 'change', 'violations among them', 'histories'],
      ...['convicted by our judge', 'by porcupine', 'same objects'],
    ],
    rows,
  );
}

/** One row for the worlds of one kind at one commit. */
function simulationTable(runs: readonly RecordedSimulation[]): string {
  const kinds = Map.groupBy(runs, ({ commit, kind }) => `${commit} ${kind}`);
  const sums = (some: readonly RecordedSimulation[]): Cell[] =>
    COUNTS.map((key) => some.reduce((total, run) => total + (run[key] ?? 0), 0));
  const rows = [...kinds.values()].map((some) => {
    const [first] = some;
    const violations = some.flatMap(({ violation }) => violation ?? []);
    const named = [first?.date ?? '', first?.commit ?? '', first?.kind ?? ''];
    return [...named, ...sums(some), violations.join('; ') || 'none'];
  });
  return table(
    [
      ...['date', 'commit', 'worlds', 'number', 'steps', 'acquisitions', 'readmissions'],
      ...['leases written back', 'moves', 'exceptions', 'violation'],
    ],
    [...rows, ['**all**', '', '', ...sums(runs), '']],
  );
}

function historyTable(runs: readonly RecordedRun[]): string {
  const rows = runs.map(
    ({ run, date, commit, subject, workload, threads, seed, seconds, ...its }): Cell[] => {
      const hash = `\`${its.sha256}\``;
      const number = its.history ? `[${run}](histories/${its.history})` : String(run ?? '');
      return [
        ...[number, date, commit, subject, workload, threads ? `4 × ${threads}` : '6 × 2'],
        ...[String(seed), seconds, its.operations, hash],
      ];
    },
  );
  return table(
    [
      ...['run', 'date', 'commit', 'locks', 'workload', 'threads', 'seed', 'seconds'],
      ...['operations', 'SHA-256'],
    ],
    rows,
  );
}
