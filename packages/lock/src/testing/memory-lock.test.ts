import { expect, test } from 'vitest';
import { LockMemory, ManualClock, MemoryLock } from './memory-lock.js';

/** Two workers that share locks, and their clock. */
function open() {
  const clock = new ManualClock();
  const memory = new LockMemory(clock);
  return { clock, one: new MemoryLock({ memory }), two: new MemoryLock({ memory }) };
}

test('a lease ends when the clock is moved, and the next one has a higher token', async () => {
  const { clock, one, two } = open();
  const lease = await one.acquire('x', { ttlMs: 10_000 });
  const { signal } = lease;
  await clock.advance(9_000);
  expect(lease.remainingMs()).toBeGreaterThan(0);
  expect(await two.tryAcquire('x', { ttlMs: 10_000 })).toMatchObject({ reason: 'held' });
  await clock.advance(1_000);
  expect(signal.aborted).toBe(true);
  const next = await two.acquire('x', { ttlMs: 10_000 });
  expect([lease.token, next.token]).toEqual([1n, 2n]);
  expect(await lease.release()).toBe('expired');
});

test('a caller that does not wait reads how to wait', async () => {
  const { one, two } = open();
  await one.acquire('x', { ttlMs: 10_000 });
  await expect(two.acquire('x', { ttlMs: 10_000 })).rejects.toThrow(
    'somebody else holds the lock, and waitMs=0 does not wait (resources=x; memory: held)',
  );
});

test('waiters are served in the order in which they came', async () => {
  const { clock, one, two } = open();
  const lease = await one.acquire('x', { ttlMs: 10_000 });
  const served: string[] = [];
  const waits = ['first', 'second', 'third'].map(async (name, at) => {
    await using _ = await (at === 1 ? one : two).acquire('x', { ttlMs: 1_000, waitMs: 60_000 });
    served.push(name);
  });
  await clock.advance(0);
  await lease.release();
  await clock.advance(60_000);
  await Promise.all(waits);
  expect(served).toEqual(['first', 'second', 'third']);
});

test('only the manual clock ends a wait and lets `using` extend its lease', async () => {
  const { clock, one, two } = open();
  const { promise: work, resolve: finish } = Promise.withResolvers<void>();
  const using = one.using('x', { ttlMs: 1_000 }, async (lease) => {
    await work;
    lease.ensure();
  });
  await clock.advance(0);
  const waiting = two.acquire('x', { ttlMs: 1_000, waitMs: 5_000 });
  const timeout = expect(waiting).rejects.toMatchObject({ code: 'timeout' });
  await clock.advance(20_000);
  await timeout;
  finish();
  await using;
});

test('the clock cannot be moved by a negative time or by NaN', async () => {
  const { clock } = open();
  await expect(clock.advance(-1)).rejects.toThrow(RangeError);
  await expect(clock.advance(Number.NaN)).rejects.toThrow(RangeError);
});
