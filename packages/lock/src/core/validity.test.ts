import fc from 'fast-check';
import { expect, test } from 'vitest';
import { backoffMs } from './backoff.js';
import { nodeTimeoutMs, validityMs } from './validity.js';

const ttlMs = fc.integer({ min: 10, max: 86_400_000 });
const elapsedMs = fc.double({ min: 0, max: 1e9, noNaN: true });

test('a holder relies on its lease for less time than a node keeps it', () => {
  fc.assert(
    fc.property(ttlMs, elapsedMs, (ttl, elapsed) => {
      expect(validityMs(ttl, elapsed)).toBeLessThan(ttl - elapsed);
      expect(validityMs(ttl, 0)).toBeGreaterThan(0);
    }),
  );
});

test('a lease is still valid if the deciding node answers at the last moment of its time limit', () => {
  fc.assert(
    fc.property(ttlMs, (ttl) => {
      expect(validityMs(ttl, nodeTimeoutMs(ttl))).toBeGreaterThan(0);
    }),
  );
});

test('the pause between acquisitions is jittered, bounded, and not much longer than the present lease', () => {
  const attempt = fc.integer({ min: 1, max: 1e6 });
  const unit = fc.double({ min: 0, max: 0.999, noNaN: true });
  fc.assert(
    fc.property(attempt, fc.integer({ min: 0, max: 1e6 }), unit, (n, retryAfter, chance) => {
      const delayMs = backoffMs(n, retryAfter, chance);
      expect(delayMs).toBeGreaterThan(0);
      expect(delayMs).toBeLessThanOrEqual(250);
      if (retryAfter > 0) expect(delayMs).toBeLessThanOrEqual(retryAfter + 25);
    }),
  );
  expect(backoffMs(5, 0, 0)).not.toBe(backoffMs(5, 0, 0.5));
});
