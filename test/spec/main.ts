import { isDeepStrictEqual, parseArgs } from 'node:util';
import { readCommandLine, UsageError } from '@fenced/testbed/command-line';
import { mutantNamed } from '../simulation/mutant-list.ts';
import { runFromSources } from '../simulation/sources.ts';
import { type Model, models, type Verdict } from './models.ts';
import { Tlc } from './tlc.ts';

const USAGE = `npm run spec -- [--only TEXT] [--workers N]
npm run spec -- --traces N [--seed N] [--mutant NAME]

Checks the specifications in spec/ with TLC, the model checker of TLA+. Each model has a verdict that
it must reach: the protocol holds, and without one of its protective steps a property is violated.

  --only TEXT   models whose names contain this
  --workers N   models that are checked at the same time (2)

With --traces, TLC checks N traces of the simulation instead. It must accept each of them, and refuse
each after one alteration.

  --seed N        seed of the first world (20251121)
  --mutant NAME   a mutant of test/simulation/mutant-list.ts, run in place of the code: TLC must
                  refuse some traces

Exit code: 0 all verdicts are as expected; 1 otherwise.`;

const { only, workers, traces, seed, mutant } = readCommandLine(USAGE, () => {
  const { values } = parseArgs({
    options: {
      only: { type: 'string', default: '' },
      workers: { type: 'string', default: '2' },
      traces: { type: 'string', default: '0' },
      seed: { type: 'string', default: '20251121' },
      mutant: { type: 'string' },
    },
  });
  const [workers, traces, seed] = [values.workers, values.traces, values.seed].map(wholeNumber);
  const mutant = values.mutant === undefined ? null : mutantNamed(values.mutant);
  return { only: values.only, workers, traces, seed, mutant };
});

const tlc = await Tlc.fetch();
const waiting = models.filter(({ name }) => name.includes(only));
if (traces) await checkTraces(traces, seed ?? 0);
else {
  say('| model | verdict | seconds |', '|---|---|---|');
  await Promise.all(Array.from({ length: workers ?? 1 }, checkNext));
}

async function checkTraces(count: number, firstSeed: number): Promise<void> {
  runFromSources(mutant?.patch ? [mutant.patch] : []);
  const { reportTraces } = await import('./trace-report.ts');
  const flaws = new Set(mutant?.flaw ? [mutant.flaw] : []);
  const isExpected = await reportTraces(tlc, {
    count,
    firstSeed,
    flaws,
    isMutant: mutant !== null,
  });
  if (!isExpected) process.exitCode = 1;
}

function wholeNumber(text: string): number {
  const value = Number(text);
  if (Number.isSafeInteger(value) && value >= 0) return value;
  throw new UsageError(`this must be a whole number: ${text}`);
}

async function checkNext(): Promise<void> {
  for (let model = waiting.shift(); model; model = waiting.shift()) await check(model);
}

async function check(model: Model): Promise<void> {
  const begunMs = performance.now();
  const verdict = await tlc.check(model);
  const seconds = ((performance.now() - begunMs) / 1_000).toFixed(1);
  const isExpected = isDeepStrictEqual(verdict, model.expected);
  const expected = isExpected ? '' : `; EXPECTED ${phrase(model.expected)}`;
  say(`| ${model.name} | ${phrase(verdict)}${expected} | ${seconds} |`);
  if (!isExpected) process.exitCode = 1;
}

function phrase(verdict: Verdict): string {
  return verdict.holds
    ? `holds in ${verdict.states} states`
    : `violates ${verdict.property} in ${verdict.steps} steps`;
}

function say(...lines: readonly string[]): void {
  for (const line of lines) process.stdout.write(`${line}\n`);
}
