import { beforeAll, expect, test } from 'vitest';
import { models } from './models.ts';
import { Tlc } from './tlc.ts';

/** Some models that TLC explores in a few seconds each; `npm run spec` checks all. */
const QUICK = /^(update|put|no loss)\b|^hand-over$/;

let tlc: Tlc;
// On a new machine, this installs TLC, Java and Python.
beforeAll(async () => {
  tlc = await Tlc.fetch();
}, 600_000);

const quick = models.filter(({ name }) => QUICK.test(name));

test.each(quick)('$name', { timeout: 120_000 }, async (model) => {
  expect(await tlc.check(model)).toEqual(model.expected);
});

test('each property of the specifications is violated by some model', () => {
  const violated = models.flatMap(({ expected }) => (expected.holds ? [] : [expected.property]));
  const properties = models.flatMap((model) => [...model.invariants, ...model.properties]);
  expect(new Set(violated)).toEqual(new Set(properties));
});
