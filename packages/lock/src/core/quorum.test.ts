import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  consistentQuorum,
  isLater,
  knowsLater,
  majorityOf,
  outlivedIn,
  supersededIn,
  type Voter,
} from './quorum.js';

test.each([
  [1, 1],
  [2, 2],
  [3, 2],
  [4, 3],
  [5, 3],
  [6, 4],
  [7, 4],
  [8, 5],
  [9, 5],
])('of %i nodes, %i are a majority, and two majorities share a node', (nodeCount, majority) => {
  expect(majorityOf(nodeCount)).toBe(majority);
  const sets = subsets(nodeCount).filter((set) => set.length === majority);
  for (const one of sets) {
    for (const other of sets) expect(one.some((index) => other.includes(index))).toBe(true);
  }
});

const incarnation = fc.record({
  generation: fc.integer({ min: 0, max: 2 }),
  incarnation: fc.constantFrom('x', 'y', 'z'),
});
test('of two different incarnations of a node, exactly one is later; a vote that it outlives is void', () => {
  fc.assert(
    fc.property(incarnation, incarnation, incarnation, (x, y, z) => {
      const isSame = x.generation === y.generation && x.incarnation === y.incarnation;
      expect(Number(isLater(x, y)) + Number(isLater(y, x))).toBe(isSame ? 0 : 1);
      if (isLater(x, y) && isLater(y, z)) expect(isLater(x, z)).toBe(true);
      if (isLater(x, y)) expect(knowsLater({ roster: [x] }, y, 0)).toBe(true);
    }),
    { numRuns: 1_000 },
  );
});

const voters = fc.integer({ min: 1, max: 5 }).chain((nodeCount) =>
  fc.tuple(
    ...Array.from({ length: nodeCount }, (_, index) =>
      fc.record({
        index: fc.constant(index),
        generation: fc.integer({ min: 0, max: 2 }),
        incarnation: fc.constantFrom('x', 'y', 'z'),
        roster: fc.array(incarnation, {
          minLength: nodeCount,
          maxLength: nodeCount,
        }),
      }),
    ),
  ),
);

test('a consistent quorum is found if and only if a search of all sets of voters finds one', () => {
  fc.assert(
    fc.property(voters, (all: Voter[]) => {
      const majority = majorityOf(all.length);
      const quorum = consistentQuorum(all, majority);
      const possible = subsets(all.length)
        .filter((set) => set.length === majority)
        .some((set) => consistent(set.map((index) => all[index] as Voter)));
      expect(quorum !== null).toBe(possible);
      if (quorum) {
        expect(new Set(quorum).size).toBe(majority);
        expect(consistent(quorum)).toBe(true);
      }
    }),
    { numRuns: 2_000 },
  );
});

const x1 = { generation: 1, incarnation: 'x1' };
const x2 = { generation: 2, incarnation: 'x2' };
const y = { generation: 1, incarnation: 'y' };

test('an old vote of a node that has lost its memory does not count beside a voter that knows of the loss', () => {
  const before = { index: 0, ...x1, roster: [x1, y, y] };
  const knows = { index: 1, ...y, roster: [x2, y, y] };
  const doesNotKnow = { index: 2, ...y, roster: [x1, y, y] };
  expect(consistentQuorum([before, knows], 2)).toBeNull();
  expect(consistentQuorum([before, doesNotKnow], 2)).toEqual([before, doesNotKnow]);
  expect(consistentQuorum([before, knows, doesNotKnow], 2)).toEqual([before, doesNotKnow]);
  expect(supersededIn([before, knows, doesNotKnow])).toEqual([before]);
});

test('a vote does not count beside a voter that knows a higher generation of its node, or another incarnation under the same one', () => {
  const voter = { index: 0, ...x1, roster: [x1, y, y] };
  const promisedMore = { index: 1, ...y, roster: [{ ...x1, generation: 7 }, y, y] };
  const knowsAnother = { index: 2, ...y, roster: [{ ...x1, incarnation: 'x0' }, y, y] };
  expect(consistentQuorum([voter, promisedMore], 2)).toBeNull();
  expect(consistentQuorum([voter, knowsAnother], 2)).toBeNull();
  expect(supersededIn([voter, promisedMore, knowsAnother])).toEqual([voter]);
  expect(outlivedIn([voter], [promisedMore])).toEqual([]);
  expect(outlivedIn([voter], [knowsAnother])).toEqual([voter]);
});

function consistent(quorum: readonly Voter[]): boolean {
  return quorum.every((one) =>
    quorum.every((other) => {
      const known = other.roster[one.index];
      const generation = known?.generation ?? 0;
      const isSame = known?.incarnation === one.incarnation;
      return (
        one === other || generation < one.generation || (isSame && generation === one.generation)
      );
    }),
  );
}

function subsets(size: number): number[][] {
  return Array.from({ length: 2 ** size }, (_, mask) =>
    Array.from({ length: size }, (_, index) => index).filter((index) => mask & (1 << index)),
  );
}
