import { expect, test } from 'vitest';
import { FencedGateway } from './index.js';

/** A client, and a gateway whose every answer is 100 ms on its way. Both go by one manual clock. */
function gatewayWithClock() {
  const clock = { nowMs: 1_000 };
  const timers: (() => void)[] = [];
  const sleeps: { readonly delayMs: number; readonly resolve: () => void }[] = [];
  const runtime = {
    nowMs: () => clock.nowMs,
    after: (_: number, callback: () => void) => {
      timers.push(callback);
      return () => undefined;
    },
    random: () => 0,
    sleep: (delayMs: number, signal: AbortSignal | undefined) => {
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      const slept = { delayMs, resolve };
      signal?.addEventListener('abort', () => {
        if (sleeps.includes(slept)) sleeps.splice(sleeps.indexOf(slept), 1);
        reject(signal.reason);
      });
      sleeps.push(slept);
      return promise;
    },
  };
  const answer = { elapsedMs: 5_000, remainingMs: 9_000 };
  const requests: string[] = [];
  /** Called for the next requests, in order, before they are answered. */
  const before: ((init: RequestInit) => Promise<void>)[] = [];
  const fetcher = async (_: unknown, init: RequestInit = {}): Promise<Response> => {
    await before.shift()?.(init);
    clock.nowMs += answer.elapsedMs + 100;
    requests.push(init.method ?? 'GET');
    return Response.json({ leaseId: 'id', token: '34', outcome: 'released', ...answer });
  };
  const gateway = new FencedGateway({ url: 'http://gateway.invalid', fetch: fetcher }, runtime);
  return { gateway, clock, answer, timers, sleeps, requests, before };
}

test('a client relies on a lease for no longer than its gateway, and a wait does not shorten the lease', async () => {
  const { gateway, clock, answer } = gatewayWithClock();
  const lease = await gateway.acquire('a', { ttlMs: 10_000, waitMs: 5_000 });
  // The gateway answered 5,000 ms after 1,000 at the earliest, by a clock that may be 1 % faster,
  // and the answer came at 6,100.
  expect(lease.remainingMs()).toBe(8_848);
  Object.assign(answer, { elapsedMs: 20, remainingMs: 5_000 });
  await lease.extend(20_000);
  expect(lease.remainingMs()).toBe(8_848 - 120);
  answer.remainingMs = 20_000;
  await lease.extend(20_000);
  expect(lease.remainingMs()).toBeCloseTo(20_000 - 100 - 2.2);
  clock.nowMs += 19_896;
  lease.ensure();
  clock.nowMs += 2;
  expect(lease.remainingMs()).toBe(0);
  expect(lease.signal.aborted).toBe(true);
});

test('a client whose clock moved less than the gateway waited counts from the moment of the answer', async () => {
  const { gateway, clock, answer, before } = gatewayWithClock();
  before.push(async () => {
    clock.nowMs -= answer.elapsedMs;
  });
  const lease = await gateway.acquire('a', { ttlMs: 10_000, waitMs: 5_000 });
  expect(lease.remainingMs()).toBe(9_000);
});

test('a timer that fires early is set again, and one that fires on time ends the lease', async () => {
  const { gateway, clock, timers } = gatewayWithClock();
  const lease = await gateway.acquire('a', { ttlMs: 10_000 });
  timers.pop()?.();
  expect(lease.signal.aborted).toBe(false);
  clock.nowMs += 8_900;
  timers.pop()?.();
  expect(lease.signal.reason).toMatchObject({ name: 'LeaseError', code: 'lease-lost' });
});

test('using extends the lease while the routine runs, and releases it at the end', async () => {
  const { gateway, answer, sleeps, requests } = gatewayWithClock();
  answer.elapsedMs = 0;
  const result = await gateway.using('a', { ttlMs: 10_000 }, async (lease) => {
    expect(sleeps.pop()?.delayMs).toBe(4_449);
    return lease.token;
  });
  expect([result, requests]).toEqual([34n, ['POST', 'DELETE']]);
  await gateway.using('a', { ttlMs: 10_000 }, async () => {
    sleeps.pop()?.resolve();
    await expect.poll(() => sleeps.length).toBe(1);
  });
  expect(requests).toEqual(['POST', 'DELETE', 'POST', 'PATCH', 'DELETE']);
});

