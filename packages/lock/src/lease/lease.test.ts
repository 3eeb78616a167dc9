import { subscribe, unsubscribe } from 'node:diagnostics_channel';
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
  const closing = new AbortController().signal;
  const service = { runtime, maxTtlMs: 60_000, closing, shared: () => {}, ended };
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

test('a lease whose extensions fail says why early, and its loss has that cause', async () => {
  const runtime = new ManualRuntime();
  const refused = new Error('401: the key is not known');
  const held = lease(runtime, { extend: () => Promise.reject(refused) });
  const events: unknown[] = [];
  const note = (event: unknown): void => void events.push(event);
  subscribe('fenced:lock:extension-failed', note);
  runtime.now = 400;
  await expect(held.extend(1_000)).rejects.toBe(refused);
  unsubscribe('fenced:lock:extension-failed', note);
  expect(events).toEqual([{ resources: ['x'], token: 33n, remainingMs: 600, error: refused }]);
  expect(held.extensionError).toBe(refused);
  runtime.now = 1_000;
  const { reason } = held.signal;
  expect(reason).toMatchObject({ message: expect.stringMatching(/time has passed; .*401/) });
  expect(reason.cause).toBe(refused);
  expect(() => held.ensure()).toThrow(expect.objectContaining({ cause: refused }));
});

test('a lease that ends before its extension is answered says so', async () => {
  const runtime = new ManualRuntime();
  const held = lease(runtime, { extend: () => new Promise(() => {}) });
  void held.extend(1_000);
  runtime.now = 1_000;
  expect(held.signal.reason.message).toMatch(/its last extension failed: it has no answer yet/);
});

test('an extension that fails after a later one succeeded is no failure of the lease', async () => {
  const runtime = new ManualRuntime();
  const { promise, reject } = Promise.withResolvers<number>();
  const answers = [promise, Promise.resolve(2_000)];
  const held = lease(runtime, { extend: () => answers.shift() ?? Promise.resolve(0) });
  const first = held.extend(1_000);
  await held.extend(1_000);
  reject(new Error('no answer'));
  await expect(first).rejects.toThrow('no answer');
  expect(held.extensionError).toBeNull();
});
