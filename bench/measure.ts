/** An operation to measure. */
export interface Subject {
  readonly name: string;
  /** @param worker from 0, if several run at once */
  run(worker: number): Promise<unknown>;
}

/** Figures of one subject, in one round or in all. */
export interface Figures {
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly perSecond: number;
}

/** Additional figures of some benches, with their column headings. */
export const extraHeadings = {
  firstP50Ms: 'p50 of the first 1,000, ms',
  cpuMs: 'own CPU, ms',
  nodesCpuMs: 'CPU of all nodes, ms',
  longestWaitMs: 'longest wait, ms',
  longestScriptMs: 'longest script, ms',
  servedLeast: 'least served',
  servedMost: 'most served',
  failures: 'failures',
  cycles: 'cycles',
  unfinished: 'unfinished',
  queuedCommands: 'commands queued',
  bytesPerCycle: 'bytes a cycle',
  bytesPerLease: 'bytes a lease',
  bytesPerLeaseReleased: 'bytes a lease, released',
  timersPerLease: 'timers a lease',
  bytesPerWaiter: 'bytes a waiter',
  timersPerWaiter: 'timers a waiter',
  sockets: 'connections',
  socketsWaiting: 'connections, waiting',
} as const;

export type Extras = Partial<Record<keyof typeof extraHeadings, number>>;

type Figure = keyof Figures | keyof Extras;

/**
 * `ratio` divides this subject's figure `ratioOf` by that of `against`. It is the median of all
 * rounds, because a short stall of the machine affects only one of the two.
 */
export interface Row extends Figures, Extras {
  readonly bench: string;
  readonly subject: string;
  readonly ratio: number;
  /** The lowest and the highest ratio of a round. */
  readonly ratioRange: readonly [number, number];
  /** A higher `perSecond` is better. Of all other figures, a lower one is. */
  readonly ratioOf: Figure;
  readonly against: string;
}

/** One subject's part of a round: the duration of each operation, and of all. */
export interface Round {
  readonly durationsMs: readonly number[];
  readonly elapsedMs: number;
  /** Number of finished operations. @default all */
  readonly done?: number;
}

export interface Measured {
  readonly subject: string;
  readonly total: Figures & Extras;
  /** Figures of each round. In a round, all subjects run one after the other. */
  readonly rounds: readonly (Figures & Extras)[];
}

export interface BenchOptions {
  /** Measures so little that it shows only that everything works. */
  readonly isQuick: boolean;
}

/** Size of a measurement. */
interface Extent {
  /** Concurrent workers. @default 1 */
  readonly workers?: number;
  /** @default 10 */
  readonly rounds?: number;
  /** Runs of each subject before the first round. @default 20 */
  readonly warmUp?: number;
}

/**
 * Runs all subjects in turn, round after round, so that other load affects all of them alike.
 *
 * @param subjects the others are compared with the first
 * @param times runs of each subject in a round
 */
export async function compare(
  bench: string,
  subjects: readonly [Subject, ...Subject[]],
  times: number,
  { workers = 1, rounds = 10, warmUp = 20 }: Extent = {},
): Promise<Row[]> {
  for (const subject of subjects) {
    for (let run = 0; run < warmUp; run += 1) await atOnce(workers, subject.run);
  }
  const all = await inTurn(subjects, rounds, async (subject) => {
    const durationsMs: number[] = [];
    const startedMs = performance.now();
    const cpu = process.cpuUsage();
    await atOnce(workers, async (worker) => {
      for (let run = 0; run < times; run += 1) {
        const beginMs = performance.now();
        await subject.run(worker);
        durationsMs.push(performance.now() - beginMs);
      }
    });
    const { user, system } = process.cpuUsage(cpu);
    const elapsedMs = performance.now() - startedMs;
    return { durationsMs, elapsedMs, cpuMs: (user + system) / 1_000 };
  });
  const measured = all.map(([subject, its]) => measure(subject.name, its, cpuOfEach));
  const [baseline] = measured;
  return baseline ? measured.map((one) => row(bench, one, baseline, 'perSecond')) : [];
}

/** Returns the results of `run` for each subject in each round. A round runs all subjects. */
export async function inTurn<Of, Result>(
  subjects: readonly Of[],
  rounds: number,
  run: (subject: Of) => Promise<Result>,
): Promise<readonly (readonly [Of, Result[]])[]> {
  const results = subjects.map((subject) => [subject, [] as Result[]] as const);
  for (let round = 0; round < rounds; round += 1) {
    for (const [subject, its] of results) its.push(await run(subject));
  }
  return results;
}

/** @param extras returns additional figures of one round, or of all */
export function measure<Of extends Round>(
  subject: string,
  rounds: readonly Of[],
  extras: (rounds: readonly Of[]) => Extras = () => ({}),
): Measured {
  const figures = (some: readonly Of[]): Figures & Extras => ({
    ...figuresOf(some),
    ...extras(some),
  });
  return { subject, total: figures(rounds), rounds: rounds.map((round) => figures([round])) };
}

export function row(bench: string, own: Measured, against: Measured, ratioOf: Figure): Row {
  const figure = (round: (Figures & Extras) | undefined): number => round?.[ratioOf] ?? Number.NaN;
  const ratios = own.rounds
    .map((round, index) => rounded(figure(round) / figure(against.rounds[index])))
    .sort((a, b) => a - b);
  const total = Object.entries(own.total).map(([name, value]) => [name, rounded(value)]);
  return {
    bench,
    subject: own.subject,
    ratio: rounded(median(ratios)),
    ratioRange: [quantile(ratios, 0), quantile(ratios, 1)],
    ratioOf,
    against: against.subject,
    ...(Object.fromEntries(total) as Figures & Extras),
  };
}

function figuresOf(rounds: readonly Round[]): Figures {
  const sorted = rounds.flatMap(({ durationsMs }) => durationsMs).sort((a, b) => a - b);
  const done = sum(rounds.map((round) => round.done ?? round.durationsMs.length));
  return {
    p50Ms: quantile(sorted, 0.5),
    p99Ms: quantile(sorted, 0.99),
    perSecond: (done * 1_000) / sum(rounds.map(({ elapsedMs }) => elapsedMs)),
  };
}

/** Returns this process's CPU time for each operation, in all threads. */
function cpuOfEach(rounds: readonly (Round & { readonly cpuMs: number })[]): Extras {
  const done = sum(rounds.map(({ durationsMs }) => durationsMs.length));
  return { cpuMs: sum(rounds.map(({ cpuMs }) => cpuMs)) / done };
}

export function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

function atOnce(workers: number, run: (worker: number) => Promise<unknown>): Promise<unknown> {
  return Promise.all(Array.from({ length: workers }, (_, worker) => run(worker)));
}

function quantile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

function median(sorted: readonly number[]): number {
  const middle = (sorted.length - 1) / 2;
  return sum([Math.floor(middle), Math.ceil(middle)].map((at) => sorted[at] ?? Number.NaN)) / 2;
}

function rounded(value: number): number {
  return Math.round(value * 1_000) / 1_000;
}
