import fc from 'fast-check';
import { expect, test } from 'vitest';
import { machineClock } from './machine-clock.js';

/** The clocks of a machine that wakes and sleeps. Its uptime is rounded down to 10 ms. */
class Machine {
  awakeMs = 7;
  asleepMs = 3;
  wallOffsetMs = 1_800_000_000_000;
  readonly now = machineClock({
    monotonicMs: () => this.awakeMs,
    wallMs: () => Math.floor(this.awakeMs + this.asleepMs + this.wallOffsetMs),
    uptimeMs: () => Math.floor((this.awakeMs + this.asleepMs) / 10) * 10,
  });
}

test('the clock counts a sleep in full, and at most 20 ms more', () => {
  const lengthMs = fc.double({ min: 0, max: 5_000, noNaN: true });
  fc.assert(
    fc.property(fc.array(fc.tuple(lengthMs, lengthMs), { maxLength: 8 }), (spells) => {
      const machine = new Machine();
      const startMs = machine.now();
      let [truthMs, lastMs, sleeps] = [0, startMs, 0];
      for (const [awakeMs, asleepMs] of spells) {
        machine.awakeMs += awakeMs;
        machine.asleepMs += asleepMs;
        truthMs += awakeMs + asleepMs;
        sleeps += 1;
        const nowMs = machine.now();
        expect(nowMs).toBeGreaterThanOrEqual(lastMs);
        // A sleep of up to 20 ms may be too short for the steps of the uptime.
        expect(nowMs - startMs).toBeGreaterThan(truthMs - 20 * sleeps - 1e-6);
        expect(nowMs - startMs).toBeLessThan(truthMs + 20 * sleeps + 1e-6);
        lastMs = nowMs;
      }
    }),
  );
});

test('the clock counts a sleep of two steps or more in full', () => {
  const machine = new Machine();
  const startMs = machine.now();
  machine.asleepMs += 5_000;
  expect(machine.now() - startMs).toBeGreaterThanOrEqual(5_000);
  expect(machine.now() - startMs).toBeLessThan(5_020);
});

test('jumps of the wall clock change nothing', () => {
  const machine = new Machine();
  const startMs = machine.now();
  for (const jumpMs of [3_600_000, -7_200_000, 40]) {
    machine.wallOffsetMs += jumpMs;
    expect(machine.now()).toBe(startMs);
  }
});

test('a sleep that the wall clock does not show is counted after a second of waking time', () => {
  const machine = new Machine();
  const startMs = machine.now();
  machine.asleepMs += 5_000;
  machine.wallOffsetMs -= 5_000;
  machine.awakeMs += 1_000;
  expect(machine.now() - startMs).toBeGreaterThanOrEqual(6_000);
});
