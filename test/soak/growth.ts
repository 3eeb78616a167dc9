/** One measurement of everything that could leak. */
export interface Sample {
  readonly atMs: number;
  /** Heap of the client's process, after a garbage collection. */
  readonly heapBytes: number;
  /** Memory of the client's process, as the system counts it. It is reported, and not judged. */
  readonly residentBytes: number;
  /** Open files and sockets of the client's process. */
  readonly descriptors: number;
  /** Timers of the library that are set. */
  readonly timers: number;
  /** Memory of the node that uses most. */
  readonly nodeBytes: number;
  /** Keys of all nodes. */
  readonly keys: number;
  /** Names that all nodes remember. */
  readonly names: number;
  /** Connections of all nodes. */
  readonly connections: number;
}

/** Growth up to this share of a figure, plus its allowance, counts as no leak. */
const GROWTH_MAX = 0.1;
const ALLOWANCES = {
  heapBytes: 1_000_000,
  descriptors: 16,
  timers: 20,
  nodeBytes: 500_000,
  keys: 60,
  names: 60,
  connections: 16,
} satisfies Partial<Record<keyof Sample, number>>;

/**
 * Returns a sentence for each figure that grows: its median in the last third of the samples is
 * above that of the second third. The first third is the warm-up.
 */
export function growthIn(samples: readonly Sample[]): readonly string[] {
  const third = Math.floor(samples.length / 3);
  if (third < 3) throw new Error(`a verdict needs 9 samples or more samples=${samples.length}`);
  const fields = Object.keys(ALLOWANCES) as (keyof typeof ALLOWANCES)[];
  return fields.flatMap((field) => {
    const values = samples.map((sample) => sample[field]);
    const before = median(values.slice(third, -third));
    const after = median(values.slice(-third));
    const limit = before * (1 + GROWTH_MAX) + ALLOWANCES[field];
    return after <= limit ? [] : [`${field} grew from ${before} to ${after}, more than ${limit}`];
  });
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}
