/** One operation to be measured. */
export interface Subject {
  readonly name: string;
  /** @param worker from 0, where several run at once */
  run(worker: number): Promise<unknown>;
}

/** `ratio` is this subject's rate by that of `against`: above 1 it is faster. */
export interface Row {
  readonly bench: string;
  readonly subject: string;
  readonly ratio: number;
  readonly against: string;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly perSecond: number;
}

/** How much is measured. */
interface Extent {
  /** How many run at once. @default 1 */
  readonly workers?: number;
  /** @default 10 */
  readonly rounds?: number;
  /** Runs before, of each, that are not counted. @default 20 */
  readonly warmUp?: number;
}

/**
 * Runs all subjects in turn, round after round, so that whatever else the machine does meets all of them alike.
 *
 * @param subjects the first is what the others are compared with
 * @param times how often each runs in a round
 */
export async function compare(
  bench: string,
  subjects: readonly [Subject, ...Subject[]],
  times: number,
  { workers = 1, rounds = 10, warmUp = 20 }: Extent = {},
): Promise<Row[]> {
  const durationsMs = new Map<Subject, number[]>(subjects.map((subject) => [subject, []]));
  for (const subject of subjects) {
    for (let run = 0; run < warmUp; run += 1) await atOnce(workers, subject.run);
  }
  for (let round = 0; round < rounds; round += 1) {
    for (const [subject, durations] of durationsMs) {
      await atOnce(workers, async (worker) => {
        for (let run = 0; run < times; run += 1) {
          const startedMs = performance.now();
          await subject.run(worker);
          durations.push(performance.now() - startedMs);
        }
      });
    }
  }
  const [baseline] = subjects;
  const rate = (subject: Subject): number => workers * perSecond(durationsMs.get(subject) ?? []);
  return subjects.map((subject) => {
    const sorted = (durationsMs.get(subject) ?? []).toSorted((a, b) => a - b);
    return {
      bench,
      subject: subject.name,
      ratio: rounded(rate(subject) / rate(baseline)),
      against: baseline.name,
      p50Ms: rounded(quantile(sorted, 0.5)),
      p99Ms: rounded(quantile(sorted, 0.99)),
      perSecond: Math.round(rate(subject)),
    };
  });
}

function atOnce(workers: number, run: (worker: number) => Promise<unknown>): Promise<unknown> {
  return Promise.all(Array.from({ length: workers }, (_, worker) => run(worker)));
}

/** By one worker, who was always busy. */
function perSecond(durationsMs: readonly number[]): number {
  const totalMs = durationsMs.reduce((sum, durationMs) => sum + durationMs, 0);
  return (durationsMs.length * 1_000) / totalMs;
}

function quantile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

function rounded(value: number): number {
  return Math.round(value * 1_000) / 1_000;
}
