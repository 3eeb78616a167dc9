import fc from 'fast-check';
import { expect, test } from 'vitest';
import { resolveOutcome } from './resolve.js';
import { HISTORY_MAX, historyAfter, type Stored } from './stored.js';

/** A write. Only its ids and its token matter. */
function write(id: string, token: bigint, base: Stored | null): Stored {
  const before = historyAfter(base);
  return { version: `etag-${id}`, writeId: id, token, state: 'live', layout: 'gzip', before };
}

/** Applies writes with these tokens, each upon the one before. Returns the last. */
function chain(base: Stored | null, name: string, tokens: readonly bigint[]): Stored | null {
  return tokens.reduce<Stored | null>((top, token, i) => write(`${name}${i}`, token, top), base);
}

const rising = (from: bigint, maxLength: number): fc.Arbitrary<bigint[]> =>
  fc
    .array(fc.bigInt({ min: 0n, max: 2n }), { maxLength })
    .map((steps) => steps.map((_, i) => from + steps.slice(0, i + 1).reduce((a, b) => a + b, 0n)));

// A stored base, our write upon it, which was applied or not, and the later writes of others.
const stories = rising(1n, HISTORY_MAX + 3).chain((past) => {
  const base = chain(null, 'past', past);
  const token = base?.token ?? 1n;
  return fc.record({
    base: fc.constant(base),
    ours: fc.bigInt({ min: token, max: token + 3n }),
    applied: fc.boolean(),
    evidence: fc.constantFrom('refused', 'doubtful', 'later' as const),
    steps: rising(0n, HISTORY_MAX + 3),
  });
});

test('the outcome that is read back never contradicts what happened to the write', () => {
  fc.assert(
    fc.property(stories, ({ base, ours, applied, evidence, steps }) => {
      const own = write('own', ours, base);
      const start = applied ? own : base;
      const seen = chain(
        start,
        'later',
        steps.map((step) => step + (start?.token ?? 1n)),
      );
      const outcome = resolveOutcome({ ...own, base }, seen, evidence);
      if (applied && steps.length === 0) expect(outcome).toBe('applied');
      else if (applied && steps.length <= HISTORY_MAX) expect(outcome).toBe('replaced');
      else if (applied) expect(outcome).toBe('unknown');
      else if (steps.length === 0) expect(outcome).toBe('pending');
      else if (steps.length <= HISTORY_MAX)
        expect(outcome).toBe(evidence === 'later' && base === null ? 'unknown' : 'lost');
      else expect(['lost', 'unknown']).toContain(outcome);
    }),
    { numRuns: 2_000 },
  );
});

test('a read that is older than the base never denies the write', () => {
  const olderReads = rising(1n, HISTORY_MAX + 3)
    .filter(({ length }) => length > 1)
    .chain((past) =>
      fc.record({
        past: fc.constant(past),
        readAt: fc.nat(past.length - 2),
        ours: fc.bigInt({ min: past.at(-1) ?? 1n, max: (past.at(-1) ?? 1n) + 3n }),
      }),
    );
  fc.assert(
    fc.property(olderReads, ({ past, readAt, ours }) => {
      const base = chain(null, 'past', past);
      const seen = chain(null, 'past', past.slice(0, readAt + 1));
      const own = { token: ours, writeId: 'own', base };
      // If the read is older than the history, its token may still be lower than that of the base.
      expect(['pending', 'unknown']).toContain(resolveOutcome(own, seen, 'doubtful'));
      expect(['pending', 'unknown']).toContain(resolveOutcome(own, seen, 'later'));
    }),
  );
});

test('a history that began anew never denies an earlier write', () => {
  fc.assert(
    fc.property(stories, rising(1n, HISTORY_MAX + 3), ({ base, ours }, anew) => {
      const own = { token: ours, writeId: 'own', base };
      for (const first of [null, write('foreign', 0n, null)]) {
        const outcome = resolveOutcome(own, chain(first, 'anew', anew), 'later');
        expect(['unknown', 'pending']).toContain(outcome);
      }
    }),
  );
});

const base = write('base', 5n, null);
const foreign = write('foreign', 0n, null);
const far = (token: bigint) => chain(base, 'later', Array(HISTORY_MAX + 1).fill(token));
test.each([
  ['the stored token is lower than ours', 9n, far(8n), 'doubtful', 'lost'],
  [
    'the token is equal and the history does not reach the base',
    9n,
    far(9n),
    'doubtful',
    'unknown',
  ],
  [
    'the token is higher and the history does not reach the base',
    9n,
    far(10n),
    'doubtful',
    'unknown',
  ],
  ['the same after a refusal alone', 9n, far(10n), 'refused', 'unknown'],
  [
    'the tokens of base and object are equal, and the history does not reach',
    9n,
    far(5n),
    'doubtful',
    'unknown',
  ],
  [
    'the object has its base in its history, at any later time',
    9n,
    write('next', 9n, base),
    'later',
    'lost',
  ],
  ['the stored token is lower than ours, at any later time', 9n, far(8n), 'later', 'unknown'],
  ['the object is gone after a lost reply', 9n, null, 'doubtful', 'unknown'],
  ['the object is gone after a refusal alone', 9n, null, 'refused', 'lost'],
  ['a foreign object is stored after a lost reply', 9n, foreign, 'doubtful', 'unknown'],
  [
    'the token is lower than that of the base after a lost reply',
    9n,
    far(4n),
    'doubtful',
    'unknown',
  ],
] as const)('%s', (_, token, seen, evidence, outcome) => {
  expect(resolveOutcome({ token, writeId: 'own', base }, seen, evidence)).toBe(outcome);
});

test('a refusal proves nothing if a foreign object was replaced by another one without a history', () => {
  const attempt = { token: 9n, writeId: 'own', base: foreign };
  expect(resolveOutcome(attempt, write('other', 0n, null), 'refused')).toBe('unknown');
  expect(resolveOutcome(attempt, null, 'refused')).toBe('unknown');
});

test('of two writers that create at once, a whole history shows which one lost', () => {
  const attempt = { token: 9n, writeId: 'own', base: null };
  expect(
    resolveOutcome(attempt, chain(null, 'other', Array(HISTORY_MAX).fill(9n)), 'doubtful'),
  ).toBe('lost');
  expect(
    resolveOutcome(attempt, chain(null, 'other', Array(HISTORY_MAX + 1).fill(9n)), 'doubtful'),
  ).toBe('unknown');
});
