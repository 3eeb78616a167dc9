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
