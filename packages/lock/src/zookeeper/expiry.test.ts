import { beforeEach, describe, expect, test } from 'vitest';
import { ManualClock } from '../testing/manual-clock.js';
import { Expiry, type LeaseRecord } from './expiry.js';

const lease: LeaseRecord = {
  owner: 'a',
  ttlMs: 5_000,
  version: 1,
  czxid: 7n,
  mzxid: 8n,
  mtimeMs: 1_000_000,
};

describe('the end of a lease whose holder is silent', () => {
  let clock: ManualClock;
  let expiry: Expiry;
  const remainingMs = (record: LeaseRecord = lease): number => expiry.remainingMs('/x', record);

  beforeEach(() => {
    clock = new ManualClock();
    expiry = new Expiry(clock);
  });

  test('comes a whole TTL after this process has first seen the lease', async () => {
    expect(remainingMs()).toBe(5_000);
    await clock.advance(4_999);
    expect(remainingMs()).toBe(1);
    await clock.advance(1);
    expect(remainingMs()).toBe(0);
  });

  test('is put off by each extension', async () => {
    remainingMs();
    await clock.advance(4_000);
    expect(remainingMs({ ...lease, mzxid: 9n, ttlMs: 6_000 })).toBe(6_000);
  });

  test('comes 10 s after the TTL by the clock of the leader, for a process that sees the lease late', async () => {
    expect(expiry.needsSample).toBe(true);
    expiry.onLeaderTime(lease.mtimeMs + 14_999);
    expect(expiry.needsSample).toBe(false);
    expect(remainingMs()).toBe(1);
    await clock.advance(1);
    expect(remainingMs()).toBe(0);
  });

  test('does not come earlier if the clock of the leader lags, or was read long ago', async () => {
    expiry.onLeaderTime(lease.mtimeMs - 60_000);
    expect(remainingMs()).toBe(5_000);
    await clock.advance(10_001);
    expect(expiry.needsSample).toBe(true);
    expect(expiry.remainingMs('/y', lease)).toBe(5_000);
  });

  test('comes a whole TTL later if this process has seen 1,000 other leases since', async () => {
    remainingMs();
    await clock.advance(4_000);
    for (let i = 0; i < 1_000; i += 1) expiry.remainingMs(`/${i}`, lease);
    expect(remainingMs()).toBe(5_000);
  });
});
