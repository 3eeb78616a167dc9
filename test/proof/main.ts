import { parseArgs } from 'node:util';
import { readCommandLine, UsageError } from '@fenced/testbed/command-line';
import { mutantNamed } from '../simulation/mutant-list.ts';
import { runFromSources } from '../simulation/sources.ts';
import { Coq, gaps, RUN_FILES } from './coq.ts';
import { variants } from './variants.ts';

const USAGE = `npm run proof [-- --only TEXT]
npm run proof -- --traces N [--seed N] [--mutant NAME]

Checks the proof in spec/proof/ with Coq. Each theorem must rest on nothing but its own hypotheses.
Without any one of the protective steps or assumptions of test/proof/variants.ts, the proof must
fail: in the proof of a lemma, not in a definition.

  --only TEXT   variants whose names contain this; - for none

With --traces, the checker that the proof covers judges N traces of the simulation instead. It must
accept each of them, and refuse each after one change.

  --seed N        seed of the first world (20251121)
  --mutant NAME   a mutant of test/simulation/mutant-list.ts, run in place of the code: the checker
                  must refuse some traces

Exit code: 0 all verdicts are as expected; 1 otherwise.`;

const CLOSED = 'Closed under the global context';

const { only, traces, seed, mutant } = readCommandLine(USAGE, () => {
  const { values } = parseArgs({
    options: {
      only: { type: 'string', default: '' },
      traces: { type: 'string', default: '0' },
      seed: { type: 'string', default: '20251121' },
      mutant: { type: 'string' },
    },
  });
  const [traces, seed] = [wholeNumber(values.traces), wholeNumber(values.seed)];
  const mutant = values.mutant === undefined ? null : mutantNamed(values.mutant);
  return { only: values.only, traces, seed, mutant };
});

await using coq = await Coq.install();
if (traces > 0) await checkTraces();
else await checkProof();

async function checkTraces(): Promise<void> {
  const failure = await coq.compile(RUN_FILES);
  if (failure !== null) throw new Error(failure.message);
  runFromSources(mutant?.patch ? [mutant.patch] : []);
  const { reportTraces } = await import('./trace-report.ts');
  const flaws = new Set(mutant?.flaw ? [mutant.flaw] : []);
  const options = { count: traces, firstSeed: seed, flaws, isMutant: mutant !== null };
  if (!(await reportTraces(coq, options))) process.exitCode = 1;
}

async function checkProof(): Promise<void> {
  const begunMs = performance.now();
  const failure = await coq.compile();
  if (failure !== null) throw new Error(failure.message);
  const compiledMs = performance.now() - begunMs;
  say(`The proof compiles in ${seconds(compiledMs)} s.`, '');
  for (const word of await gaps()) expect(false, `the proof contains the word ${word}`);

  say('| theorem | rests on |', '|---|---|');
  for (const [theorem, found] of await coq.assumptions()) {
    expect(found === CLOSED, `| ${theorem} | ${found === CLOSED ? 'its own hypotheses' : found} |`);
  }

  say('', '| variant | the proof fails in | seconds |', '|---|---|---|');
  for (const variant of variants.filter(({ name }) => name.includes(only))) {
    const begunMs = performance.now();
    const failure = await coq.compileVariant(variant);
    const found = failure === null ? 'nothing: UNEXPECTED' : (failure.lemma ?? failure.message);
    const ms = performance.now() - begunMs;
    expect(failure?.lemma != null, `| ${variant.name} | ${found} | ${seconds(ms)} |`);
  }
}

function wholeNumber(text: string): number {
  const value = Number(text);
  if (Number.isSafeInteger(value) && value >= 0) return value;
  throw new UsageError(`this must be a whole number: ${text}`);
}

function seconds(ms: number): string {
  return (ms / 1_000).toFixed(1);
}

function expect(isExpected: boolean, line: string): void {
  say(line);
  if (!isExpected) process.exitCode = 1;
}

function say(...lines: readonly string[]): void {
  for (const line of lines) process.stdout.write(`${line}\n`);
}
