import { expect, test } from 'vitest';
import { LATE_MS, PreferredMajority } from './preferred-majority.js';

const NEVER = Number.POSITIVE_INFINITY;

/** All nodes were asked at 0 and voted after these times. A majority had decided at `decidedMs`. */
function after(votedMs: readonly number[], decidedMs: number | null): PreferredMajority {
  const preferred = new PreferredMajority(votedMs.length);
  expect(preferred.choose(0)).toBe(preferred.all);
  for (const [node, ms] of votedMs.entries()) {
    if (ms === NEVER) continue;
    preferred.voted(node, ms, decidedMs !== null && ms > decidedMs ? decidedMs : null);
  }
  return preferred;
}

test.each([
  [1, [0]],
  [2, [0, 1]],
  [3, [0, 1]],
  [4, [0, 1, 2]],
  [5, [0, 1, 2]],
])('of %i nodes, the first majority by name is asked alone, for a second', (count, chosen) => {
  const preferred = after(Array(count).fill(1), 1);
  expect(preferred.choose(1)).toEqual(chosen);
  expect(preferred.choose(999)).toEqual(chosen);
  expect(preferred.choose(1_000)).toBe(preferred.all);
  expect(preferred.choose(1_001)).toEqual(chosen);
});

test.each([
  ['all vote soon', [0.5, 1, 1.2, 0.6, 1.5], 1.2, [0, 1, 2]],
  ['one is slow', [0.5, 1, 8, 0.6, 1.5], 1, [0, 1, 3]],
  ['one is slow, but no more than others', [0.5, 1, 8, 0.6, 1.5], 3, [0, 1, 2]],
  ['one is late', [0.5, 1, LATE_MS, 0.6, 1.5], 1, [0, 1, 3]],
  ['one never votes', [0.5, 1, NEVER, 0.6, 1.5], 1, [0, 1, 3]],
  ['too few are in time', [0.5, 1, NEVER, NEVER, 30], 30, [0, 1, 2, 3, 4]],
])(
  'the next acquisition asks the nodes that voted in time: %s',
  (_, votedMs, decidedMs, chosen) => {
    expect(after(votedMs, decidedMs).choose(1)).toEqual(chosen);
  },
);

test('a node that misses a vote is left out until it votes in time', () => {
  const preferred = after([1, 1, 1, 1, 1], 1);
  preferred.missed(1);
  expect(preferred.choose(1)).toEqual([0, 2, 3]);
  preferred.voted(1, LATE_MS, null);
  expect(preferred.choose(1)).toEqual([0, 2, 3]);
  preferred.voted(1, 1, null);
  expect(preferred.choose(1)).toEqual([0, 1, 2]);
});
