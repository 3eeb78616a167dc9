import { parseArgs } from 'node:util';
import { readCommandLine } from '@fenced/testbed/command-line';
import { Coq, gaps, THEOREMS } from './coq.ts';
import { variants } from './variants.ts';

const USAGE = `npm run proof [-- --only TEXT]

Checks the proof in spec/proof/ with Coq. Each theorem must rest on nothing but its own hypotheses.
Without any one of the protective steps or assumptions of test/proof/variants.ts, the proof must
fail: in the proof of a lemma, not in a definition.

  --only TEXT   variants whose names contain this; - for none

Exit code: 0 all verdicts are as expected; 1 otherwise.`;

const CLOSED = 'Closed under the global context';

const { only } = readCommandLine(USAGE, () => {
  const { values } = parseArgs({ options: { only: { type: 'string', default: '' } } });
  return values;
});

await using coq = await Coq.install();
const begunMs = performance.now();
const failure = await coq.compile();
if (failure !== null) throw new Error(failure.message);
const compiledMs = performance.now() - begunMs;
say(`The proof compiles in ${seconds(compiledMs)} s.`, '');
for (const word of await gaps()) expect(false, `the proof contains the word ${word}`);

say('| theorem | rests on |', '|---|---|');
for (const theorem of THEOREMS) {
  const found = await coq.assumptions(theorem);
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
