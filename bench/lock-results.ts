import { lockSubjects, OURS } from './lock-subjects.ts';
import type { CyclesReport } from './lock-tasks.ts';
import { type Extras, type Figures, type Measured, type Row, row, sum } from './measure.ts';

export function failures(reports: readonly CyclesReport[]): Extras {
  return { failures: sum(reports.map((report) => report.failures)) };
}

/** Returns a round that counts only the finished cycles. */
export function finished(report: CyclesReport): CyclesReport & { readonly done: number } {
  return { ...report, done: report.durationsMs.length - report.unfinished };
}

export function named(all: readonly Measured[], subject: string): Measured {
  const found = all.find((one) => one.subject === subject);
  if (found === undefined) throw new Error(`not measured: ${subject}`);
  return found;
}

/** Returns a row for each subject, and a last one that compares ours with the best peer. */
export function rowsOf(
  bench: string,
  all: readonly Measured[],
  against: Measured,
  figure: keyof Figures,
): Row[] {
  const ours = best(
    all.filter(({ subject }) => isOf(OURS, subject)),
    figure,
  );
  return [
    ...all.map((one) => row(bench, one, against, figure)),
    row(bench, ours, bestPeer(all, figure), figure),
  ];
}

/** Returns the best setting of all peers. */
function bestPeer(all: readonly Measured[], figure: keyof Figures): Measured {
  const peers = lockSubjects.filter(({ kind }) => kind === 'peer');
  return best(
    all.filter(({ subject }) => peers.some(({ name }) => isOf(name, subject))),
    figure,
  );
}

/** Returns true if the subject is this lock, in any setting. Settings follow its name. */
export function isOf(name: string, subject: string): boolean {
  return subject === name || subject.startsWith(`${name}, `);
}

/** Returns the subject with the highest `perSecond`, or with the lowest of another figure. */
export function best(all: readonly Measured[], figure: keyof Figures): Measured {
  const sign = figure === 'perSecond' ? -1 : 1;
  const [first] = all.toSorted((a, b) => sign * (a.total[figure] - b.total[figure]));
  if (first === undefined) throw new Error('nothing was measured');
  return first;
}
