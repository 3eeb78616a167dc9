import { planFaults } from '../simulation/faults.ts';
import { Random } from '../simulation/random.ts';
import { Recorder } from '../simulation/recorder.ts';
import type { NodeFlaw } from '../simulation/redis-process.ts';
import { settingsFor } from '../simulation/settings.ts';
import { simulate } from '../simulation/world.ts';
import type { Tlc } from './tlc.ts';
import { type Rosters, type Trace, traceOf } from './trace.ts';

const NODES = ['a', 'b', 'c'];
/** Number of recorded steps of each trace. */
const STEPS_MAX = 200;
/** Number of traces that TLC reads at once. */
const BATCH = 50;
/** Faults that spec/Tokens.tla cannot express. Worlds with them are left out. */
const OUTSIDE: ReadonlySet<string> = new Set([
  'failover',
  'bury-ghost',
  'replica-for-a-while',
  'lose-node',
]);

export interface Verdict {
  readonly trace: Trace;
  /** The event that no action of the specification explains, from 1; null for an accepted trace. */
  readonly refusedAt: number | null;
}

/** Records the traces of the first `count` worlds from a seed on that the specification covers. */
export async function record(
  firstSeed: number,
  count: number,
  rosters: Rosters,
  flaws: ReadonlySet<NodeFlaw> = new Set(),
): Promise<Trace[]> {
  const traces: Trace[] = [];
  for (let seed = firstSeed; traces.length < count; seed += 1) {
    const settings = settingsFor(seed);
    const { nodeCount, resourceCount, workerCount, hasStranger } = settings;
    if (nodeCount !== NODES.length || resourceCount > 1 || workerCount > 1 || hasStranger) continue;
    const faults = planFaults(settings, new Random(seed, 'faults'));
    const without = new Set(faults.flatMap(({ kind }, at) => (OUTSIDE.has(kind) ? [at] : [])));
    const recorder = new Recorder(STEPS_MAX, NODES);
    await simulate(seed, { without, flaws, recorder });
    traces.push(traceOf(seed, recorder, NODES, rosters));
  }
  return traces;
}

/** Asks TLC which traces are behaviours of the specification. */
export async function check(
  tlc: Tlc,
  traces: readonly Trace[],
  rosters: Rosters,
): Promise<Verdict[]> {
  const verdicts: Verdict[] = [];
  for (let at = 0; at < traces.length; at += BATCH) {
    verdicts.push(...(await checkBatch(tlc, traces.slice(at, at + BATCH), rosters)));
  }
  return verdicts;
}

async function checkBatch(
  tlc: Tlc,
  traces: readonly Trace[],
  rosters: Rosters,
): Promise<readonly Verdict[]> {
  const output = await tlc.output('TraceSet', moduleOf(traces, rosters), CONFIG);
  if (!output.includes('Model checking completed')) throw new Error(`TLC failed:\n${output}`);
  const reached = new Map<number, number>();
  for (const [, trace, next] of output.matchAll(/^<<(\d+), (\d+)>>$/gm)) {
    reached.set(Number(trace), Math.max(Number(next), reached.get(Number(trace)) ?? 0));
  }
  return traces.map((trace, at) => {
    const next = reached.get(at + 1) ?? 0;
    return { trace, refusedAt: next > trace.events.length ? null : next };
  });
}

const CONFIG = `
SPECIFICATION TraceSpec
INVARIANT Reached
CONSTANTS
  Nodes <- TraceNodes
  Acquisitions <- TraceAcquisitions
  Rounds <- TraceRounds
  Traces <- TraceSet
  Rosters <- TraceRosters
  Promoted = {}
  FailedOver = NoOne
  Looks = {}
  LossesMax = 1000000
  ForgetsMax = 1000000
  TokenMax = 1000000000
  Followers = 0
  NamesRise = TRUE
  Again = TRUE
  NoOne = NoOne
  Nobody = Nobody
  Mutant = "none"
`;

function moduleOf(traces: readonly Trace[], { list }: Rosters): string {
  const highest = (field: 'a' | 'r'): number =>
    Math.max(1, ...traces.flatMap(({ events }) => events.map((event) => event[field] ?? 0)));
  const rosters = list.map((roster) => {
    const entries = roster.map(
      ({ name, gen }, at) => `${NODES[at]} |-> [name |-> ${name}, gen |-> ${gen}]`,
    );
    return `[${entries.join(', ')}]`;
  });
  return [
    '---- MODULE TraceSet ----',
    'EXTENDS Trace',
    `TraceNodes == {${NODES.map((node) => `"${node}"`).join(', ')}}`,
    `TraceAcquisitions == 1..${highest('a')}`,
    `TraceRounds == 1..${highest('r')}`,
    `TraceRosters == <<${rosters.join(',\n')}>>`,
    ...traces.map(({ events }, at) => `Trace${at} == <<\n${events.map(tla).join(',\n')}>>`),
    `TraceSet == <<${traces.map((_, at) => `Trace${at}`).join(', ')}>>`,
    '====',
  ].join('\n');
}

function tla(value: unknown): string {
  if (Array.isArray(value)) return `{${value.map(tla).join(', ')}}`;
  if (typeof value === 'boolean') return value ? 'TRUE' : 'FALSE';
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const fields = Object.entries(value).map(([name, one]) => `${name} |-> ${tla(one)}`);
  return `[${fields.join(', ')}]`;
}
