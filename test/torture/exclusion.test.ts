import { expect, test } from 'vitest';
import { Random } from '../simulation/random.ts';
import { describeOverlap, firstOverlap, judgeExclusion } from './exclusion.ts';
import { EXCLUSION_FAULTS, FAULT_KINDS } from './faults.ts';
import type { Operation } from './history.ts';
import { plantOverlap } from './plant.ts';
import { verdictOf } from './verdict.ts';

const MS = 1_000_000;

function operation(
  process: string,
  kind: Operation['kind'],
  times: { readonly callMs: number; readonly returnMs: number; readonly untilMs?: number },
  token = 1,
): Operation {
  const { callMs, returnMs, untilMs } = times;
  return {
    process,
    kind,
    object: 'lock/r',
    outcome: 'ok',
    token: `${token}`,
    callNs: callMs * MS,
    returnNs: returnMs * MS,
    ...(untilMs !== undefined && { untilNs: untilMs * MS }),
  };
}
const acquire = (process: string, callMs: number, untilMs: number, token = 1) =>
  operation(process, 'acquire', { callMs, returnMs: callMs + 1, untilMs }, token);
const release = (process: string, callMs: number) =>
  operation(process, 'release', { callMs, returnMs: callMs + 1 });
/** An operation on another lock, which shows that the process was alive. */
const alive = (process: string, callMs: number): Operation => ({
  ...operation(process, 'read', { callMs, returnMs: callMs + 1 }),
  object: 's3/r',
});
const refused = (process: string, callMs: number): Operation => ({
  ...operation(process, 'acquire', { callMs, returnMs: callMs + 1 }),
  outcome: 'refused',
});

test.each<[string, Operation[]]>([
  [
    'a lease is granted while another lasts',
    [acquire('a', 0, 300), alive('a', 400), acquire('b', 100, 400, 2), alive('b', 500)],
  ],
  [
    'an extended lease lasts when another is granted',
    [
      acquire('a', 0, 300),
      operation('a', 'extend', { callMs: 200, returnMs: 210, untilMs: 500 }),
      alive('a', 600),
      acquire('b', 310, 600, 2),
      alive('b', 700),
    ],
  ],
  [
    'a lease is granted just before the release of another is called',
    [acquire('a', 0, 300), release('a', 102), acquire('b', 100, 400, 2), alive('b', 500)],
  ],
])('this is no mutual exclusion: %s', (_, history) => {
  const judged = judgeExclusion(history);
  expect(judged.verdict).toBe('violated');
  expect(judged.overlaps).toHaveLength(1);
  const shown = firstOverlap(judged.overlaps);
  expect(judgeExclusion(shown).overlaps.map(describeOverlap)).toEqual(
    judged.overlaps.map(describeOverlap),
  );
});

test.each<[string, Operation[]]>([
  ['the first lease is over', [acquire('a', 0, 300), alive('a', 400), acquire('b', 300, 600, 2)]],
  [
    'the first lease was released',
    [acquire('a', 0, 300), release('a', 50), acquire('b', 60, 300, 2)],
  ],
  [
    'the first process may have ended before',
    [acquire('a', 0, 300), alive('a', 50), acquire('b', 100, 400, 2)],
  ],
  [
    'the holder was told that its extension failed',
    [
      acquire('a', 0, 300),
      { ...operation('a', 'extend', { callMs: 50, returnMs: 60 }), outcome: 'refused' },
      alive('a', 400),
      acquire('b', 100, 400, 2),
      alive('b', 500),
    ],
  ],
  [
    'the locks are different',
    [acquire('a', 0, 300), alive('a', 400), { ...acquire('b', 9, 300), object: 'lock/s' }],
  ],
])('two clients do not certainly hold one lock if %s', (_, history) => {
  expect(judgeExclusion([...history, refused('c', 20)])).toMatchObject({
    verdict: 'ok',
    overlaps: [],
  });
});

test('an overlap shorter than the clock error is none, and one above it is', () => {
  const heldUntil = (untilNs: number): Operation[] => [
    { ...acquire('a', 0, 300), untilNs },
    alive('a', 400),
    acquire('b', 100, 400, 2),
    alive('b', 500),
  ];
  const grantedNs = 101 * MS;
  expect(judgeExclusion(heldUntil(grantedNs + 1_000)).overlaps).toEqual([]);
  expect(judgeExclusion(heldUntil(grantedNs + 1_001)).overlaps).toHaveLength(1);
});

test('the verdict is `unknown` if nobody else tried to get a held lock', () => {
  const history = [acquire('a', 0, 300), release('a', 50), acquire('b', 60, 300, 2)];
  expect(judgeExclusion(history)).toMatchObject({ verdict: 'unknown', contests: 0 });
  expect(judgeExclusion([...history, refused('a', 40)])).toMatchObject({ verdict: 'unknown' });
  expect(judgeExclusion([...history, refused('c', 40)])).toMatchObject({
    verdict: 'ok',
    contests: 1,
  });
});

test('mutual exclusion is judged only if no fault of the run may break it', () => {
  const history = [
    acquire('a', 0, 300),
    alive('a', 400),
    acquire('b', 100, 400, 2),
    alive('b', 500),
  ];
  const fault = (kind: string) => ({ kind, target: 'n0', fromNs: 0, toNs: MS });
  const under = (...kinds: string[]) => verdictOf({ history, faults: kinds.map(fault) });
  expect(under('node-kill', 'client-clock').exclusion).toMatchObject({ verdict: 'violated' });
  expect(under('node-kill', 'node-clock')).toMatchObject({ exclusion: null, sharedLeases: 1 });
  expect(FAULT_KINDS.filter((kind) => !EXCLUSION_FAULTS.includes(kind)).toSorted()).toEqual([
    ...['node-clock', 'node-failover', 'node-replica', 'node-split', 'node-split-late'],
    ...['node-split-readmit', 'node-split-slow', 'node-split-wipe'],
  ]);
});

test('an overlap is planted if a lock had two holders, and the judge finds it', () => {
  const random = new Random(1, 'overlaps');
  const turns = Array.from({ length: 50 }, (_, at) => [
    acquire(`c${at % 3}`, at * 100, at * 100 + 90, at + 1),
    release(`c${at % 3}`, at * 100 + 20 + random.below(60)),
  ]).flat();
  expect(judgeExclusion(turns).overlaps).toEqual([]);
  for (let time = 0; time < 50; time += 1) {
    const planted = plantOverlap(turns, random);
    expect(planted && judgeExclusion(planted).verdict).toBe('violated');
  }
  expect(plantOverlap(turns.slice(0, 2), random)).toBe(null);
});
