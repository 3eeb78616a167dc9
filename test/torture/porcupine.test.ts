import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { GO, installed } from '@fenced/testbed';
import { beforeAll, expect, test } from 'vitest';
import { Random } from '../simulation/random.ts';
import type { Operation } from './history.ts';
import { toJsonLines } from './json-lines.ts';
import { judge } from './judge.ts';
import { alter, PLANTS, plant } from './plant.ts';
import { porcupine } from './porcupine.ts';
import { syntheticHistory } from './synthetic.ts';

const seed = Number(process.env.FENCED_SEED ?? 1);
/** The longest time for a history that took a minute or more before anything was left out. */
const LIMIT_MS = 5_000;
const folder = mkdtempSync(join(tmpdir(), 'fenced-porcupine-'));
beforeAll(() => installed(GO));

function fileOf(name: string, history: readonly Operation[]): string {
  const file = join(folder, `${name}.jsonl`);
  writeFileSync(file, toJsonLines(history));
  return file;
}

function judged(history: readonly Operation[]): readonly string[] {
  return judge(history)
    .map(({ object }) => object)
    .sort();
}

/** A grain of times, and the number of values. Values repeat, and calls begin at other returns. */
const GRAIN_NS = 100;
const VALUES = 4;

/** The same history with times and values that coincide. */
function coarse(history: readonly Operation[]): readonly Operation[] {
  const pooled = (value: string | null): string | null =>
    value && `v${Number(value.slice(1)) % VALUES}`;
  return history.map((one) => ({
    ...one,
    callNs: GRAIN_NS * Math.floor(one.callNs / GRAIN_NS),
    returnNs: one.returnNs === null ? null : GRAIN_NS * Math.ceil(one.returnNs / GRAIN_NS),
    ...(one.value !== undefined && { value: pooled(one.value) }),
    ...(one.from !== undefined && { from: pooled(one.from) }),
  }));
}

test('what is left out changes no verdict about 20,000 short histories with random changes', {
  timeout: 120_000,
}, async () => {
  const random = new Random(seed, 'short histories');
  const histories = Array.from({ length: 20_000 }, (_, at) => {
    const options = { operations: 4 + random.below(10), unknown: 1 + random.below(3) };
    const history = syntheticHistory(random, options);
    const changed = alter(alter(at % 2 === 0 ? history : coarse(history), random), random);
    return changed.map((operation) => ({ ...operation, object: `s3/${at}` }));
  });
  const all = histories.flat();
  const file = fileOf('short', all);
  const [pruned] = await porcupine([file]);
  const [complete] = await porcupine([file], false);
  expect(pruned).toMatchObject({ violated: complete?.violated, undecided: [] });
  expect(judged(all)).toEqual(pruned?.violated);
  expect(pruned?.violated.length).toBeGreaterThan(1_000);
  expect(pruned?.violated.length).toBeLessThan(18_000);
});

/** Correct histories that wrong prunings convict, though few random histories are like them. */
const RARE: Readonly<Record<string, readonly Omit<Operation, 'process' | 'object'>[]>> = {
  'a refused update names a value that an unknown write never stored': [
    {
      kind: 'update',
      callNs: 1,
      returnNs: 4,
      token: '1',
      value: 'v1',
      from: 'v2',
      outcome: 'refused',
      highest: '2',
    },
    { kind: 'update', callNs: 2, returnNs: null, value: 'v2', from: 'v3', outcome: 'unknown' },
    { kind: 'put', callNs: 3, returnNs: 5, token: '2', value: 'v4', outcome: 'ok' },
  ],
  'an unknown claim is sent when its token is reported': [
    { kind: 'claim', callNs: 1, returnNs: 2, token: '1', outcome: 'refused', highest: '2' },
    { kind: 'claim', callNs: 2, returnNs: null, token: '2', outcome: 'unknown' },
  ],
};

test.each(Object.entries(RARE))('%s: both judges accept that', async (name, operations) => {
  const history = operations.map((one, at) => ({ process: `c${at}`, object: 's3/r', ...one }));
  const [verdict] = await porcupine([fileOf(name, history)]);
  expect(verdict?.violated).toEqual([]);
  expect(judged(history)).toEqual([]);
});

test('histories of 150 operations, of which 22 are unknown, are decided within seconds', async () => {
  const random = new Random(seed, 'many unknown outcomes');
  const histories = Array.from({ length: 10 }, () =>
    syntheticHistory(random, { operations: 150, unknown: 22 }),
  );
  const kinds = Object.keys(PLANTS).filter((kind) => kind !== 'token not above');
  const planted = histories.flatMap((history) =>
    kinds.flatMap((kind) => [plant(history, kind, random) ?? []]),
  );
  expect(planted.filter(({ length }) => length > 0)).toHaveLength(10 * kinds.length);
  const verdicts = await porcupine(
    [...histories, ...planted].map((history, at) => fileOf(`${at}`, history)),
  );
  const violated = verdicts.map((verdict) => verdict.violated.length);
  expect(violated).toEqual([...histories.map(() => 0), ...planted.map(() => 1)]);
  expect(verdicts.flatMap(({ undecided }) => undecided)).toEqual([]);
  expect(Math.max(...verdicts.map(({ ms }) => ms))).toBeLessThan(LIMIT_MS);
  expect([...histories, ...planted].map((history) => judge(history).length)).toEqual(violated);
});
