import { expect, test } from 'vitest';
import type { Incarnation } from './quorum.js';
import {
  findOutlived,
  findTwins,
  type Inspection,
  type Promised,
  planGathering,
  planReadmission,
} from './readmission.js';

const seed = { wallClockMs: 5_000, firstToken: null };
const none: Incarnation = { generation: 0, incarnation: '' };

function blank(history: string, known: Partial<Inspection> = {}): Inspection {
  return {
    history,
    incarnation: `life of ${history}`,
    voting: false,
    generation: 0,
    roster: [],
    max: 0n,
    longestMs: 0,
    awaits: null,
    maxTtlMs: null,
    ...known,
  };
}

/** A node that votes as the incarnation `history`. `roster` has all incarnations that it knows. */
function voter(history: string, generation: number, roster: readonly Incarnation[]): Inspection {
  return blank(history, { voting: true, generation, roster, max: 50n });
}

function life(history: string, generation: number): Incarnation {
  return { generation, incarnation: `life of ${history}` };
}

function promised(index: number, seen: Inspection, known: Partial<Promised> = {}): Promised {
  return { index, ...seen, ...known };
}

const all = [life('a', 3), life('b', 4), none];

test('if a majority votes, its nodes are asked for promises about the nodes that do not vote', () => {
  const seen = [voter('a', 3, all), voter('b', 4, all), blank('c', { generation: 7 })];
  expect(planGathering(seen, seed)).toEqual({
    nominations: [{ index: 2, incarnation: 'life of c', generation: 8 }],
    everybody: null,
  });
});

test('a silent node does no harm while a majority votes; without a majority, it blocks the readmission', () => {
  expect(planGathering([voter('a', 3, all), voter('b', 4, all), null], seed)?.nominations).toEqual(
    [],
  );
  expect(planGathering([voter('a', 3, all), null, blank('c')], seed)).toBeNull();
});

test('an operator may say that silent nodes are gone for good', () => {
  const gathering = planGathering([voter('a', 3, all), null, blank('c')], seed, true);
  expect(gathering?.everybody).toBe(2);
  expect(gathering?.nominations.map(({ index }) => index)).toEqual([0, 2]);
});

test('if no majority votes, every node must promise, and each nomination is above every known generation', () => {
  const known = [life('a', 3), life('b', 9_000), none];
  const seen = [voter('a', 3, known), blank('b2', { generation: 4 }), blank('c')];
  expect(planGathering(seen, seed)).toEqual({
    nominations: [
      { index: 0, incarnation: 'life of a', generation: 5_000 },
      { index: 1, incarnation: 'life of b2', generation: 9_001 },
      { index: 2, incarnation: 'life of c', generation: 5_000 },
    ],
    everybody: 3,
  });
});

test('clients that nominate the same incarnation share a generation; one that nominates another takes a higher one', () => {
  const nominated = [life('a', 3), life('b', 4), life('c', 8)];
  const other = [life('a', 3), life('b', 4), life('c0', 8)];
  const generation = (known: readonly Incarnation[]) =>
    planGathering([voter('a', 3, known), voter('b', 4, nominated), blank('c')], seed)
      ?.nominations[0]?.generation;
  expect(generation(nominated)).toBe(8);
  expect(generation(other)).toBe(9);
});

test('a voter whose generation another node has promised to exceed is nominated under the promised one', () => {
  const promised = [life('a', 3), life('b', 6), none];
  const seen = [
    voter('a', 3, promised),
    voter('b', 4, all),
    voter('c', 1, [life('a', 3), none, none]),
  ];
  expect(planGathering(seen, seed)?.nominations).toEqual([{ index: 1, ...life('b', 6) }]);
});

test('a readmitted node gets the highest token and the latest roster of a majority', () => {
  const gathering = { nominations: [{ index: 2, ...life('c', 8) }], everybody: null };
  const old = [life('a', 3), life('b0', 3), life('c', 8)];
  const young = [life('a', 3), life('b', 4), life('c', 8)];
  const promises = [
    promised(0, voter('a', 3, old), { max: 70n, longestMs: 10 }),
    promised(1, voter('b', 4, young), { max: 90n, longestMs: 30 }),
  ];
  expect(planReadmission(gathering, promises, 3, seed)).toEqual({
    floor: 90n,
    roster: young,
    longestMs: 30,
  });
  expect(planReadmission(gathering, promises.slice(1), 3, seed)).toBeNull();
});

