import fc from 'fast-check';
import { expect, test } from 'vitest';
import { consistentQuorum, majorityOf, type Voter } from './quorum.js';

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

const voters = fc.integer({ min: 1, max: 5 }).chain((nodeCount) =>
  fc.tuple(
    ...Array.from({ length: nodeCount }, (_, index) =>
      fc.record({
        index: fc.constant(index),
        generation: fc.integer({ min: 0, max: 2 }),
        roster: fc.array(fc.integer({ min: 0, max: 2 }), {
          minLength: nodeCount,
          maxLength: nodeCount,
        }),
      }),
    ),
  ),
);

test('a quorum is found exactly where trying every set of voters finds one, and it is consistent', () => {
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

test('a vote from before a node lost its memory does not count beside a voter who knows of the loss', () => {
  const before = { index: 0, generation: 1, roster: [1, 1, 1] };
  const knows = { index: 1, generation: 1, roster: [2, 1, 1] };
  const doesNotKnow = { index: 2, generation: 1, roster: [1, 1, 1] };
  expect(consistentQuorum([before, knows], 2)).toBeNull();
  expect(consistentQuorum([before, doesNotKnow], 2)).toEqual([before, doesNotKnow]);
  expect(consistentQuorum([before, knows, doesNotKnow], 2)).toEqual([before, doesNotKnow]);
});

function consistent(quorum: readonly Voter[]): boolean {
  return quorum.every((x) =>
    quorum.every((y) => (y.roster[x.index] ?? 0) <= x.generation || x === y),
  );
}

function subsets(size: number): number[][] {
  return Array.from({ length: 2 ** size }, (_, mask) =>
    Array.from({ length: size }, (_, index) => index).filter((index) => mask & (1 << index)),
  );
}
