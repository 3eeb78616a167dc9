// npm run mutants: takes one protective step away at a time, and counts the worlds until the simulation notices.
import { parseArgs } from 'node:util';
import { explore } from './exploration.ts';
import { mutants } from './mutant-list.ts';

const FIRST_SEED = 20_251_121;

const { values } = parseArgs({
  options: {
    /** How many worlds a mutant with an excuse gets to survive. The others must not survive ten times as many. */
    seeds: { type: 'string', default: '3000' },
    workers: { type: 'string', default: '1' },
  },
});

process.stdout.write('| mutant | killed after | by |\n|---|---|---|\n');
for (const { name, excuse } of mutants) {
  const result = await explore({
    firstSeed: FIRST_SEED,
    count: Number(values.seeds) * (excuse === undefined ? 10 : 1),
    workers: Number(values.workers),
    mutant: name,
    without: null,
  });
  const { seeds, finding } = result;
  const fate = finding ? `${seeds} seeds` : `survived ${seeds} seeds`;
  const by = finding?.violation ?? excuse ?? 'UNEXPLAINED';
  process.stdout.write(`| ${name} | ${fate} | ${by} |\n`);
  if (!finding && excuse === undefined) process.exitCode = 1;
}
