import type { Rosters } from '../spec/trace.ts';
import type { Coq } from './coq.ts';
import { moduleOf } from './coq-data.ts';
import type { WorldTrace } from './worlds.ts';

/** Number of traces that one process of Coq reads. */
const BATCH = 50;

export interface Verdict<T extends WorldTrace = WorldTrace> {
  readonly trace: T;
  /** The event that the checker refuses, from 1; null for an accepted trace. */
  readonly refusedAt: number | null;
}

/** Lets Coq compute which traces its proved checker accepts. The proof must be compiled. */
export async function verdictsOn<T extends WorldTrace>(
  coq: Coq,
  traces: readonly T[],
  rosters: Rosters,
): Promise<Verdict<T>[]> {
  const verdicts: Verdict<T>[] = [];
  for (let at = 0; at < traces.length; at += BATCH) {
    verdicts.push(...(await verdictsOnBatch(coq, traces.slice(at, at + BATCH), rosters)));
  }
  return verdicts;
}

async function verdictsOnBatch<T extends WorldTrace>(
  coq: Coq,
  traces: readonly T[],
  rosters: Rosters,
): Promise<Verdict<T>[]> {
  const { text, places } = moduleOf(traces, rosters);
  const output = await coq.output(text);
  const numbers = /^\s*= \[([\d;\s]*)\]/.exec(output)?.[1]?.split(';').map(Number) ?? [];
  if (numbers.length !== traces.length) throw new Error(`Coq gave no verdicts:\n${output}`);
  return traces.map((trace, at) => {
    const number = numbers[at] ?? 0;
    const refusedAt = number === 0 ? null : (places[at]?.[number - 1] ?? 0);
    return { trace, refusedAt };
  });
}
