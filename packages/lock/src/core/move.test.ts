import { describe, expect, test } from 'vitest';
import {
  decidingLeases,
  evidenceOf,
  mergeLeases,
  moveStateOf,
  type Sealed,
  type SealedLeases,
} from './move.js';

const ROSTER = [0, 1, 2].map((index) => ({ generation: 1, incarnation: `i${index}` }));

function seal(index: number, known: Partial<Sealed> = {}): Sealed {
  const own = { index, incarnation: `i${index}`, generation: 1, roster: ROSTER };
  return { ...own, voting: true, max: BigInt(30 + index), longestMs: 100, maxTtlMs: 70, ...known };
}

/** The leases that a sealed node reports: an owner for each resource, each for at least 50 ms. */
function leases(index: number, held: Readonly<Record<string, string>>): SealedLeases {
  const list = Object.entries(held).map(([resource, owner]) => {
    return { resource, owner, remainingMs: 50 + index, token: '0000000000000007' };
  });
  return { voter: seal(index), leases: list };
}

describe('the evidence of sealed nodes', () => {
  test('is complete if a majority voted when it was sealed, and its floor is the highest token', () => {
    const evidence = evidenceOf([seal(0), seal(1)], 3);
    expect(evidence).toEqual({ floor: 31n, longestMs: 103, isComplete: true, maxTtlMs: 70 });
  });

  test('does not count a node that has restarted since its vote', () => {
    expect(evidenceOf([seal(0), seal(1, { voting: false })], 3)).toBeNull();
    expect(evidenceOf([seal(0), seal(1, { voting: false })], 3, true)?.isComplete).toBe(false);
  });

  test('needs every node, and stays incomplete, if no majority voted', () => {
    const restarted = [0, 1, 2].map((index) => seal(index, { voting: false }));
    expect(evidenceOf(restarted, 3)).toMatchObject({ floor: 32n, isComplete: false });
  });

  test('does not count a node of which another one knows a later incarnation', () => {
    const later = ROSTER.with(1, { generation: 2, incarnation: 'i1-later' });
    expect(evidenceOf([seal(0, { roster: later }), seal(1)], 3)).toBeNull();
  });
});

describe('the leases that are carried', () => {
  const merged = (...sealed: SealedLeases[]) => {
    const deciding = decidingLeases(sealed, 3);
    if (!deciding) return null;
    return mergeLeases(deciding, 3).map(({ resource, owner }) => [resource, owner]);
  };

  test('need a majority of answers, and do not end earlier than before the move', () => {
    expect(merged(leases(0, { r: 'x' }))).toBeNull();
    expect(merged(leases(0, { r: 'x' }), leases(1, {}))).toEqual([['r', 'x']]);
    const all = decidingLeases([leases(0, { r: 'x' }), leases(1, { r: 'x' })], 3) ?? [];
    expect(mergeLeases(all, 3)[0]?.remainingMs).toBeGreaterThan(51);
  });

  test('have the highest of those tokens that make up a majority with the missing nodes', () => {
    const of = (index: number, token: string): SealedLeases => {
      const sealed = leases(index, { r: 'x' });
      return { ...sealed, leases: sealed.leases.map((lease) => ({ ...lease, token })) };
    };
    const nodes = [of(0, '0000000000000009'), of(1, '0000000000000007'), of(2, '0000000000000008')];
    expect(mergeLeases(nodes, 3)[0]?.token).toBe('0000000000000008');
    expect(mergeLeases(nodes.slice(0, 2), 3)[0]?.token).toBe('0000000000000007');
  });

  test('do not include one that only a minority of all nodes holds', () => {
    expect(merged(leases(0, { r: 'x' }), leases(1, {}), leases(2, {}))).toEqual([]);
  });

  test('have no owner if two clients may hold the lock, unless one has a majority', () => {
    expect(merged(leases(0, { r: 'x' }), leases(1, { r: 'y' }))).toEqual([['r', '']]);
    expect(merged(leases(0, { r: 'x' }), leases(1, { r: 'x' }), leases(2, { r: 'y' }))).toEqual([
      ['r', 'x'],
    ]);
  });
});

describe('the state of a move', () => {
  const sets = { present: 'A', next: 'B', presentCount: 3, nextCount: 3 };
  const view = (index: number, voting: boolean, known: object = {}) => {
    return { ...seal(index), voting, nextSet: null, previousSet: null, ...known };
  };
  const all = (voting: boolean, known: object = {}) =>
    [0, 1, 2].map((at) => view(at, voting, known));

  test.each([
    ['not-begun', all(true), all(false)],
    ['begun', [view(0, false, { nextSet: 'B' })], all(false)],
    ['begun', [view(0, false, { nextSet: 'B' })], [view(0, true)]],
    ['done', [view(0, false, { nextSet: 'B' })], all(true)],
    ['done', [], all(true, { previousSet: 'A' })],
    ['refused', all(true), all(true)],
    ['refused', [], all(true)],
    ['refused', all(false, { nextSet: 'C' }), all(false)],
    ['refused', [view(0, false, { nextSet: 'C' })], all(false)],
    ['begun', [view(0, false, { nextSet: 'C' }), view(1, false, { nextSet: 'B' })], all(false)],
    ['done', [view(0, false, { nextSet: 'B' })], [view(0, false, { nextSet: 'C' })]],
    ['done', [], all(false, { nextSet: 'C', previousSet: 'A' })],
    ['refused', [], all(false, { nextSet: 'C' })],
  ])('is %s', (state, present, next) => {
    expect(moveStateOf(present, next, sets)).toMatchObject({ state });
  });
});
