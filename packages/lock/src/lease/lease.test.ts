import { expect, test } from 'vitest';
import { LeaseLostError } from '../core/errors.js';
import type { Runtime } from '../runtime/runtime.js';
import { type LeaseContext, LocalLease } from './lease.js';
import type { LockHandle } from './transport.js';

/** The test moves clock and timers. So the clock can pass a deadline before its timer fires. */
class ManualRuntime implements Runtime {
  now = 0;
  timers: (() => void)[] = [];
  readonly delaysMs: number[] = [];
  nowMs = (): number => this.now;
  wallClockMs = (): number => 0;
  random = (): number => 0;
  uniqueId = (): string => 'id';
  soon = (callback: () => void): void => callback();
  after = (delayMs: number, callback: () => void): (() => void) => {
    this.delaysMs.push(delayMs);
    this.timers.push(callback);
    return () => {
      this.timers = this.timers.filter((timer) => timer !== callback);
    };
  };
}

function lease(
  runtime: Runtime,
  { ended = () => {}, ...servers }: Partial<LockHandle & LeaseContext> = {},
): LocalLease {
  const release = async () => 'released' as const;
  const held = { resources: ['x'], token: 33n, deadlineMs: 1_000, owner: 'owner' };
  const handle = { ...held, extend: async () => 0, release, ...servers };
  const service = { runtime, maxTtlMs: 60_000, shared: () => {}, ended };
  return new LocalLease(handle, service);
}

test('a holder that was stopped past its deadline finds its signal aborted, before any timer has fired', () => {
  const runtime = new ManualRuntime();
  let ends = 0;
  const held = lease(runtime, { ended: () => (ends += 1) });
  const { signal } = held;
  runtime.now = 999;
  expect(held.remainingMs()).toBe(1);
  runtime.now = 1_000;
  expect(() => held.ensure()).toThrow(LeaseLostError);
  expect(signal.aborted).toBe(true);
  for (const timer of runtime.timers) timer();
  expect(ends).toBe(1);
});

test('a timer that fires before the deadline is set again, and does not end the lease', () => {
  const runtime = new ManualRuntime();
  const { signal } = lease(runtime);
  runtime.now = 999.5;
  runtime.timers.shift()?.();
  expect(signal.aborted).toBe(false);
  runtime.now = 1_000;
  runtime.timers.shift()?.();
  expect(signal.aborted).toBe(true);
});

test('after a sleep of the machine, in which timers stand still, a signal aborts within a second', () => {
  const runtime = new ManualRuntime();
  const { signal } = lease(runtime, { deadlineMs: 60_000 });
  expect(runtime.delaysMs).toEqual([1_000]);
  runtime.now = 90_000;
  runtime.timers.shift()?.();
  expect(signal.aborted).toBe(true);
});

test('an extension whose replies come after the old deadline does not bring the lease back', async () => {
  const runtime = new ManualRuntime();
  const held = lease(runtime, {
    extend: async () => {
      runtime.now = 1_000;
      return 5_000;
    },
  });
  await expect(held.extend(4_000)).rejects.toThrow(LeaseLostError);
  expect(held.remainingMs()).toBe(0);
});

test('an extension never brings the deadline of the holder forward', async () => {
  const runtime = new ManualRuntime();
  const held = lease(runtime, { extend: async () => 400 });
  await held.extend(400);
  expect(held.remainingMs()).toBe(1_000);
});

test('ensure fails if less time is left than it needs, and always after the release', async () => {
  const held = lease(new ManualRuntime());
  held.ensure(1_000);
  expect(() => held.ensure(1_001)).toThrow(LeaseLostError);
  expect(() => held.ensure(Number.NaN)).toThrow('ms must be 0 or more');
  expect(await held.release()).toBe('released');
  expect(() => held.ensure(0)).toThrow(LeaseLostError);
  expect(held.signal.aborted).toBe(true);
});
