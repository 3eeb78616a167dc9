import type { NodeFlaw } from '../simulation/redis-process.ts';
import { Rosters } from '../spec/trace.ts';
import type { Coq } from './coq.ts';
import { type Verdict, verdictsOn } from './coq-traces.ts';
import { changed } from './trace-changes.ts';
import { record } from './worlds.ts';

export interface ReportOptions {
  readonly count: number;
  readonly firstSeed: number;
  /** Protective steps that the simulated nodes lack. */
  readonly flaws: ReadonlySet<NodeFlaw>;
  /** True if the code or the nodes lack a protective step. */
  readonly isMutant: boolean;
}

/** Number of traces that are recorded and checked before the next ones. */
const STRIDE = 100;
/** Number of refused traces that are shown. */
const SHOWN_MAX = 10;

/** Prints the verdicts on traces of the simulation. @returns true if they are as expected */
export async function reportTraces(coq: Coq, options: ReportOptions): Promise<boolean> {
  const { count, flaws, isMutant } = options;
  const bySize = new Map<number, Tally>();
  const byEvent = new Map<string, Tally>();
  const byChange = new Map<string, Tally>();
  const refused: Verdict[] = [];
  let { firstSeed } = options;
  for (let left = count; left > 0; left -= STRIDE) {
    const rosters = new Rosters();
    const traces = await record(firstSeed, Math.min(STRIDE, left), rosters, flaws);
    firstSeed = (traces.at(-1)?.seed ?? firstSeed) + 1;
    for (const event of traces.flatMap(({ events }) => events)) add(byEvent, event.do, true);
    for (const verdict of await verdictsOn(coq, traces, rosters)) {
      add(bySize, verdict.trace.nodes.length, verdict.refusedAt === null);
      if (verdict.refusedAt !== null) refused.push(verdict);
    }
    if (isMutant) continue;
    for (const { trace, refusedAt } of await verdictsOn(coq, changed(traces, rosters), rosters)) {
      const isRefused = refusedAt !== null && refusedAt >= trace.changedAt;
      add(byChange, trace.change, isRefused);
      if (!isRefused) say(`seed ${trace.seed}: ${trace.change} at ${trace.changedAt} is accepted`);
    }
  }
  for (const verdict of refused.slice(0, SHOWN_MAX)) show(verdict);
  say('', `seeds ${options.firstSeed} to ${firstSeed - 1}`);
  say('', '| event | number |', '|---|---|');
  for (const [name, { all }] of byEvent) say(`| ${name} | ${all} |`);
  say('', '| nodes | accepted | of |', '|---|---|---|');
  for (const [nodes, { good, all }] of bySize) say(`| ${nodes} | ${good} | ${all} |`);
  say('', '| change | refused | of |', '|---|---|---|');
  for (const [name, { good, all }] of byChange) say(`| ${name} | ${good} | ${all} |`);
  if (isMutant) return refused.length > 0;
  return refused.length === 0 && [...byChange.values()].every(({ good, all }) => good === all);
}

interface Tally {
  good: number;
  all: number;
}

function add<K>(tallies: Map<K, Tally>, key: K, isGood: boolean): void {
  const tally = tallies.get(key) ?? { good: 0, all: 0 };
  tally.good += isGood ? 1 : 0;
  tally.all += 1;
  tallies.set(key, tally);
}

function show({ trace, refusedAt }: Verdict): void {
  const event = trace.events[(refusedAt ?? 0) - 1];
  say(`seed ${trace.seed}: event ${refusedAt} is refused: ${JSON.stringify(event)}`);
}

function say(...lines: readonly string[]): void {
  for (const line of lines) process.stdout.write(`${line}\n`);
}
