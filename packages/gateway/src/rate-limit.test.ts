import fc from 'fast-check';
import { expect, test } from 'vitest';
import { addressName, createRateLimit } from './rate-limit.js';

function limitWithClock(options: Parameters<typeof createRateLimit>[0]) {
  const clock = { nowMs: 0 };
  return { clock, limit: createRateLimit(options, () => clock.nowMs) };
}

test('a burst passes, then one at a time, and the reported wait is enough', () => {
  const { clock, limit } = limitWithClock({ perSecond: 10, burst: 3 });
  for (let i = 0; i < 3; i++) expect(limit.take('a')).toEqual({ ok: true });
  expect(limit.take('a')).toEqual({ ok: false, retryAfterMs: 100 });
  expect(limit.take('b')).toEqual({ ok: true });
  clock.nowMs += 99;
  expect(limit.take('a')).toEqual({ ok: false, retryAfterMs: 1 });
  clock.nowMs += 1;
  expect(limit.take('a')).toEqual({ ok: true });
  expect(limit.take('a')).toMatchObject({ ok: false });
});

test('no period passes more than burst and rate, and refused requests do not count', () => {
  const pauses = fc.array(fc.nat({ max: 400 }), { minLength: 20, maxLength: 200 });
  const property = fc.property(
    fc.integer({ min: 1, max: 20 }),
    fc.integer({ min: 1, max: 10 }),
    pauses,
    (perSecond, burst, waits) => {
      const { clock, limit } = limitWithClock({ perSecond, burst });
      const taken: number[] = [];
      for (const wait of waits) {
        clock.nowMs += wait;
        const verdict = limit.take('a');
        if (verdict.ok) taken.push(clock.nowMs);
        else expect(verdict.retryAfterMs).toBeGreaterThan(0);
      }
      for (const [from, start] of taken.entries())
        for (const [to, end] of taken.entries())
          if (to >= from)
            // 0.01 covers rounding errors.
            expect(to - from + 1).toBeLessThanOrEqual(
              burst + ((end - start) * perSecond) / 1_000 + 0.01,
            );
      // A request after the reported time passes.
      const verdict = limit.take('a');
      if (!verdict.ok) {
        clock.nowMs += verdict.retryAfterMs;
        expect(limit.take('a').ok).toBe(true);
      }
    },
  );
  fc.assert(property);
});

test('invented names neither grow the memory nor reset an allowance', () => {
  const { clock, limit } = limitWithClock({ perSecond: 1, burst: 2, namesMax: 100 });
  expect(limit.take('victim').ok).toBe(true);
  expect(limit.take('victim').ok).toBe(true);
  let letThrough = 0;
  for (let i = 0; i < 10_000; i++) if (limit.take(`stranger ${i}`).ok) letThrough++;
  // One request of each of 99 remembered names, and a burst of 2 that all other names share.
  expect(letThrough).toBe(99 + 2);
  expect(limit.take('victim').ok).toBe(false);
  clock.nowMs += 2_000;
  for (let i = 0; i < 50; i++) expect(limit.take(`later ${i}`).ok).toBe(true);
});

test('a busy name does not keep idle ones in memory', () => {
  const { clock, limit } = limitWithClock({ perSecond: 1, burst: 2, namesMax: 10 });
  limit.take('busy');
  for (let i = 0; i < 9; i++) limit.take(`gone ${i}`);
  for (let i = 0; i < 5; i++) {
    clock.nowMs += 900;
    limit.take('busy');
  }
  for (let i = 0; i < 9; i++) {
    const newcomer = `new ${i}`;
    expect([limit.take(newcomer).ok, limit.take(newcomer).ok]).toEqual([true, true]);
  }
});

test.each([
  [{ perSecond: 0, burst: 1 }, 'perSecond'],
  [{ perSecond: 1, burst: 0 }, 'burst'],
  [{ perSecond: 1, burst: 1, namesMax: 0 }, 'namesMax'],
  [{ perSecond: Number.NaN, burst: 1 }, 'perSecond'],
])('%j is refused', (options, name) => {
  expect(() => createRateLimit(options, () => 0)).toThrow(`${name} must be a whole number`);
});

test.each([
  ['192.0.2.7', '192.0.2.7'],
  ['::ffff:192.0.2.7', '192.0.2.7'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
  ['2001:0DB8:1:2::9', '2001:db8:1:2::/64'],
  ['2001:db8::1', '2001:db8:0:0::/64'],
  ['::1', '0:0:0:0::/64'],
  ['fe80::1%eth0', 'fe80:0:0:0::/64'],
  ['1::', '1:0:0:0::/64'],
  ['', ''],
])('the address %s counts as %s', (address, name) => {
  expect(addressName(address)).toBe(name);
});
