import { expect, test } from 'vitest';
import { type Inspection, planFirstStart, unchanged } from './admission.js';

const names = ['a', 'b', 'c'];

function blank(runId: string, known: Partial<Inspection> = {}): Inspection {
  return {
    runId,
    incarnation: `life of ${runId}`,
    admitted: false,
    generation: 0,
    roster: [],
    max: 0n,
    members: '',
    ...known,
  };
}

test('new nodes all begin at the seed, each in its first generation', () => {
  const plan = planFirstStart(
    names,
    ['1', '2', '3'].map((id) => blank(id)),
    'abc',
    32n,
  );
  expect(plan).toEqual({
    plan: 'admit',
    admissions: [
      { index: 0, generation: 1, roster: [1, 0, 0], floor: 32n },
      { index: 1, generation: 1, roster: [0, 1, 0], floor: 32n },
      { index: 2, generation: 1, roster: [0, 0, 1], floor: 32n },
    ],
  });
});

test('what survived anywhere counts: the highest token is the floor of all, and generations go on', () => {
  const survivor = blank('1', { generation: 2, roster: [2, 4, 1], max: 900n, members: 'abc' });
  const plan = planFirstStart(names, [survivor, blank('2'), blank('3', { max: 7n })], 'abc', 32n);
  expect(plan).toEqual({
    plan: 'admit',
    admissions: [
      { index: 0, generation: 3, roster: [3, 4, 1], floor: 900n },
      { index: 1, generation: 5, roster: [2, 5, 1], floor: 900n },
      { index: 2, generation: 2, roster: [2, 4, 2], floor: 900n },
    ],
  });
});

test('two clients that find one node already admitted plan the same generations for the others', () => {
  const first = planFirstStart(
    names,
    ['1', '2', '3'].map((id) => blank(id)),
    'abc',
    32n,
  );
  const admitted = blank('1', {
    admitted: true,
    generation: 1,
    roster: [1, 0, 0],
    max: 32n,
    members: 'abc',
  });
  const second = planFirstStart(names, [admitted, blank('2'), blank('3')], 'abc', 32n);
  if (first.plan !== 'admit' || second.plan !== 'admit') throw new Error('both must admit');
  expect(second.admissions.map(({ index, generation }) => [index, generation])).toEqual(
    first.admissions.slice(1).map(({ index, generation }) => [index, generation]),
  );
});

test('with a majority admitted there is no first start: a node that lost its memory stays out', () => {
  const admitted = (id: string) =>
    blank(id, { admitted: true, generation: 1, max: 50n, members: 'abc' });
  expect(planFirstStart(names, [admitted('1'), admitted('2'), blank('3')], 'abc', 32n)).toEqual({
    plan: 'not-needed',
  });
});

test('two names for one server, and nodes of another lock service, are refused by name', () => {
  const twins = planFirstStart(names, [blank('1'), blank('2'), blank('1')], 'abc', 32n);
  expect(twins).toMatchObject({ plan: 'refuse', reason: expect.stringContaining('a and c') });
  const stranger = planFirstStart(
    names,
    [blank('1'), blank('2', { members: 'xyz' }), blank('3')],
    'abc',
    32n,
  );
  expect(stranger).toMatchObject({ plan: 'refuse', reason: expect.stringContaining('node b') });
});

test('a restart, a flush and an admission between two looks are all seen', () => {
  const before = [blank('1'), blank('2')];
  expect(unchanged(before, [blank('1'), blank('2')])).toBe(true);
  expect(unchanged(before, [blank('1'), blank('3')])).toBe(false);
  expect(unchanged(before, [blank('1'), blank('2', { incarnation: 'another' })])).toBe(false);
  expect(unchanged(before, [blank('1'), blank('2', { admitted: true })])).toBe(false);
});
