import { afterAll, beforeAll, expect, test } from 'vitest';
import { Rosters } from '../spec/trace.ts';
import { Coq, RUN_FILES } from './coq.ts';
import { verdictsOn } from './coq-traces.ts';
import { changed } from './trace-changes.ts';
import { record } from './worlds.ts';

// `npm run proof -- --traces 1000` checks more.
const FIRST_SEED = 20_251_121;
const TRACES = 40;

let coq: Coq;
// On a new machine, this installs Coq.
beforeAll(async () => {
  coq = await Coq.install();
  expect(await coq.compile(RUN_FILES)).toBeNull();
}, 600_000);

afterAll(() => coq?.[Symbol.asyncDispose]());

test('the proved checker accepts the traces of the simulation, and refuses changed ones and those of a mutant', {
  timeout: 300_000,
}, async () => {
  const rosters = new Rosters();
  const traces = await record(FIRST_SEED, TRACES, rosters);
  const wrong = changed(traces, rosters);
  const flawed = await record(FIRST_SEED, 2, rosters, new Set(['floor-not-restored']));
  const verdicts = await verdictsOn(coq, [...traces, ...wrong, ...flawed], rosters);

  const refused = verdicts.filter(({ refusedAt }) => refusedAt !== null);
  expect(refused.filter(({ trace }) => traces.includes(trace))).toEqual([]);
  const early = wrong.filter((one) => {
    const at = verdicts.find(({ trace }) => trace === one)?.refusedAt ?? null;
    return at === null || at < one.changedAt;
  });
  expect(early).toEqual([]);
  expect(refused.some(({ trace }) => flawed.includes(trace))).toBe(true);

  // All actions and changes must occur. Otherwise the test would show little.
  const done = new Set(traces.flatMap(({ events }) => events.map((event) => event.do)));
  const actions = 'begin acquire confirm backfill win forget inspect plan promise decide admit';
  expect([...done]).toEqual(expect.arrayContaining(actions.split(' ')));
  expect(new Set(wrong.map(({ change }) => change)).size).toBe(13);
});
