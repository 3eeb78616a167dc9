import { randomUUID } from 'node:crypto';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { setTimeout } from 'node:timers/promises';
import type { AcquireFailure, Lease, Lock } from '@fenced/lock';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { ERRORS, gateway, LOCK_SERVICES, type Service } from './harness/lock-services.js';

describe.each(LOCK_SERVICES)('%s', (_, start) => {
  let service: Service;
  let errors = ERRORS;
  beforeAll(async () => {
    service = await start();
    errors = service.errors ?? ERRORS;
  });
  const isGateway = start === gateway;

  /** Requires that the call fails with that code, and an error of its class. */
  const failure = async (call: Promise<unknown>, code: string): Promise<void> => {
    const error = await call.then(
      () => 'no error',
      (reason: unknown) => reason,
    );
    expect(error).toMatchObject({ code });
    expect(error).toBeInstanceOf(errors[code]);
  };
  afterAll(() => service?.stop());

  /** Requires the token of the acquisition with this number in a new service. */
  const expectToken = (token: bigint, number: number): void => {
    if (!service.hasOwnTokens) expect(token).toBe(32n + BigInt(number));
  };

  /** Two clients of a new service. */
  const openTwo = async (): Promise<[Lock, Lock]> => {
    const name = randomUUID();
    return [await service.open(name), await service.open(name)];
  };

  test('tokens grow, from firstToken on if there is one, with each acquisition of any client', async () => {
    const [one, two] = await openTwo();
    const tokens: bigint[] = [];
    for (const lock of [one, two, one, one, two]) {
      const lease = await lock.acquire('invoice/42', { ttlMs: 5_000 });
      tokens.push(lease.token);
      expect(await lease.release()).toBe('released');
    }
    for (const [at, token] of tokens.entries()) {
      expectToken(token, at + 1);
      if (at > 0) expect(token).toBeGreaterThan(tokens[at - 1] ?? token);
    }
  });

  test('a lease keeps other clients out until its release, and the error names who refused', async () => {
    const [one, two] = await openTwo();
    const lease = await one.acquire('x', { ttlMs: 5_000 });
    const attempt = await two.tryAcquire('x', { ttlMs: 5_000 });
    expect(attempt).toMatchObject({ ok: false, reason: 'held' });
    if (attempt.ok) throw new Error('two hold it');
    expect(attempt.retryAfterMs).toBeGreaterThan(3_000);
    // A gateway does not show the lock nodes to its callers.
    const { nodes = [] } = attempt as Partial<AcquireFailure>;
    expect(nodes.some(({ answer }) => answer === 'held')).toBe(!isGateway);
    await failure(two.acquire('x', { ttlMs: 5_000 }), 'held');
    await using other = await two.acquire('y', { ttlMs: 5_000 });
    expect(other.resources).toEqual(['y']);
    await lease.release();
    await using next = await two.acquire('x', { ttlMs: 5_000 });
    expect(next.token).toBeGreaterThan(lease.token);
  });

  test('a waiter gets the lease after its release or its end, or gives up after waitMs', async () => {
    const [one, two] = await openTwo();
    const lease = await one.acquire('x', { ttlMs: 20_000 });
    await failure(two.acquire('x', { ttlMs: 5_000, waitMs: 80 }), 'timeout');
    const startedMs = performance.now();
    const waiting = two.acquire('x', { ttlMs: 400, waitMs: 10_000 });
    await setTimeout(100);
    await lease.release();
    const second = await waiting;
    expect(performance.now() - startedMs).toBeLessThan(5_000);
    expect(second.token).toBeGreaterThan(lease.token);
    await using last = await one.acquire('x', { ttlMs: 5_000, waitMs: 10_000 });
    expect(last.token).toBeGreaterThan(second.token);
    // A grant that came too late for its TTL has used up a token, so only the step is known.
    if (!service.hasOwnTokens) expect(last.token).toBe(second.token + 1n);
  });

  test('a release by owner id ends the lease of that owner in the same process at once', async () => {
    const [one] = await openTwo();
    const early = await Promise.all(['a', 'b'].map((name) => one.acquire(name, { ttlMs: 5_000 })));
    const [first, second] = early;
    const endOf = async (resource: string, lease = first): Promise<number | undefined> => {
      const owner = lease?.owner ?? '';
      expect(await one.release({ resource, owner })).toBe('released');
      return lease?.remainingMs();
    };
    expect(await endOf('a')).toBe(0);
    const late = await one.acquire('c', { ttlMs: 5_000 });
    expect(await endOf('c', late)).toBe(0);
    expect(await endOf('b', second)).toBe(0);
  });

  test('a lease ends at its deadline, and a release after that is no error', async () => {
    const [one, two] = await openTwo();
    const lease = await one.acquire('x', { ttlMs: 500, waitMs: 20_000 });
    expect(lease.remainingMs()).toBeLessThan(500);
    lease.ensure(10);
    await new Promise<void>((resolve) => {
      lease.signal.addEventListener('abort', () => resolve());
    });
    expect(lease.signal.reason).toBeInstanceOf(errors['lease-lost']);
    expect(() => lease.ensure()).toThrow(errors['lease-lost']);
    await failure(lease.extend(1_000), 'lease-lost');
    // The service holds the lock a little longer than its holder relies on it.
    await (await two.acquire('x', { ttlMs: 5_000, waitMs: 10_000 })).release();
    expect(await lease.release()).toBe('expired');
    expect(await lease.release()).toBe('expired');
  });

  test('a lease can be extended under its token, never shortened, and never regained', async () => {
    const [one, two] = await openTwo();
    const lease = await one.acquire('x', { ttlMs: 5_000 });
    await lease.extend(20_000);
    await lease.extend(500);
    expect(lease.remainingMs()).toBeGreaterThan(15_000);
    expect(await two.tryAcquire('x', { ttlMs: 5_000 })).toMatchObject({ reason: 'held' });
    await lease.release();
    await using _ = await two.acquire('x', { ttlMs: 5_000 });
    await failure(lease.extend(500), 'lease-lost');
  });

  test('another process extends and releases a lease by its owner and token', async () => {
    const [one, two] = await openTwo();
    for (const resource of ['x', ['y', 'x']]) {
      const { resources, owner, token } = await one.acquire(resource, { ttlMs: 5_000 });
      const held = { resource: resources, owner, token };
      expect(await two.extend(held, 20_000)).toBeGreaterThan(15_000);
      expect(await two.release(held)).toBe('released');
      expect(await two.release(held)).toBe('expired');
      await failure(two.extend(held, 5_000), 'lease-lost');
    }
  });

  test('an owner id does not bring back a lease that is over, and its lock is free', async () => {
    const [one, two] = await openTwo();
    const lease = await one.acquire(['y', 'x'], { ttlMs: 500, waitMs: 20_000 });
    const held = { resource: lease.resources, owner: lease.owner, token: lease.token };
    // Twice its time, because the service may hold the lock for a little longer than its holder.
    await setTimeout(1_000);
    expect(lease.remainingMs()).toBe(0);
    await failure(two.extend(held, 5_000), 'lease-lost');
    await (await two.acquire(['y', 'x'], { ttlMs: 5_000, waitMs: 10_000 })).release();
  });

  test('several resources are locked together or not at all, under one higher token', async () => {
    const [one, two] = await openTwo();
    const tokens: bigint[] = [];
    for (const set of ['a', 'b', ['b', 'a'], 'a', ['a', 'c'], 'c']) {
      const lease = await one.acquire(set, { ttlMs: 5_000 });
      tokens.push(lease.token);
      await lease.release();
    }
    expect(tokens.slice(2)).toEqual(tokens.slice(2).toSorted((x, y) => Number(x - y)));
    const held = await one.acquire('b', { ttlMs: 5_000 });
    await failure(two.acquire(['a', 'b', 'c'], { ttlMs: 5_000 }), 'held');
    await (await two.acquire('a', { ttlMs: 5_000, waitMs: 4_000 })).release();
    await held.release();
    await using set = await two.acquire(['c', 'a', 'b'], { ttlMs: 5_000, waitMs: 4_000 });
    expect(set.resources).toEqual(['a', 'b', 'c']);
    await failure(one.acquire('c', { ttlMs: 5_000 }), 'held');
  });

  test('using extends the lease while the routine runs', async () => {
    const [one] = await openTwo();
    const startedMs = performance.now();
    let heard = 0;
    const hear = () => {
      heard += 1;
    };
    subscribe('fenced:lock:extended', hear);
    const token = await one.using('x', { ttlMs: 800 }, async (lease) => {
      let leftMs = lease.remainingMs();
      for (let extensions = 0; extensions < 4; ) {
        await setTimeout(20, undefined, { signal: lease.signal });
        if (lease.remainingMs() > leftMs) extensions += 1;
        leftMs = lease.remainingMs();
      }
      lease.ensure();
      return lease.token;
    });
    unsubscribe('fenced:lock:extended', hear);
    // The client of a gateway publishes no events.
    expect(heard >= 4).toBe(!isGateway);
    expectToken(token, 1);
    expect(performance.now() - startedMs).toBeGreaterThan(800);
    const failing = one.using('y', { ttlMs: 500 }, () => Promise.reject(new Error('no paper')));
    await expect(failing).rejects.toThrow('no paper');
    await using _ = await one.acquire('y', { ttlMs: 5_000, waitMs: 10_000 });
  });

  test('using ends a lease after maxHoldMs, and the next client gets it at once', async () => {
    const [one, two] = await openTwo();
    const limited = one.using('x', { ttlMs: 1_000, maxHoldMs: 1_200 }, async (lease) => {
      const startedMs = performance.now();
      await new Promise((resolve) => lease.signal.addEventListener('abort', resolve));
      expect(performance.now() - startedMs).toBeGreaterThan(1_190);
      expect(lease.signal.reason).toMatchObject({ code: 'lease-lost' });
      // Without the release, the nodes would hold the lock for up to a second more.
      await using _ = await two.acquire('x', { ttlMs: 1_000, waitMs: 500 });
      await lease.extend(1_000);
    });
    await failure(limited, 'lease-lost');
    await expect(limited).rejects.toThrow('maxHoldMs=1200');
    const tooShort = one.using('x', { ttlMs: 1_000, maxHoldMs: 999 }, () => undefined);
    await expect(tooShort).rejects.toThrow(/maxHoldMs .* from 1000 .*ttlMs=1000.* maxHoldMs=999/);
    await failure(tooShort, 'invalid-argument');
  });

  test('after a pause longer than the TTL, the lease is over at once', async () => {
    const [one, two] = await openTwo();
    const blocked = one.using('x', { ttlMs: 400, waitMs: 20_000 }, async (lease) => {
      const { signal } = lease;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 600);
      // Lets a due timer run first, if the signal needs one.
      await setTimeout(1);
      expect(signal.aborted).toBe(true);
      expect(lease.remainingMs()).toBe(0);
      await using next = await two.acquire('x', { ttlMs: 5_000, waitMs: 5_000 });
      expect(next.token).toBeGreaterThan(lease.token);
    });
    await failure(blocked, 'lease-lost');
  });

  test('an abort ends the wait with its reason, and leaves no lease', async () => {
    const [one, two] = await openTwo();
    const lease = await one.acquire('x', { ttlMs: 5_000 });
    const controller = new AbortController();
    const reason = new Error('enough');
    const waiting = two.acquire('x', { ttlMs: 5_000, waitMs: 9_000, signal: controller.signal });
    void setTimeout(60).then(() => controller.abort(reason));
    await expect(waiting).rejects.toBe(reason);
    await lease.release();
    await using _ = await one.acquire('x', { ttlMs: 5_000, waitMs: 4_000 });
  });

  test('an abort during an acquisition releases what was granted', async () => {
    const [one, two] = await openTwo();
    for (let i = 0; i < 20; i++) {
      const controller = new AbortController();
      const attempt = one.tryAcquire('x', { ttlMs: 30_000, signal: controller.signal });
      void setTimeout(i % 4).then(() => controller.abort());
      const outcome = await attempt;
      if (outcome.ok) await outcome.lease.release();
      await using _ = await two.acquire('x', { ttlMs: 5_000, waitMs: 10_000 });
    }
  });

  test('close gives back what acquisitions that are under way take', async () => {
    const [one, two] = await openTwo();
    await (await one.acquire('x', { ttlMs: 5_000 })).release();
    const acquiring = ['x', 'y'].map((name) => one.acquire(name, { ttlMs: 20_000, waitMs: 5_000 }));
    const ended = acquiring.map((each) => expect(each).rejects.toMatchObject({ code: 'closed' }));
    await one.close();
    await Promise.all(ended);
    await (await two.acquire(['x', 'y'], { ttlMs: 5_000 })).release();
  });

  test('close releases all leases and ends all waits', async () => {
    const [one, two] = await openTwo();
    const lease = await one.acquire('x', { ttlMs: 30_000 });
    const waiting = two.acquire('x', { ttlMs: 500, waitMs: 20_000 });
    const also = one.acquire('x', { ttlMs: 500, waitMs: 20_000 });
    const ended = expect(also).rejects.toMatchObject({ code: 'closed' });
    await setTimeout(50);
    await one.close();
    await ended;
    expect(lease.signal.aborted).toBe(true);
    await (await waiting).release();
    await expect(one.acquire('x', { ttlMs: 500 })).rejects.toMatchObject({ code: 'closed' });
  });

  test('close aborts the signal of a routine, and releases its lease only after its end', async () => {
    const [one, two] = await openTwo();
    const began = Promise.withResolvers<Lease>();
    const end = Promise.withResolvers<void>();
    let isWorking = true;
    const working = one.using('x', { ttlMs: 1_000, waitMs: 20_000 }, async (lease) => {
      await using _ = await one.acquire('part', { ttlMs: 20_000, waitMs: 20_000 });
      began.resolve(lease);
      await end.promise;
      isWorking = false;
      return 'whole';
    });
    const lease = await began.promise;
    const { signal } = lease;
    const next = two.using('x', { ttlMs: 10_000, waitMs: 20_000 }, () => isWorking);
    const closed = one.close();
    expect(signal.reason).toMatchObject({ code: 'closed' });
    expect(lease.signal).toBe(signal);
    // Without an extension, it only falls.
    let leastMs = lease.remainingMs();
    await vi.waitFor(() => {
      const leftMs = lease.remainingMs();
      const beforeMs = leastMs;
      leastMs = Math.min(leastMs, leftMs);
      expect(leftMs).toBeGreaterThan(beforeMs + 50);
    }, 5_000);
    const late = one.using('y', { ttlMs: 1_000 }, () => 0);
    await expect(late).rejects.toMatchObject({ code: 'closed' });
    expect(await two.tryAcquire('part', { ttlMs: 1_000 })).toMatchObject({ reason: 'held' });
    end.resolve();
    expect(await working).toBe('whole');
    expect(await closed).toEqual({ abandoned: [] });
    expect(await next).toBe(false);
    expect(one.close()).toBe(closed);
  });

  test('close keeps the lease of a routine that does not end in time, and says so', async () => {
    const [one, two] = await openTwo();
    const began = Promise.withResolvers<Lease>();
    const end = Promise.withResolvers<void>();
    const working = one.using('x', { ttlMs: 20_000, waitMs: 20_000 }, async (lease) => {
      began.resolve(lease);
      await end.promise;
    });
    const { resources, token } = await began.promise;
    const plain = await one.acquire('y', { ttlMs: 20_000, waitMs: 20_000 });
    const { abandoned } = await one.close({ drainMs: 30 });
    expect(abandoned).toMatchObject([{ resources, token }]);
    expect(JSON.stringify(abandoned)).toBe(`[{"resources":["x"],"token":"${token}"}]`);
    expect(await two.tryAcquire('x', { ttlMs: 1_000 })).toMatchObject({ reason: 'held' });
    await (await two.acquire(plain.resources, { ttlMs: 1_000, waitMs: 5_000 })).release();
    end.resolve();
    await working;
  });

  test.each([
    ['no resource', undefined, { ttlMs: 1_000 }],
    ['an empty one', '', { ttlMs: 1_000 }],
    ['one twice', ['a', 'a'], { ttlMs: 1_000 }],
    ['half a surrogate pair', '\ud800', { ttlMs: 1_000 }],
    ['no time', 'x', {}],
    ['too little', 'x', { ttlMs: 9 }],
    ['too much', 'x', { ttlMs: 60_001 }],
    ['a wait that is none', 'x', { ttlMs: 1_000, waitMs: -1 }],
    ['a signal that is none', 'x', { ttlMs: 1_000, signal: {} }],
    ['no options', 'x', undefined],
  ])('bad input is refused before anything is sent: %s', async (_, resource, options) => {
    const [one] = await openTwo();
    const run = one.acquire(resource as string, options as { ttlMs: number });
    await failure(run, 'invalid-argument');
  });

  const seed = Number(process.env.FENCED_SEED ?? Date.now() % 2 ** 31);

  test(`tokens never repeat and never go back while many acquire (FENCED_SEED=${seed})`, async () => {
    const names = fc.constantFrom<string | string[]>('a', 'b', 'c', ['a', 'b'], ['c', 'a']);
    const plan = fc.array(fc.array(names, { minLength: 3, maxLength: 5 }), {
      minLength: 2,
      maxLength: 6,
    });
    const property = fc.asyncProperty(plan, async (lists) => {
      const [one, two] = await openTwo();
      const history: { names: readonly string[]; token: bigint; began: number; ended: number }[] =
        [];
      let clock = 0;
      const run = async (list: (string | string[])[], lock: Lock) => {
        for (const resource of list) {
          const began = clock++;
          const lease = await lock.acquire(resource, { ttlMs: 10_000, waitMs: 20_000 });
          const { resources, token } = lease;
          history.push({ names: resources, token, began, ended: clock++ });
          await lease.release();
        }
      };
      await Promise.all(lists.map((list, at) => run(list, at % 2 ? one : two)));
      for (const earlier of history) {
        for (const later of history) {
          const meet = earlier.names.some((name) => later.names.includes(name));
          if (!meet || earlier === later) continue;
          expect(earlier.token).not.toBe(later.token);
          if (earlier.ended < later.began) expect(earlier.token).toBeLessThan(later.token);
        }
      }
      expect(history.length).toBe(lists.flat().length);
    });
    await fc.assert(property, { seed, numRuns: 4 });
  }, 120_000);
});
