import fc from 'fast-check';
import { expect, test } from 'vitest';
import { RatchetLostError } from '../../core/errors.js';
import type { Stored } from '../../core/stored.js';
import { Known } from './known.js';

const storedWith = (token: bigint): Stored => ({
  ...{ token, writeId: '0f'.repeat(16), version: `${token}` },
  ...{ state: 'live', layout: 'gzip', before: [] },
});

test('of ten thousand keys the thousand used last are known, and nothing of the others', () => {
  const known = new Known();
  const write = (key: number): void => known.wrote(`${key}`, 1n, storedWith(1n));
  for (let key = 0; key < 10_000; key++) {
    write(key);
    // Used again and again, the first one stays.
    write(0);
  }
  const kept = Array.from({ length: 10_000 }, (_, key) => key).filter(
    (key) => known.base(`${key}`) !== null || known.highest(`${key}`) > 0n,
  );
  expect(kept).toEqual([0, ...Array.from({ length: 999 }, (_, i) => 9_001 + i)]);
});

test('the highest token never goes down, and what shows a lower one than was known before is a lost ratchet', () => {
  const steps = fc.array(
    fc.record({
      does: fc.constantFrom('seen', 'wrote', 'outdated'),
      token: fc.bigInt({ min: 0n, max: 5n }),
    }),
  );
  fc.assert(
    fc.property(steps, (all) => {
      const known = new Known();
      let highest = 0n;
      for (const { does, token } of all) {
        const stored = token === 0n ? null : storedWith(token);
        if (does === 'outdated') known.outdated('k');
        else if (does === 'wrote') known.wrote('k', token, stored);
        else if (token < highest)
          expect(() => known.seen('k', highest, stored)).toThrow(RatchetLostError);
        else known.seen('k', highest, stored);
        // An answer to a question from before anything was known may be an older one, and tells nothing.
        known.seen('k', 0n, storedWith(1n));
        highest = [highest, does === 'outdated' ? 0n : token, 1n].reduce((a, b) => (a > b ? a : b));
        expect(known.highest('k')).toBe(highest);
        const base = known.base('k');
        if (base !== null) expect(base.token).toBe(highest);
      }
    }),
  );
});
