import { expect, test } from 'vitest';
import { Observations } from './observations.js';

test('a process that reads the locks of 10,000 crashed holders takes over all of them', () => {
  const observations = new Observations();
  const held = { owner: 'a', ttlMs: 10_000, endsAtMs: 0 };
  const remaining = (nowMs: number): number[] =>
    Array.from({ length: 10_000 }, (_, at) =>
      observations.remainingMs({ resource: `${at}`, version: 'v', token: 1n, held }, nowMs),
    );
  expect(Math.min(...remaining(0))).toBeGreaterThan(10_000);
  expect(Math.max(...remaining(5_000))).toBeLessThan(6_000);
  expect(Math.max(...remaining(11_000))).toBe(0);
});
