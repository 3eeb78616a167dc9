import { RECORDED_LOCKS, SUBJECTS } from './locks.ts';
import type { LoggedRun, RecordedRun } from './record.ts';
import { type Cell, sumOf, table, tally } from './table.ts';

/** Says for each lock how much was recorded. */
export function lockTable(runs: readonly RecordedRun[]): string {
  const rows = RECORDED_LOCKS.map((subject): Cell[] => {
    const its = runs.filter((run) => run.subject === subject);
    const exclusive = its.filter(({ exclusion }) => exclusion);
    const effective = its.flatMap(({ faults }) => Object.values(faults));
    return [
      ...[`\`${subject}\``, its.length, sumOf(its, ({ operations }) => operations)],
      ...[sumOf(its, ({ outcomes }) => outcomes['acquire ok'] ?? 0)],
      ...[sumOf(effective, (count) => count), its.filter(({ history }) => history).length],
      exclusive.length,
    ];
  });
  return table(
    [
      ...['locks', 'histories', 'operations', 'leases', 'faults that took effect'],
      ...['whole histories kept', 'histories judged for mutual exclusion'],
    ],
    rows,
  );
}

/** The runs in which no fault may break mutual exclusion, by lock. */
export function exclusionTable(runs: readonly RecordedRun[]): string {
  const judged = runs.flatMap((run) => (run.exclusion ? { ...run, exclusion: run.exclusion } : []));
  const inOrder = judged.toSorted(
    (a, b) => SUBJECTS.indexOf(a.subject) - SUBJECTS.indexOf(b.subject),
  );
  const rows = [...Map.groupBy(inOrder, ({ subject }) => subject)].map(([subject, its]): Cell[] => {
    const example = its.find(({ exclusion }) => exclusion.conviction)?.exclusion;
    const effective = its.flatMap(({ faults }) => Object.values(faults));
    return [
      ...[subject, its.length, Number((sumOf(its, ({ seconds }) => seconds) / 60).toFixed(1))],
      ...[sumOf(its, ({ exclusion }) => exclusion.holds)],
      ...[sumOf(its, ({ exclusion }) => exclusion.contests), sumOf(effective, (count) => count)],
      ...[sumOf(its, ({ exclusion }) => exclusion.overlaps)],
      tally(its.map(({ exclusion }) => exclusion.verdict)),
      example ? `[${example.overlap}](convictions/${example.conviction?.file})` : '',
    ];
  });
  return table(
    [
      ...['locks', 'runs', 'minutes', 'definite holds', 'tried while held'],
      ...['faults that took effect', 'overlaps', 'our judge', 'an overlap'],
    ],
    rows,
  );
}

/** Announced runs without a result. */
export function unfinishedTable(log: readonly LoggedRun[], runs: readonly RecordedRun[]): string {
  const finished = new Set(runs.map(({ run }) => run));
  const rows = log
    .filter(({ run, subject }) => subject !== undefined && !finished.has(run))
    .map((announced): Cell[] => {
      const { run, date = '', commit = '', subject = '', workload = '' } = announced;
      const error = log.find((line) => line.run === run && line.error !== undefined)?.error;
      const firstLine = error?.split('\n')[0]?.replaceAll('|', ' ');
      return [run, date, commit, subject, workload, firstLine ?? 'ended from outside'];
    });
  if (rows.length === 0) return 'Every announced run has a result.';
  return table(['run', 'date', 'commit', 'locks', 'workload', 'error'], rows);
}
