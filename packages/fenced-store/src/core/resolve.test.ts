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
    doubtful: fc.boolean(),
    steps: rising(0n, HISTORY_MAX + 3),
  });
});

test('the outcome that is read back never contradicts what happened to the write', () => {
  fc.assert(
    fc.property(stories, ({ base, ours, applied, doubtful, steps }) => {
      const own = write('own', ours, base);
      const start = applied ? own : base;
      const seen = chain(
        start,
        'later',
        steps.map((step) => step + (start?.token ?? 1n)),
      );
      const outcome = resolveOutcome({ ...own, base }, seen, doubtful);
      if (applied && steps.length === 0) expect(outcome).toBe('applied');
      else if (applied && steps.length <= HISTORY_MAX) expect(outcome).toBe('replaced');
      else if (applied) expect(outcome).toBe('unknown');
      else if (steps.length === 0) expect(outcome).toBe('pending');
      else if (steps.length <= HISTORY_MAX) expect(outcome).toBe('lost');
      else expect(['lost', 'unknown']).toContain(outcome);
    }),
    { numRuns: 2_000 },
  );
});

const base = write('base', 5n, null);
const foreign = write('foreign', 0n, null);
const far = (token: bigint) => chain(base, 'later', Array(HISTORY_MAX + 1).fill(token));
test.each([
  ['the stored token is lower than ours', 9n, far(8n), true, 'lost'],
  ['the token is equal and the history does not reach the base', 9n, far(9n), true, 'unknown'],
  ['the token is higher and the history does not reach the base', 9n, far(10n), true, 'unknown'],
  ['the same after a refusal alone', 9n, far(10n), false, 'unknown'],
  ['the object is gone after a lost reply', 9n, null, true, 'unknown'],
  ['the object is gone after a refusal alone', 9n, null, false, 'lost'],
  ['a foreign object is stored after a lost reply', 9n, foreign, true, 'unknown'],
  ['the token is lower than that of the base after a lost reply', 9n, far(4n), true, 'unknown'],
] as const)('%s', (_, token, seen, doubtful, outcome) => {
  expect(resolveOutcome({ token, writeId: 'own', base }, seen, doubtful)).toBe(outcome);
});

test('a refusal proves nothing if a foreign object was replaced by another one without a history', () => {
  const attempt = { token: 9n, writeId: 'own', base: foreign };
  expect(resolveOutcome(attempt, write('other', 0n, null), false)).toBe('unknown');
  expect(resolveOutcome(attempt, null, false)).toBe('unknown');
});

test('of two writers that create at once, a whole history shows which one lost', () => {
  const attempt = { token: 9n, writeId: 'own', base: null };
  expect(resolveOutcome(attempt, chain(null, 'other', Array(HISTORY_MAX).fill(9n)), true)).toBe(
    'lost',
  );
  expect(resolveOutcome(attempt, chain(null, 'other', Array(HISTORY_MAX + 1).fill(9n)), true)).toBe(
    'unknown',
  );
});
