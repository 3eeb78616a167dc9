import { expect, test } from 'vitest';
import { FirstAsked, PATIENCE_MS } from './first-asked.js';

const all = [0, 1, 2, 3, 4];

test.each([
  [1, [0]],
  [2, [0, 1]],
  [3, [0, 1]],
  [4, [0, 1, 2]],
  [5, [0, 1, 2]],
])(
  'of %i nodes a majority is asked first, for a second after all have voted',
  (count, majority) => {
    const first = new FirstAsked(count);
    expect(first.choose(5)).toBe(first.all);
    const probe = first.probe(5);
    for (const index of first.all) probe?.heard(index, true, 6);
    expect(first.choose(6)).toEqual(majority);
    expect(first.choose(1_004)).toEqual(majority);
    expect(first.choose(1_005)).toBe(first.all);
  },
);

test.each([
  ['one of them has not voted, or some node is late', undefined, 1, 5],
  ['one of them has not voted', 1, 1, 5],
  ['one that was left out has not voted', 3, 1, 3],
])('all are asked, or not, once %s', (_, index, nowMs, count) => {
  const first = new FirstAsked(5);
  first.trust([0, 1, 2], 0);
  first.doubt(index);
  expect(first.choose(nowMs)).toHaveLength(count);
});

const votedMs = (at: number): number[] => [0.5, 1, at, 0.6, 1.5];
const NEVER = Number.POSITIVE_INFINITY;

test.each([
  ['all vote soon', votedMs(1.2), 1.2, [0, 1, 2]],
  ['one of the first is slow', votedMs(8), 1, all],
  ['one of the first is slow, but no more than others', votedMs(8), 3, [0, 1, 2]],
  ['one is late', votedMs(20), 1, [0, 1, 3]],
  ['one never votes', votedMs(NEVER), 1, [0, 1, 3]],
  ['too few are in time', [0.5, 1, NEVER, NEVER, 30], 30, all],
  ['nothing was decided by the last vote', votedMs(15), null, [0, 1, 2]],
])('who is asked next where %s', (_, times, decidedMs, chosen) => {
  const first = new FirstAsked(5);
  const probe = first.probe(100);
  for (const [index, ms] of [...times.entries()].sort(([, a], [, b]) => a - b)) {
    if (ms >= PATIENCE_MS) probe?.end();
    if (decidedMs !== null && ms >= decidedMs) probe?.decided(100 + decidedMs);
    if (ms !== NEVER) probe?.heard(index, true, 100 + ms);
  }
  expect(first.choose(130)).toEqual(chosen);
});

test('who refuses to vote is left out at once', () => {
  const first = new FirstAsked(5);
  const probe = first.probe(0);
  for (const index of all) probe?.heard(index, index !== 0, 1);
  expect(first.choose(2)).toEqual([1, 2, 3]);
});

test.each([
  ['soon', 1_900, [0, 1, 2]],
  ['long', 2_000, all],
])(
  'who is asked until it is shown whom to trust next, %s after the last were',
  (_, nowMs, chosen) => {
    const first = new FirstAsked(5);
    first.trust([0, 1, 2], 0);
    const probe = first.probe(nowMs);
    expect(first.choose(nowMs + PATIENCE_MS - 1)).toEqual(chosen);
    expect(first.choose(nowMs + PATIENCE_MS)).toBe(first.all);
    for (const index of all) probe?.heard(index, true, nowMs + (index === 0 ? 10 : 1));
    expect(first.choose(nowMs + PATIENCE_MS - 1)).toEqual([0, 1, 2]);
  },
);

test('nobody is trusted any more who was too slow when all were asked', () => {
  const first = new FirstAsked(5);
  first.trust([0, 1, 2], 0);
  const probe = first.probe(1_000);
  probe?.decided(1_001);
  for (const index of all) probe?.heard(index, true, index === 0 ? 1_010 : 1_001);
  expect(first.choose(1_011)).toBe(first.all);
});

test('no node is trusted before all have voted, or were given time to', () => {
  const first = new FirstAsked(5);
  const probe = first.probe(0);
  for (const index of [0, 1, 2, 4]) probe?.heard(index, true, 1);
  expect(first.choose(2)).toBe(first.all);
  expect(first.probe(2)).toBeNull();
  probe?.end();
  expect(first.choose(3)).toEqual([0, 1, 2]);
  expect(first.probe(3)).not.toBeNull();
});
