import { type Outcome, type RunOptions, simulate } from './world.ts';

const RUNS_MAX = 300;
const LINES_MAX = 80;
const LINES_AFTER_PEACE = 20;

/** The smallest set of faults found that still violates an invariant, with its trace. */
export interface Minimal {
  readonly without: ReadonlySet<number>;
  readonly outcome: Outcome;
  readonly trace: readonly string[];
}

/** Leaves out faults, first many at once and then single ones, while a violation remains. */
export async function shrink(first: Outcome, options: RunOptions): Promise<Minimal> {
  let without: ReadonlySet<number> = options.without ?? new Set();
  let runs = 0;
  for (let size = Math.ceil(first.faultCount / 2); size >= 1; size = Math.floor(size / 2)) {
    for (let from = 0; from < first.faultCount && runs < RUNS_MAX; from += size) {
      const part = Array.from({ length: size }, (_, at) => from + at);
      const fewer = new Set([...without, ...part.filter((at) => at < first.faultCount)]);
      if (fewer.size === without.size) continue;
      runs += 1;
      const { violation } = await simulate(first.seed, { ...options, without: fewer });
      if (violation !== null) without = fewer;
    }
  }
  return replay(first.seed, { ...options, without });
}

/** Runs a world once more and records its trace. */
export async function replay(
  seed: number,
  options: RunOptions,
  run: (seed: number, options: RunOptions) => Promise<Outcome> = simulate,
): Promise<Minimal> {
  const lines: string[] = [];
  const trace = (line: string): void => void lines.push(line);
  const outcome = await run(seed, { ...options, trace });
  return { without: options.without ?? new Set(), outcome, trace: trim(lines) };
}

/**
 * Keeps the lines that probably explain the violation: the last ones without releases and refusals.
 * If the clients did not recover, the last lines before the end of all faults explain more.
 */
function trim(lines: readonly string[]): readonly string[] {
  const noise = /: (late )?release | = (NOSCRIPT|held)| save node/;
  const telling = lines.filter((line) => !noise.test(line));
  const peace = telling.findIndex((line) => line.endsWith('all is well'));
  const end = peace === -1 ? telling.length : peace + LINES_AFTER_PEACE;
  const story = telling.filter((_, at) => at < end || at === telling.length - 1);
  const from = Math.max(1, story.length - LINES_MAX);
  return [telling[0] ?? '', `… ${from - 1} lines …`, ...story.slice(from)];
}
