import { expect, test } from 'vitest';
import { FirstAsked } from './first-asked.js';

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
    const all = [...Array(count).keys()];
    expect([...majority, ...first.rest]).toEqual(all);
    expect(first.choose(5)).toEqual(all);
    first.trust(5);
    expect(first.choose(5)).toEqual(majority);
    expect(first.choose(1_004)).toEqual(majority);
    expect(first.choose(1_005)).toEqual(all);
  },
);

test('all are asked once a node has not voted', () => {
  const first = new FirstAsked(5);
  first.trust(5);
  first.doubt();
  expect(first.choose(5)).toEqual([0, 1, 2, 3, 4]);
});

const votedMs = (at: number): number[] => [0.5, 1, at, 0.6, 1.5];

test.each([
  ['all vote soon', votedMs(1.2), 1.2, true],
  ['one of the first is slow', votedMs(8), 1, false],
  ['one of the first is slow, but no more than others', votedMs(8), 3, true],
  ['one is late', votedMs(20), 15, false],
  ['nothing was decided by the last vote', votedMs(15), null, true],
])('they are trusted or not where %s', (_, times, decidedMs, isTrusted) => {
  const first = new FirstAsked(5);
  const probe = first.probe(100);
  for (const [index, ms] of [...times.entries()].sort(([, a], [, b]) => a - b)) {
    if (decidedMs !== null && ms >= decidedMs) probe.decided(100 + decidedMs);
    probe.voted(index, 100 + ms);
  }
  expect(first.choose(130)).toHaveLength(isTrusted ? 3 : 5);
});

test('no node is trusted before all have voted', () => {
  const first = new FirstAsked(5);
  const probe = first.probe(0);
  for (const index of [0, 1, 2, 4]) probe.voted(index, 1);
  expect(first.choose(2)).toHaveLength(5);
});
