import type { CyclesReport } from './lock-orders.ts';
import { lockSubjects } from './lock-subjects.ts';
import { type Extras, type Figures, type Measured, sum } from './measure.ts';

export function failures(reports: readonly CyclesReport[]): Extras {
  return { failures: sum(reports.map((report) => report.failures)) };
}

/** As a round in which only that was done which had ended. */
export function finished(report: CyclesReport): CyclesReport & { readonly done: number } {
  return { ...report, done: report.durationsMs.length - report.unfinished };
}

export function named(all: readonly Measured[], subject: string): Measured {
  const found = all.find((one) => one.subject === subject);
  if (found === undefined) throw new Error(`not measured: ${subject}`);
  return found;
}

/** Of all settings that were measured of any peer. */
export function bestPeer(all: readonly Measured[], figure: keyof Figures): Measured {
  const peers = lockSubjects.filter(({ kind }) => kind === 'peer');
  return best(
    all.filter(({ subject }) => peers.some(({ name }) => isOf(name, subject))),
    figure,
  );
}

/** Whether a subject is that lock, in whichever setting: settings follow its name. */
export function isOf(name: string, subject: string): boolean {
  return subject === name || subject.startsWith(`${name}, `);
}

/** Of `perSecond` the highest, of everything else the lowest. */
export function best(all: readonly Measured[], figure: keyof Figures): Measured {
  const sign = figure === 'perSecond' ? -1 : 1;
  const [first] = all.toSorted((a, b) => sign * (a.total[figure] - b.total[figure]));
  if (first === undefined) throw new Error('nothing was measured');
  return first;
}
