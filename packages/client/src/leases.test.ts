import { expect, test } from 'vitest';
import { FencedGateway } from './index.js';

/** A gateway whose every answer takes 100 ms on its way here, and whose clock is known. */
function gatewayWithClock() {
  const clock = { nowMs: 1_000 };
  const timers: (() => void)[] = [];
  const runtime = {
    nowMs: () => clock.nowMs,
    after: (_: number, callback: () => void) => {
      timers.push(callback);
      return () => undefined;
    },
    random: () => 0,
    sleep: async () => undefined,
  };
  const told = { elapsedMs: 5_000, remainingMs: 9_000 };
  const fetcher = async (): Promise<Response> => {
    clock.nowMs += told.elapsedMs + 100;
    return Response.json({ leaseId: 'id', token: '34', ...told });
  };
  const gateway = new FencedGateway({ url: 'http://gateway.invalid', fetch: fetcher }, runtime);
  return { gateway, clock, told, timers };
}

test('a lease is never believed in for longer than its gateway does, and no shorter for having waited', async () => {
  const { gateway, clock, told } = gatewayWithClock();
  const lease = await gateway.acquire('a', { ttlMs: 10_000, waitMs: 5_000 });
  // It was answered at 6 000 at the earliest, and came here at 6 100.
  expect(lease.remainingMs()).toBe(8_900);
  Object.assign(told, { elapsedMs: 20, remainingMs: 5_000 });
  await lease.extend(20_000);
  expect(lease.remainingMs()).toBe(8_900 - 120);
  told.remainingMs = 20_000;
  await lease.extend(20_000);
  expect(lease.remainingMs()).toBe(20_000 - 100);
  clock.nowMs += 19_899;
  lease.ensure();
  clock.nowMs += 1;
  expect(lease.remainingMs()).toBe(0);
  expect(lease.signal.aborted).toBe(true);
});

test('a timer that fires early is set again, and one that fires in time ends the lease', async () => {
  const { gateway, clock, timers } = gatewayWithClock();
  const lease = await gateway.acquire('a', { ttlMs: 10_000 });
  timers.pop()?.();
  expect(lease.signal.aborted).toBe(false);
  clock.nowMs += 8_900;
  timers.pop()?.();
  expect(lease.signal.reason).toMatchObject({ name: 'LeaseError', code: 'lease-lost' });
});