test('a lease that is granted after an abort is released', async () => {
  const { gateway, requests } = gatewayWithClock();
  for (const waitMs of [0, 1_000]) {
    const controller = new AbortController();
    const { signal } = controller;
    const asked = gateway.acquire('a', { ttlMs: 10_000, waitMs, signal });
    controller.abort(new Error('enough'));
    await expect(asked).rejects.toThrow('enough');
    await expect.poll(() => requests).toEqual(['POST', 'DELETE']);
    requests.length = 0;
  }
  const attempt = gateway.tryAcquire('a', { ttlMs: 10_000 });
  await gateway.close();
  expect(await attempt).toMatchObject({ ok: false, reason: 'aborted' });
  await expect.poll(() => requests).toEqual(['POST', 'DELETE']);
  await expect(gateway.tryAcquire('a', { ttlMs: 10_000 })).rejects.toMatchObject({
    code: 'closed',
  });
});

test('a lease whose answer comes after its end is released, and reported as a failure', async () => {
  const { gateway, answer, requests } = gatewayWithClock();
  answer.remainingMs = 100;
  await expect(gateway.acquire('a', { ttlMs: 10_000 })).rejects.toMatchObject({
    code: 'no-quorum',
  });
  await expect.poll(() => requests).toEqual(['POST', 'DELETE']);
  expect(await gateway.tryAcquire('a', { ttlMs: 10_000 })).toMatchObject({
    ok: false,
    reason: 'no-quorum',
    retryAfterMs: 1,
  });
});

test('a lease that lasts until maxHoldMs is not extended any more', async () => {
  const { gateway, clock, answer, sleeps, requests } = gatewayWithClock();
  answer.elapsedMs = 0;
  const held = gateway.using('a', { ttlMs: 10_000, maxHoldMs: 12_000 }, async (lease) => {
    expect(lease.remainingMs()).toBe(8_898);
    clock.nowMs += 5_000;
    sleeps.pop()?.resolve();
    await expect.poll(() => lease.remainingMs()).toBe(6_900);
    clock.nowMs += 6_900;
    expect(lease.signal.reason.message).toContain('maxHoldMs=12000');
  });
  await expect(held).rejects.toMatchObject({ code: 'lease-lost' });
  expect(sleeps).toEqual([]);
  expect(requests).toEqual(['POST', 'PATCH', 'DELETE']);
});

test('an extension without an answer is sent again within 2 s, and given up when the other is answered', async () => {
  const { gateway, clock, answer, sleeps, requests, before } = gatewayWithClock();
  answer.remainingMs = 12_000;
  const given: AbortSignal[] = [];
  const end = Promise.withResolvers<void>();
  const working = gateway.using('a', { ttlMs: 12_000 }, () => end.promise);
  const wake = async (): Promise<number> => {
    await expect.poll(() => sleeps.length).toBe(1);
    const slept = sleeps.pop();
    clock.nowMs += slept?.delayMs ?? 0;
    slept?.resolve();
    return slept?.delayMs ?? 0;
  };
  const silent = async ({ signal }: RequestInit): Promise<void> => {
    if (signal) given.push(signal);
    await new Promise((_, reject) => signal?.addEventListener('abort', reject));
  };
  answer.elapsedMs = 20;
  await expect.poll(() => sleeps.length).toBe(1);
  before.push(silent);
  expect(await wake()).toBeGreaterThan(5_000);
  await expect.poll(() => given.length).toBe(1);
  expect(await wake()).toBe(2_000);
  await expect.poll(() => requests).toEqual(['POST', 'PATCH']);
  await expect.poll(() => given[0]?.aborted).toBe(true);
  end.resolve();
  await working;
  expect(requests).toEqual(['POST', 'PATCH', 'DELETE']);
});

