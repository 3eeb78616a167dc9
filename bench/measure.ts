/** One operation to be measured. */
export interface Subject {
  readonly name: string;
  /** @param worker from 0, where several run at once */
  run(worker: number): Promise<unknown>;
}

/** What was measured of one subject in one round, or in all of them. */
export interface Figures {
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly perSecond: number;
}

/** What some benches tell besides, each with the heading of its column. */
export const extraHeadings = {
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

/** `ratio` is this subject's `ratioOf` by that of `against`: the median of those of all rounds, as a machine that stands still meets one of the two. */
export interface Row extends Figures, Extras {
  readonly bench: string;
  readonly subject: string;
  readonly ratio: number;
  /** The lowest and the highest of any round. */
  readonly ratioRange: readonly [number, number];
  /** Of `perSecond` more is better, of everything else less. */
  readonly ratioOf: Figure;
  readonly against: string;
}

/** One subject's part of a round: how long each operation took, and all of them together. */
export interface Round {
  readonly durationsMs: readonly number[];
  readonly elapsedMs: number;
  /** How many ended. @default all */
  readonly done?: number;
}

export interface Measured {
  readonly subject: string;
  readonly total: Figures & Extras;
  /** Of each round; those of one number ran one after the other. */
  readonly rounds: readonly (Figures & Extras)[];
}

export interface BenchOptions {
  /** So little that it shows only that everything works. */
  readonly isQuick: boolean;
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
  for (const subject of subjects) {
    for (let run = 0; run < warmUp; run += 1) await atOnce(workers, subject.run);
  }
  const all = await inTurn(subjects, rounds, async (subject) => {
    const durationsMs: number[] = [];
    const startedMs = performance.now();
    const cpu = process.cpuUsage();
    await atOnce(workers, async (worker) => {
      for (let run = 0; run < times; run += 1) {
        const begunMs = performance.now();
        await subject.run(worker);
        durationsMs.push(performance.now() - begunMs);
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

/** What `run` returns for each subject in each round; all subjects have their turn in a round before the next begins. */
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

/** @param extras from the rounds that are given: one, or all of them */
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

/** What this process spent on each operation, in all of its threads. */
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
