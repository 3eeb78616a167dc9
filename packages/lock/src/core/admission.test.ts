import { expect, test } from 'vitest';
import {
  type Inspection,
  nextGeneration,
  type Promised,
  planFirstStart,
  planReadmission,
  unchanged,
} from './admission.js';

const names = ['a', 'b', 'c'];
const seed = { wallClockUs: 5_000n, firstToken: 33n };

function blank(runId: string, known: Partial<Inspection> = {}): Inspection {
  return {
    runId,
    incarnation: `life of ${runId}`,
    admitted: false,
    generation: 0,
    roster: [],
    max: 0n,
    members: '',
    waitedMs: 0,
    ...known,
  };
}

test('new nodes all begin at the seed, each in its first generation', () => {
  const plan = planFirstStart(
    names,
    ['1', '2', '3'].map((id) => blank(id)),
    seed,
  );
  expect(plan).toEqual({
    plan: 'admit',
    admissions: [
      { index: 0, generation: 1, roster: [1, 1, 1], floor: 32n },
      { index: 1, generation: 1, roster: [1, 1, 1], floor: 32n },
      { index: 2, generation: 1, roster: [1, 1, 1], floor: 32n },
    ],
  });
});

test('what survived anywhere counts: the highest token is the floor of all, and generations go on', () => {
  const survivor = blank('1', { generation: 2, roster: [2, 4, 1], max: 9_000n, members: 'abc' });
  const plan = planFirstStart(names, [survivor, blank('2'), blank('3', { max: 7n })], seed);
  expect(plan).toEqual({
    plan: 'admit',
    admissions: [
      { index: 0, generation: 3, roster: [3, 4, 1], floor: 9_000n },
      { index: 1, generation: 4, roster: [3, 4, 1], floor: 9_000n },
      { index: 2, generation: 1, roster: [3, 4, 1], floor: 9_000n },
    ],
  });
});

test('two clients that find one node already admitted plan the same generations for the others', () => {
  const first = planFirstStart(
    names,
    ['1', '2', '3'].map((id) => blank(id)),
    seed,
  );
  const admitted = blank('1', {
    admitted: true,
    generation: 1,
    roster: [1, 1, 1],
    max: 32n,
    members: 'abc',
  });
  const second = planFirstStart(names, [admitted, blank('2'), blank('3')], seed);
  if (first.plan !== 'admit' || second.plan !== 'admit') throw new Error('both must admit');
  expect(second.admissions.map(({ index, generation }) => [index, generation])).toEqual(
    first.admissions.slice(1).map(({ index, generation }) => [index, generation]),
  );
});

test('with a majority admitted there is no first start: a node that lost its memory stays out', () => {
  const admitted = (id: string) =>
    blank(id, { admitted: true, generation: 1, max: 50n, members: 'abc' });
  expect(planFirstStart(names, [admitted('1'), admitted('2'), blank('3')], seed)).toEqual({
    plan: 'not-needed',
  });
});

test('two names for one server are refused by name', () => {
  const twins = planFirstStart(names, [blank('1'), blank('2'), blank('1')], seed);
  expect(twins).toMatchObject({ plan: 'refuse', reason: expect.stringContaining('a and c') });
});

test('a restart, a flush and an admission between two looks are all seen', () => {
  const before = [blank('1'), blank('2')];
  expect(unchanged(before, [blank('1'), blank('2')])).toBe(true);
  expect(unchanged(before, [blank('1'), blank('3')])).toBe(false);
  expect(unchanged(before, [blank('1'), blank('2', { incarnation: 'another' })])).toBe(false);
  expect(unchanged(before, [blank('1'), blank('2', { admitted: true })])).toBe(false);
});

test('firstToken is for nodes that never had a memory: where any remembers anything, the clock covers what is forgotten', () => {
  const floors = (known: Partial<Inspection>) => {
    const plan = planFirstStart(names, [blank('1', known), blank('2'), blank('3')], seed);
    return plan.plan === 'admit' ? plan.admissions.map(({ floor }) => floor) : [];
  };
  expect(floors({})).toEqual([32n, 32n, 32n]);
  expect(floors({ max: 40n })).toEqual([5_000n, 5_000n, 5_000n]);
  expect(floors({ generation: 1 })).toEqual([5_000n, 5_000n, 5_000n]);
});

test('a new generation exceeds every known one, but what was promised to this very life is used again', () => {
  const wiped = blank('1');
  const other = (generation: number) => ({ generation, incarnation: 'another life' });
  const same = (generation: number) => ({ generation, incarnation: wiped.incarnation });
  expect(nextGeneration(wiped, 1, [])).toBe(1);
  expect(nextGeneration(wiped, 1, [other(1), other(4)])).toBe(5);
  expect(nextGeneration(wiped, 1, [other(1), same(4)])).toBe(4);
  expect(nextGeneration(wiped, 1, [other(4), same(4)])).toBe(5);
  expect(nextGeneration(wiped, 3, [other(1)])).toBe(3);
});

test('a node that votes is raised to what its own life was promised, never past a later life', () => {
  const votes = blank('1', { admitted: true, generation: 2 });
  const same = { generation: 4, incarnation: votes.incarnation };
  expect(nextGeneration(votes, 2, [{ generation: 2, incarnation: '' }])).toBeNull();
  expect(nextGeneration(votes, 2, [same, { generation: 2, incarnation: '' }])).toBe(4);
  expect(nextGeneration(votes, 2, [same, { generation: 3, incarnation: 'new master' }])).toBeNull();
});

test('a node is readmitted above the highest token of a consistent majority that has promised', () => {
  const promise = (index: number, max: bigint, roster: number[], generation = 1): Promised => ({
    index,
    generation,
    roster,
    max,
  });
  const promises = [promise(1, 40n, [2, 1, 3]), promise(2, 44n, [2, 1, 3], 3)];
  expect(planReadmission(0, 2, promises, 3)).toEqual({
    index: 0,
    generation: 2,
    roster: [2, 1, 3],
    floor: 44n,
  });
  expect(planReadmission(0, 2, promises.slice(1), 3)).toBeNull();
  // Node 1 knows that node 2 has begun a third generation; this promise is of its second.
  const superseded = [promise(1, 40n, [2, 1, 3]), promise(2, 44n, [2, 1, 2], 2)];
  expect(planReadmission(0, 2, superseded, 3)).toBeNull();
});
