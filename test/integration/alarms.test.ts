import { readFile } from 'node:fs/promises';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Alarms as StoreAlarms } from '../../packages/fenced-store/src/postgres/alarms.js';
import { Alarms as LockAlarms } from '../../packages/lock/src/alarms.js';

/** A clock that stands until it is put forward, and rings its timers as Node does: each once, the earliest first. */
class Clock {
  timers: { readonly dueMs: number; readonly callback: () => void }[] = [];
  #nowMs = 0;

  nowMs(): number {
    return this.#nowMs;
  }

  after(delayMs: number, callback: () => void): () => void {
    const timer = { dueMs: this.#nowMs + delayMs, callback };
    this.timers.push(timer);
    return () => {
      this.timers = this.timers.filter((other) => other !== timer);
    };
  }

  putForward(ms: number): void {
    const endMs = this.#nowMs + ms;
    for (;;) {
      const [next] = this.timers.toSorted((a, b) => a.dueMs - b.dueMs);
      if (!next || next.dueMs > endMs) break;
      this.timers = this.timers.filter((timer) => timer !== next);
      this.#nowMs = next.dueMs;
      next.callback();
    }
    this.#nowMs = endMs;
  }
}

const step = fc.oneof(
  fc.record({ set: fc.integer({ min: 0, max: 20 }) }),
  fc.record({ callOff: fc.nat() }),
  fc.record({ wait: fc.integer({ min: 0, max: 15 }) }),
);

// Neither package imports the other, so each has the file.
test('the two packages share one text', async () => {
  const [lock, store] = await Promise.all(
    ['lock/src/alarms.ts', 'fenced-store/src/postgres/alarms.ts'].map((file) =>
      readFile(new URL(`../../packages/${file}`, import.meta.url), 'utf8'),
    ),
  );
  expect(lock).toBe(store);
});

describe.each([
  ['lock', LockAlarms],
  ['store', StoreAlarms],
])('alarms of the %s', (_, Alarms) => {
  test('each rings once, at its time, unless it was called off before; with one timer for all', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const clock = new Clock();
        const alarms = new Alarms(clock);
        const set: { dueMs: number; rangAtMs: number[]; isOff: boolean; callOff: () => void }[] =
          [];
        for (const each of steps) {
          if ('wait' in each) clock.putForward(each.wait);
          else if ('set' in each) {
            const rangAtMs: number[] = [];
            const callOff = alarms.after(each.set, () => rangAtMs.push(clock.nowMs()));
            set.push({ dueMs: clock.nowMs() + each.set, rangAtMs, isOff: false, callOff });
          } else {
            const alarm = set[each.callOff % Math.max(1, set.length)];
            alarm?.callOff();
            if (alarm) alarm.isOff ||= alarm.rangAtMs.length === 0;
          }
          expect(clock.timers.length).toBeLessThanOrEqual(1);
        }
        clock.putForward(100);
        for (const { dueMs, rangAtMs, isOff } of set)
          expect(rangAtMs).toEqual(isOff ? [] : [dueMs]);
        expect(clock.timers).toEqual([]);
      }),
    );
  });

  test('one that rings may call off another that is due, and set new ones', () => {
    const clock = new Clock();
    const alarms = new Alarms(clock);
    const rang: string[] = [];
    alarms.after(5, () => {
      rang.push('first');
      callOff();
      alarms.after(5, () => rang.push('third'));
    });
    const callOff = alarms.after(5, () => rang.push('second'));
    clock.putForward(20);
    expect(rang).toEqual(['first', 'third']);
  });

  test('a timer that is lost is not waited for: fake timers, and then the real ones again', () => {
    const clock = new Clock();
    const alarms = new Alarms(clock);
    const rang: string[] = [];
    alarms.after(5, () => rang.push('first'));
    clock.timers = [];
    clock.putForward(150);
    alarms.after(5, () => rang.push('second'));
    clock.putForward(1);
    expect(rang).toEqual(['first']);
    clock.putForward(5);
    expect(rang).toEqual(['first', 'second']);
  });
});
