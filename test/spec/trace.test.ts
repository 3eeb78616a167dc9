import { beforeAll, expect, test } from 'vitest';
import { altered } from './alterations.ts';
import { Tlc } from './tlc.ts';
import { Rosters } from './trace.ts';
import { check, record } from './trace-check.ts';

// `npm run spec -- --traces 1000` checks more.
const FIRST_SEED = 20_251_121;
const TRACES = 20;

let tlc: Tlc;
beforeAll(async () => {
  tlc = await Tlc.fetch();
}, 600_000);

test('TLC accepts the traces of the simulation, and refuses altered ones and those of a mutant', {
  timeout: 300_000,
}, async () => {
  const rosters = new Rosters();
  const traces = await record(FIRST_SEED, TRACES, rosters);
  const changed = altered(traces);
  expect(changed.length).toBe(TRACES);
  const flawed = await record(FIRST_SEED, 2, rosters, new Set(['floor-not-restored']));
  const verdicts = await check(tlc, [...traces, ...changed, ...flawed], rosters);

  const refused = verdicts.filter(({ refusedAt }) => refusedAt !== null);
  expect(refused.filter(({ trace }) => traces.includes(trace))).toEqual([]);
  const early = changed.filter((one) => {
    const at = verdicts.find(({ trace }) => trace === one)?.refusedAt ?? null;
    return at === null || at < one.alteredAt;
  });
  expect(early).toEqual([]);
  expect(refused.some(({ trace }) => flawed.includes(trace))).toBe(true);

  // All actions and alterations must occur. Otherwise the test would show little.
  const done = new Set(traces.flatMap(({ events }) => events.map((event) => event.do)));
  const actions =
    'begin acquire confirm backfill win refuse restart forget inspect plan promise decide admit';
  expect([...done]).toEqual(expect.arrayContaining(actions.split(' ')));
  expect(new Set(changed.map(({ alteration }) => alteration)).size).toBe(5);
});
