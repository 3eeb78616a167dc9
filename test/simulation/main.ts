import { appendFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { describeMachine } from '@fenced/testbed';
import { readCommandLine, UsageError } from '@fenced/testbed/command-line';
import type { RecordedSimulation } from '../torture/report.ts';
import { type Exploration, explore } from './exploration.ts';

const USAGE = `npm run simulate -- [--seeds N] [--workers N] [--seed N] [--without PLACES] [--mutant NAME] [--moves] [--short]
                    [--readmissions] [--record FILE]

Runs the lock's own code in simulated worlds, until an invariant is violated.

  --seeds N          number of worlds (10000)
  --workers N        number of threads (1)
  --seed N           seed of the first world (the time of day)
  --without PLACES   faults to leave out, by place, with commas between; plays one world
  --mutant NAME      a mutant of test/simulation/mutant-list.ts, run in place of the code
  --moves            worlds in which the locks move to another node set
  --short            short worlds with few clients and faults: many more of them in the same time
  --readmissions     worlds of five nodes that clients readmit from different majorities
  --record FILE      adds the numbers to the runs of a report: docs/report/simulations.jsonl

Exit code: 0 no violation; 1 a violation, with the command that plays it again.`;

const { firstSeed, without, count, workers, mutant, moves, short, readmissions, record } =
  readCommandLine(USAGE, () => {
    const { values } = parseArgs({
      options: {
        seeds: { type: 'string', default: '10000' },
        workers: { type: 'string', default: '1' },
        seed: { type: 'string', default: String(Date.now()) },
        without: { type: 'string' },
        mutant: { type: 'string' },
        moves: { type: 'boolean', default: false },
        short: { type: 'boolean', default: false },
        readmissions: { type: 'boolean', default: false },
        record: { type: 'string' },
      },
    });
    const without = values.without?.split(',').filter(Boolean).map(Number) ?? null;
    return {
      firstSeed: wholeNumber('seed', values.seed),
      without,
      count: wholeNumber('seeds', without ? '1' : values.seeds),
      workers: wholeNumber('workers', values.workers),
      mutant: values.mutant ?? null,
      moves: values.moves,
      short: values.short,
      readmissions: values.readmissions,
      record: values.record,
    };
  });
const begunMs = performance.now();

say(`seeds ${firstSeed} to ${firstSeed + count - 1}`);
let toldMs = begunMs;
const result = await explore({
  firstSeed,
  count,
  workers,
  mutant,
  without,
  moves,
  short,
  readmissions,
  onProgress: (counts) => {
    if (performance.now() - toldMs < 10_000) return;
    toldMs = performance.now();
    say(summary(counts));
  },
});
say(summary(result));
if (result.finding) {
  const { seed, violation, without: left, trace } = result.finding;
  const ofMutant = `${moves ? ' --moves' : ''}${short ? ' --short' : ''}${readmissions ? ' --readmissions' : ''}${mutant === null ? '' : ` --mutant '${mutant}'`}`;
  say(['', ...trace, '', `seed ${seed}: ${violation}`].join('\n'));
  say(`again: npm run simulate -- --seed ${seed} --without ${left.join(',') || ','}${ofMutant}`);
  process.exitCode = 1;
}
if (record !== undefined) {
  const { finding, ...counts } = result;
  const { date, commit } = await describeMachine({});
  const seconds = Math.round((performance.now() - begunMs) / 1_000);
  const violation = finding?.violation ?? null;
  const kind = readmissions
    ? 'readmissions'
    : `${short ? 'short' : 'long'}${moves ? ', moves' : ''}`;
  const line: RecordedSimulation = { date, commit, kind, firstSeed, ...counts, seconds, violation };
  await appendFile(record, `${JSON.stringify(line)}\n`);
}

function summary(counts: Omit<Exploration, 'finding'>): string {
  const { seeds, steps, acquisitions, readmissions, writeBacks, excepted } = counts;
  const handOvers = `${counts.handOvers} hand-overs, ${counts.handOversBeside} of them while a node had no vote`;
  const ofMoves = moves
    ? `, ${counts.moves} moves, ${counts.carried} leases extended after one`
    : '';
  const seconds = (performance.now() - begunMs) / 1_000;
  return `${seeds} seeds, ${steps} steps, ${acquisitions} acquisitions, ${readmissions} readmissions, ${writeBacks} leases written back${ofMoves}, ${handOvers}, ${excepted} excepted extensions in ${seconds.toFixed(1)} s`;
}

function wholeNumber(name: string, text: string): number {
  const value = Number(text);
  if (Number.isSafeInteger(value) && value >= 0) return value;
  throw new UsageError(`--${name} must be a whole number: ${text}`);
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}