test('the promise of an old incarnation does not count if another node knows its successor', () => {
  const gathering = { nominations: [{ index: 2, ...life('c', 8) }], everybody: null };
  const promises = [
    promised(0, voter('a', 3, [life('a', 3), life('b1', 5), life('c', 8)])),
    promised(1, voter('b0', 4, [life('a', 3), life('b0', 4), life('c', 8)])),
  ];
  expect(planReadmission(gathering, promises, 3, seed)).toBeNull();
});

test('of two incarnations under one generation, a readmitted node takes the same one from every majority', () => {
  const gathering = { nominations: [{ index: 1, ...life('b', 8) }], everybody: null };
  const [e2, e3] = [life('e2', 4), life('e3', 4)];
  const roster = (e: Incarnation) => [life('a', 3), life('b', 8), life('c', 3), life('d', 3), e];
  const voters = [
    [e2, e2, e3],
    [e3, e2, e2],
    [e3, e3, e2],
  ].map(([a = none, c = none, d = none]) => [
    promised(0, voter('a', 3, roster(a))),
    promised(2, voter('c', 3, roster(c))),
    promised(3, voter('d', 3, roster(d))),
  ]);
  for (const promises of voters) {
    expect(planReadmission(gathering, promises, 5, seed)?.roster).toEqual(roster(e3));
  }
});

function firstStart(known: Partial<Inspection>, firstToken: bigint | null) {
  const seen = [blank('a', known), blank('b'), blank('c')];
  const gathering = planGathering(seen, seed);
  if (!gathering) throw new Error('all have answered');
  const roster = gathering.nominations.map(({ generation, incarnation }) => ({
    generation,
    incarnation,
  }));
  const promises = seen.map((one, index) => promised(index, { ...one, roster }));
  return planReadmission(gathering, promises, 3, { ...seed, firstToken });
}

test('if no node remembers, tokens begin above the clock and above every token that survived', () => {
  expect(firstStart({}, null)?.floor).toBe(5_000_000n);
  expect(firstStart({ max: 7n }, null)?.floor).toBe(5_000_000n);
  expect(firstStart({ max: 6_000_000n }, null)?.floor).toBe(6_000_000n);
});

test('firstToken is for new nodes; if some node has given a token, tokens begin above the clock', () => {
  expect(firstStart({}, 33n)?.floor).toBe(32n);
  expect(firstStart({ max: 32n }, 33n)?.floor).toBe(32n);
  expect(firstStart({ max: 33n }, 33n)?.floor).toBe(5_000_000n);
});

test('if a majority votes by the time of its promises, tokens go on above its own, not above the clock', () => {
  const gathering = planGathering([blank('a'), blank('b'), blank('c')], seed);
  if (!gathering) throw new Error('all have answered');
  const now = [life('a', 5), life('b', 5), life('c', 5)];
  const promises = [
    promised(0, voter('a', 5, now)),
    promised(1, voter('b', 5, now)),
    promised(2, blank('c', { roster: now })),
  ];
  expect(planReadmission(gathering, promises, 3, seed)?.floor).toBe(50n);
});

test('an old master is found by nodes that know its successor', () => {
  const knows = voter('a', 3, [life('a', 3), life('b1', 5), none]);
  const old = voter('b0', 4, [life('a', 3), life('b0', 4), none]);
  const blankKnows = blank('c', { roster: knows.roster });
  expect(findOutlived([knows, old, null], null).map(({ index }) => index)).toEqual([1]);
  expect(findOutlived([null, old, blankKnows], null)).toEqual([]);
  expect(findOutlived([blank('a'), old, blankKnows], 3).map(({ index }) => index)).toEqual([1]);
});

test('two names for one server are found', () => {
  expect(findTwins([blank('1'), blank('2'), blank('1')])).toEqual([0, 2]);
  expect(findTwins([null, null, blank('1')])).toBeNull();
});