test('close releases the leases that have not ended, each once', async () => {
  const { gateway, clock, requests } = gatewayWithClock();
  const early = await gateway.acquire('a', { ttlMs: 10_000 });
  clock.nowMs += 60_000;
  expect(early.remainingMs()).toBe(0);
  const lease = await gateway.acquire('a', { ttlMs: 10_000 });
  await gateway.close();
  await gateway.close();
  expect(lease.signal.reason).toMatchObject({ code: 'closed' });
  expect(() => lease.ensure()).toThrow('the lease was released');
  expect(requests).toEqual(['POST', 'POST', 'DELETE']);
});

test('close waits for the answer to an acquisition under way, and for the release of its lease', async () => {
  const { gateway, requests, before } = gatewayWithClock();
  const { promise: answered, resolve } = Promise.withResolvers<void>();
  before.push(() => answered);
  const asked = gateway.acquire('a', { ttlMs: 10_000 });
  const closed = gateway.close().then(() => [...requests]);
  await expect(asked).rejects.toMatchObject({ code: 'closed' });
  resolve();
  expect(await closed).toEqual(['POST', 'DELETE']);
});

test('an acquisition that waits outlasts a gateway that is down, and asks less and less often', async () => {
  const { gateway, clock, sleeps, requests, before } = gatewayWithClock();
  const waits: unknown[] = [];
  const refuse = async ({ body }: RequestInit): Promise<void> => {
    waits.push(JSON.parse(String(body)).waitMs);
    throw Object.assign(new TypeError('fetch failed'), { cause: { code: 'ECONNREFUSED' } });
  };
  const wake = async (): Promise<number> => {
    await expect.poll(() => sleeps.length).toBe(1);
    const slept = sleeps.pop();
    clock.nowMs += slept?.delayMs ?? 0;
    slept?.resolve();
    return slept?.delayMs ?? 0;
  };
  before.push(...Array.from({ length: 8 }, () => refuse));
  const asked = gateway.acquire('a', { ttlMs: 10_000, waitMs: 10_000 });
  const pauses: number[] = [];
  for (const _ of [refuse, ...before]) pauses.push(await wake());
  expect(pauses).toEqual([25, 50, 100, 200, 400, 800, 1_000, 1_000]);
  expect(waits.slice(0, 3)).toEqual([10_000, 9_975, 9_925]);
  expect((await asked).token).toBe(34n);
  expect(requests).toEqual(['POST']);

  before.push(refuse, refuse);
  const short = gateway.acquire('a', { ttlMs: 10_000, waitMs: 60 });
  await wake();
  await expect(short).rejects.toMatchObject({ code: 'unavailable' });
  before.push(refuse);
  await expect(gateway.acquire('a', { ttlMs: 10_000 })).rejects.toThrow(
    /^the gateway at http:.* cannot be reached, and nothing was written: .+/,
  );
  expect(sleeps).toEqual([]);
});

test('using reports a lease that ended before its routine', async () => {
  const { gateway, clock, requests } = gatewayWithClock();
  const late = gateway.using('a', { ttlMs: 10_000 }, () => {
    clock.nowMs += 20_000;
  });
  await expect(late).rejects.toMatchObject({ code: 'lease-lost' });
  expect(requests).toEqual(['POST', 'DELETE']);
});

test('a lease whose key was revoked keeps the reason, also when it is over', async () => {
  const { gateway, clock, before } = gatewayWithClock();
  const lease = await gateway.acquire('a', { ttlMs: 10_000 });
  expect(lease.extensionError).toBeNull();
  const refused = new TypeError('the key was revoked');
  before.push(() => Promise.reject(refused));
  const extended = await lease.extend(10_000).catch((error: unknown) => error);
  expect(extended).toBeInstanceOf(Error);
  expect(lease.extensionError).toBe(extended);
  clock.nowMs += 9_000;
  const { reason } = lease.signal;
  expect(reason).toMatchObject({ code: 'lease-lost', cause: extended });
  expect(reason.message).toContain(`its last extension failed: ${(extended as Error).message}`);
  expect(() => lease.ensure()).toThrow(expect.objectContaining({ cause: extended }));
});
