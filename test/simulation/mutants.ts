import { parseArgs } from 'node:util';
import { readCommandLine } from '@fenced/testbed/command-line';
import { explore } from './exploration.ts';
import { mutants } from './mutant-list.ts';

const FIRST_SEED = 20_251_121;

const USAGE = `npm run mutants -- [--seeds N] [--workers N]

Removes one protective step at a time, and counts the worlds until the simulation notices.

  --seeds N     worlds for a mutant that is expected to survive (3000); ten times as many for others
  --workers N   number of threads (1)

Exit code: 0 each mutant was killed, or its survival is explained; 1 otherwise.`;

const { values } = readCommandLine(USAGE, () =>
  parseArgs({
    options: {
      seeds: { type: 'string', default: '3000' },
      workers: { type: 'string', default: '1' },
    },
  }),
);

process.stdout.write('| mutant | killed after | by |\n|---|---|---|\n');
for (const { name, excuse, moves } of mutants) {
  const result = await explore({
    firstSeed: FIRST_SEED,
    count: Number(values.seeds) * (excuse === undefined ? 10 : 1),
    workers: Number(values.workers),
    mutant: name,
    without: null,
    moves: moves ?? false,
    short: false,
    readmissions: false,
  });
  const { seeds, finding } = result;
  const fate = finding ? `${seeds} seeds` : `survived ${seeds} seeds`;
  const by = finding?.violation ?? excuse ?? 'UNEXPLAINED';
  process.stdout.write(`| ${name} | ${fate} | ${by} |\n`);
  if (!finding && excuse === undefined) process.exitCode = 1;
}
