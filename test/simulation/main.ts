// npm run simulate -- --seeds N --workers 2 [--seed S]: lives through N worlds of our own code.
import { parseArgs } from 'node:util';
import { type Exploration, explore } from './exploration.ts';

const { values } = parseArgs({
  options: {
    /** How many worlds. */
    seeds: { type: 'string', default: '10000' },
    workers: { type: 'string', default: '1' },
    /** The first of them. */
    seed: { type: 'string' },
    /** Places of faults that are left out; for playing a violation again. */
    without: { type: 'string' },
    /** Name of a mutant that is run in place of the code as it is. */
    mutant: { type: 'string' },
  },
});

const firstSeed = wholeNumber('seed', values.seed ?? String(Date.now()));
const without = values.without?.split(',').filter(Boolean).map(Number) ?? null;
const count = wholeNumber('seeds', without ? '1' : values.seeds);
const workers = wholeNumber('workers', values.workers);
const begunMs = performance.now();

say(`seeds ${firstSeed} to ${firstSeed + count - 1}`);
let toldMs = begunMs;
const result = await explore({
  firstSeed,
  count,
  workers,
  mutant: values.mutant ?? null,
  without,
  onProgress: (counts) => {
    if (performance.now() - toldMs < 10_000) return;
    toldMs = performance.now();
    say(summary(counts));
  },
});
say(summary(result));
if (result.finding) {
  const { seed, violation, without: left, trace } = result.finding;
  const mutant = values.mutant === undefined ? '' : ` --mutant '${values.mutant}'`;
  say(['', ...trace, '', `seed ${seed}: ${violation}`].join('\n'));
  say(`again: npm run simulate -- --seed ${seed} --without ${left.join(',') || ','}${mutant}`);
  process.exitCode = 1;
}

function summary(counts: Omit<Exploration, 'finding'>): string {
  const { seeds, steps, acquisitions, admissions, writeBacks } = counts;
  const seconds = (performance.now() - begunMs) / 1_000;
  return `${seeds} seeds, ${steps} steps, ${acquisitions} acquisitions, ${admissions} admissions, ${writeBacks} leases written back in ${seconds.toFixed(1)} s`;
}

function wholeNumber(name: string, text: string): number {
  const value = Number(text);
  if (Number.isSafeInteger(value) && value >= 0) return value;
  throw new Error(`--${name} must be a whole number: ${text}`);
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}
