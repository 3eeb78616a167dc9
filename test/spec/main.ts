import { isDeepStrictEqual, parseArgs } from 'node:util';
import { readCommandLine } from '@fenced/testbed/command-line';
import { type Model, models, type Verdict } from './models.ts';
import { Tlc } from './tlc.ts';

const USAGE = `npm run spec -- [--only TEXT] [--workers N]

Checks the specifications in spec/ with TLC, the model checker of TLA+. Each model has a verdict that
it must reach: the protocol holds, and without one of its protective steps a property is violated.

  --only TEXT   models whose names contain this
  --workers N   models that are checked at the same time (2)

Exit code: 0 all verdicts are as expected; 1 otherwise.`;

const { only, workers } = readCommandLine(USAGE, () => {
  const { values } = parseArgs({
    options: { only: { type: 'string' }, workers: { type: 'string', default: '2' } },
  });
  return { only: values.only ?? '', workers: Number(values.workers) };
});

const tlc = await Tlc.fetch();
const waiting = models.filter(({ name }) => name.includes(only));
say('| model | verdict | seconds |', '|---|---|---|');
await Promise.all(Array.from({ length: workers }, checkNext));

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
