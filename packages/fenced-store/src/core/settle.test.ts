import fc from 'fast-check';
import { expect, test } from 'vitest';
import { judge } from './settle.js';
import { HISTORY_MAX, historyUpon, type Stored } from './stored.js';

/** A write by itself: only ids and tokens matter to the judge. */
function write(id: string, token: bigint, base: Stored | null): Stored {
  const before = historyUpon(base);
  return { version: `etag-${id}`, writeId: id, token, state: 'live', layout: 'gzip', before };
}

/** `count` writes, each upon the one before, with tokens that never go down. */
function chain(base: Stored | null, name: string, tokens: readonly bigint[]): Stored | null {
  return tokens.reduce<Stored | null>((top, token, i) => write(`${name}${i}`, token, top), base);
}

const rising = (from: bigint, maxLength: number): fc.Arbitrary<bigint[]> =>
  fc
    .array(fc.bigInt({ min: 0n, max: 2n }), { maxLength })
    .map((steps) => steps.map((_, i) => from + steps.slice(0, i + 1).reduce((a, b) => a + b, 0n)));

// The base, our write's token, whether it was applied, the writes that came after, and whether a reply was lost.
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

test('no verdict contradicts what happened, whatever was written before and after', () => {
  fc.assert(
    fc.property(stories, ({ base, ours, applied, doubtful, steps }) => {
      const own = write('own', ours, base);
      const start = applied ? own : base;
      const seen = chain(
        start,
        'later',
        steps.map((step) => step + (start?.token ?? 1n)),
      );
      const fate = judge({ ...own, base }, seen, doubtful);
      if (applied && steps.length === 0) expect(fate).toBe('applied');
      else if (applied && steps.length <= HISTORY_MAX) expect(fate).toBe('replaced');
      else if (applied) expect(fate).toBe('unknown');
      else if (steps.length === 0) expect(fate).toBe('pending');
      else if (steps.length <= HISTORY_MAX) expect(fate).toBe('lost');
      else expect(['lost', 'unknown']).toContain(fate);
    }),
    { numRuns: 2_000 },
  );
});

const base = write('base', 5n, null);
const foreign = write('foreign', 0n, null);
const far = (token: bigint) => chain(base, 'later', Array(HISTORY_MAX + 1).fill(token));
test.each([
  ['a lower token is stored than ours', 9n, far(8n), true, 'lost'],
  ['an equal token is stored and the history does not reach back', 9n, far(9n), true, 'unknown'],
  ['a higher token is stored and the history does not reach back', 9n, far(10n), true, 'unknown'],
  ['the same after a lone refusal', 9n, far(10n), false, 'unknown'],
  ['the object has vanished after a lost reply', 9n, null, true, 'unknown'],
  ['the object has vanished after a lone refusal', 9n, null, false, 'lost'],
  ['a foreign object is stored after a lost reply', 9n, foreign, true, 'unknown'],
  ['a lower token than the base had is stored after a lost reply', 9n, far(4n), true, 'unknown'],
] as const)('%s', (_, token, seen, doubtful, fate) => {
  expect(judge({ token, writeId: 'own', base }, seen, doubtful)).toBe(fate);
});

test('a lone refusal upon a foreign object that was replaced by another is no proof', () => {
  const intent = { token: 9n, writeId: 'own', base: foreign };
  expect(judge(intent, write('other', 0n, null), false)).toBe('unknown');
  expect(judge(intent, null, false)).toBe('unknown');
});

test('of two that create at once, the history tells the loser as long as it is whole', () => {
  const intent = { token: 9n, writeId: 'own', base: null };
  expect(judge(intent, chain(null, 'other', Array(HISTORY_MAX).fill(9n)), true)).toBe('lost');
  expect(judge(intent, chain(null, 'other', Array(HISTORY_MAX + 1).fill(9n)), true)).toBe(
    'unknown',
  );
});
