import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type Acquisition, judge } from './harness/redlock-history.js';

const acquisition = (
  askedMs: number,
  heldMs: number,
  token: number,
  ...resources: string[]
): Acquisition => ({
  client: 'one',
  resources: resources.length > 0 ? resources : ['x'],
  askedMs,
  heldMs,
  token: BigInt(token),
});

test('tokens that grow are good, in whatever order the histories were merged', () => {
  const history = [acquisition(20, 21, 9), acquisition(0, 1, 7), acquisition(10, 12, 8)];
  expect(judge(history)).toEqual({ verdict: 'grows', acquisitions: 3 });
});

test('an empty history shows nothing', () => {
  expect(judge([])).toEqual({ verdict: 'unknown' });
});

test.each([
  { world: 'a later holder has a lower token', tokens: [7, 6], why: 'not above' },
  { world: 'a later holder has the same token', tokens: [7, 7], why: 'given twice' },
])('it is a violation where $world', ({ tokens: [first = 0, second = 0], why }) => {
  const [earlier, later] = [acquisition(0, 1, first), acquisition(2, 3, second)];
  const verdict = { verdict: 'violated', why, resource: 'x', earlier, later };
  expect(judge([later, earlier])).toEqual(verdict);
});

test('a token is compared with the highest earlier token, not with the last one', () => {
  const history = [acquisition(0, 1, 9), acquisition(0, 2, 5), acquisition(3, 4, 7)];
  expect(judge(history)).toMatchObject({ verdict: 'violated', why: 'not above' });
});

test('tokens of overlapping acquisitions may have either order, but must differ', () => {
  expect(judge([acquisition(0, 5, 8), acquisition(4, 9, 7)])).toMatchObject({ verdict: 'grows' });
  expect(judge([acquisition(0, 5, 7), acquisition(4, 9, 7)])).toMatchObject({
    verdict: 'violated',
    why: 'given twice',
  });
});

test('tokens of different resources are not compared, and a set counts for each of its resources', () => {
  const apart = [acquisition(0, 1, 9, 'a'), acquisition(2, 3, 5, 'b'), acquisition(4, 5, 9, 'b')];
  expect(judge(apart)).toMatchObject({ verdict: 'grows' });
  const joined = [acquisition(0, 1, 9, 'a', 'c'), acquisition(2, 3, 8, 'b', 'c')];
  expect(judge(joined)).toMatchObject({ verdict: 'violated', resource: 'c' });
});

test('the checker finds a violation if and only if a comparison of every pair does', () => {
  const histories = fc.array(
    fc
      .record({ askedMs: fc.nat(12), tookMs: fc.nat(4), token: fc.nat(12) })
      .map(({ askedMs, tookMs, token }) => acquisition(askedMs, askedMs + tookMs, token)),
    { maxLength: 6 },
  );
  fc.assert(
    fc.property(histories, (history) => {
      const isBad = history.some((earlier, at) =>
        history.some(
          (later, other) =>
            at !== other &&
            (earlier.token === later.token ||
              (earlier.heldMs < later.askedMs && earlier.token > later.token)),
        ),
      );
      expect(judge(history).verdict === 'violated').toBe(isBad);
    }),
    { numRuns: 2_000 },
  );
});
