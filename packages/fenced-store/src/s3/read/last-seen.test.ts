import fc from 'fast-check';
import { expect, test } from 'vitest';
import { RatchetLostError } from '../../core/errors.js';
import type { Stored } from '../../core/stored.js';
import { LastSeen } from './last-seen.js';

const storedWith = (token: bigint): Stored => ({
  token,
  writeId: '0f'.repeat(16),
  version: `${token}`,
  state: 'live',
  layout: 'gzip',
  before: [],
});

test('of 10 000 keys, the 1000 that were used last are kept', () => {
  const lastSeen = new LastSeen(() => 0);
  const write = (key: number): void => lastSeen.noteWrite(`${key}`, 1n, storedWith(1n));
  for (let key = 0; key < 10_000; key++) {
    write(key);
    // Key 0 is used each time, so it stays.
    write(0);
  }
  const kept = Array.from({ length: 10_000 }, (_, key) => key).filter(
    (key) => lastSeen.base(`${key}`) !== null || lastSeen.highest(`${key}`) > 0n,
  );
  expect(kept).toEqual([0, ...Array.from({ length: 999 }, (_, i) => 9_001 + i)]);
});

test('the highest token never goes down, and a read that shows a lower one is refused', () => {
  const steps = fc.array(
    fc.record({
      does: fc.constantFrom('noteRead', 'noteWrite', 'forgetBase'),
      token: fc.bigInt({ min: 0n, max: 5n }),
    }),
  );
  fc.assert(
    fc.property(steps, (all) => {
      const lastSeen = new LastSeen(() => 0);
      let highest = 0n;
      for (const { does, token } of all) {
        const stored = token === 0n ? null : storedWith(token);
        if (does === 'forgetBase') lastSeen.forgetBase('k');
        else if (does === 'noteWrite') lastSeen.noteWrite('k', token, stored);
        else if (token < highest)
          expect(() => lastSeen.noteRead('k', highest, stored)).toThrow(RatchetLostError);
        else lastSeen.noteRead('k', highest, stored);
        // A lower token is no error if the read was sent before any token was known.
        lastSeen.noteRead('k', 0n, storedWith(1n));
        highest = [highest, does === 'forgetBase' ? 0n : token, 1n].reduce((a, b) =>
          a > b ? a : b,
        );
        expect(lastSeen.highest('k')).toBe(highest);
        const base = lastSeen.base('k');
        if (base !== null) expect(base.token).toBe(highest);
      }
    }),
  );
});
