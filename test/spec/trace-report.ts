import type { NodeFlaw } from '../simulation/redis-process.ts';
import { type Altered, altered } from './alterations.ts';
import type { Tlc } from './tlc.ts';
import { Rosters } from './trace.ts';
import { check, record, type Verdict } from './trace-check.ts';

export interface ReportOptions {
  readonly count: number;
  readonly firstSeed: number;
  readonly flaws: ReadonlySet<NodeFlaw>;
  /** True if the code or the nodes lack a protective step. */
  readonly isMutant: boolean;
}

/** Number of traces that are recorded and checked before the next ones. */
const STRIDE = 100;
/** Number of refused traces that are shown. */
const SHOWN_MAX = 10;

/** Prints the verdicts on traces of the simulation. @returns true if they are as expected */
export async function reportTraces(tlc: Tlc, options: ReportOptions): Promise<boolean> {
  const { count, flaws, isMutant } = options;
  const events = new Map<string, number>();
  const byAlteration = new Map<string, [refused: number, all: number]>();
  let { firstSeed } = options;
  let [accepted, wrong, shown] = [0, 0, 0];
  for (let left = count; left > 0; left -= STRIDE) {
    const rosters = new Rosters();
    const traces = await record(firstSeed, Math.min(STRIDE, left), rosters, flaws);
    firstSeed = (traces.at(-1)?.seed ?? firstSeed) + 1;
    for (const event of traces.flatMap((trace) => trace.events)) {
      events.set(event.do, (events.get(event.do) ?? 0) + 1);
    }
    for (const verdict of await check(tlc, traces, rosters)) {
      if (verdict.refusedAt === null) accepted += 1;
      else if (shown < SHOWN_MAX) {
        shown += 1;
        show(verdict);
      }
    }
    if (isMutant) continue;
    const changed = altered(traces);
    for (const [at, { refusedAt }] of (await check(tlc, changed, rosters)).entries()) {
      const { alteration, alteredAt, seed } = changed[at] as Altered;
      const isRefused = refusedAt !== null && refusedAt >= alteredAt;
      const [refused, all] = byAlteration.get(alteration) ?? [0, 0];
      byAlteration.set(alteration, [refused + (isRefused ? 1 : 0), all + 1]);
      if (isRefused) continue;
      wrong += 1;
      say(`seed ${seed}: ${alteration} at ${alteredAt} was not refused there`);
    }
  }
  say('', `seeds ${options.firstSeed} to ${firstSeed - 1}`);
  say('', '| event | number |', '|---|---|');
  for (const [name, number] of events) say(`| ${name} | ${number} |`);
  say('', '| traces | refused | of |', '|---|---|---|');
  say(`| as recorded | ${count - accepted} | ${count} |`);
  for (const [name, [refused, all]] of byAlteration) say(`| ${name} | ${refused} | ${all} |`);
  return isMutant ? accepted < count : accepted === count && wrong === 0;
}

function show({ trace, refusedAt }: Verdict): void {
  const event = trace.events[(refusedAt ?? 0) - 1];
  say(`seed ${trace.seed}: event ${refusedAt} is refused: ${JSON.stringify(event)}`);
}

function say(...lines: readonly string[]): void {
  for (const line of lines) process.stdout.write(`${line}\n`);
}
