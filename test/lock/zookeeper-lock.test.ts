import { fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { LockArgumentError } from '@fenced/lock';
import { ZooKeeperLock } from '@fenced/lock/zookeeper';
import { startZooKeeper, TcpProxy, type ZooKeeperService } from '@fenced/testbed';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { systemRuntime } from '../../packages/lock/src/runtime/runtime.js';
import { remove, setData } from '../../packages/lock/src/zookeeper/protocol/operations.js';
import { insist, kept, LockWorld } from './harness/zookeeper.js';

let service: ZooKeeperService;
let world: LockWorld;
let worlds = 0;
beforeAll(async () => {
  service = await startZooKeeper(3);
});
afterAll(() => service?.stop());
beforeEach(() => {
  worlds += 1;
  world = new LockWorld(service, `/test/${worlds}`);
});
afterEach(() => world?.[Symbol.asyncDispose]());

/** A lock whose connections all pass a proxy before one server. */
async function behindProxy(): Promise<{ lock: ZooKeeperLock; proxy: TcpProxy }> {
  const [server] = service.servers;
  const proxy = await TcpProxy.start(server ?? { host: '', port: 0 });
  return { lock: world.lock({ servers: `127.0.0.1:${proxy.port}` }), proxy };
}

test('a lease outlives the leader, and later tokens are greater', async () => {
  const lock = world.lock();
  const other = world.lock();
  const lease = await lock.acquire('x', { ttlMs: 6_000 });
  const waiting = other.acquire('x', { ttlMs: 6_000, waitMs: 60_000 });
  for (const [fail, mend] of [
    ['kill', 'start'],
    ['pause', 'wake'],
  ] as const) {
    await kept(lease, 6_000, async () => {
      const leader = await service.leader();
      await leader[fail]();
      while ((await service.leader()) === leader) await sleep(20);
      await leader[mend]();
    });
    lease.ensure();
  }
  await lease.release();
  const next = await waiting;
  expect(next.token).toBeGreaterThan(lease.token);
  // The upper 32 bits of a token count the elections of a leader.
  expect(next.token >> 32n).toBeGreaterThan(lease.token >> 32n);
  await next.release();
  await world.untilClean();
});

test('waiters get the lock in their order, and no client overtakes them', async () => {
  const locks = [world.lock(), world.lock(), world.lock()];
  const lease = await world.lock().acquire('x', { ttlMs: 20_000 });
  const order: number[] = [];
  const waiting = [];
  for (let turn = 0; turn < 9; turn += 1) {
    const lock = locks[turn % 3] ?? world.lock();
    const acquired = lock.acquire('x', { ttlMs: 20_000, waitMs: 20_000 });
    waiting.push(
      acquired.then(async (next) => {
        order.push(turn);
        await next.release();
      }),
    );
    await world.untilWaiting('x', turn + 1);
  }
  await lease.release();
  // The lock is free for a moment between two holders. This client may not take it then.
  for (;;) {
    const attempt = await world.lock().tryAcquire('x', { ttlMs: 1_000 });
    if (attempt.ok) break;
  }
  expect(order).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8]);
  await Promise.all(waiting);
});

test.each([1, 0])(
  'a client that has lost the reply to its acquisition finds its lease by reading (waits: %i)',
  async (waits) => {
    const { lock, proxy } = await behindProxy();
    await (await lock.acquire('other', { ttlMs: 5_000 })).release();
    const held = waits ? await world.lock().acquire('x', { ttlMs: 20_000 }) : null;
    const acquiring = lock.acquire('x', { ttlMs: 5_000, waitMs: 10_000 });
    if (held) await world.untilWaiting('x', 1);
    proxy.hold('toClient');
    await held?.release();
    // Releases all replies before the one that acquires, which stays held.
    for (;;) {
      await proxy.untilHeld('toClient');
      if ((await world.children('leases/x')).length > 0) break;
      proxy.release('toClient');
      proxy.hold('toClient');
    }
    const created = await world.children('leases/x');
    proxy.cut();
    proxy.heal();
    const lease = await acquiring;
    // The lease is that of the lost reply, not one of a second request.
    expect(created).toEqual([lease.owner]);
    expect(await world.children('leases/x')).toEqual(created);
    expect(await lease.release()).toBe('released');
    await world.untilClean();
    await proxy.stop();
  },
);

test('a waiter whose session has expired enqueues again', async () => {
  const { lock, proxy } = await behindProxy();
  const lease = await world.lock().acquire('x', { ttlMs: 30_000 });
  const waiting = lock.acquire('x', { ttlMs: 5_000, waitMs: 30_000 });
  const [before] = await world.untilWaiting('x', 1);
  proxy.hold('toServer');
  await world.untilWaiting('x', 0);
  proxy.cut();
  proxy.heal();
  const [after] = await world.untilWaiting('x', 1);
  expect(after).not.toBe(before);
  await lease.release();
  await (await waiting).release();
  await world.untilClean();
  await proxy.stop();
});

test('a waiter that is aborted after any number of replies leaves no position', async () => {
  const { lock, proxy } = await behindProxy();
  const lease = await world.lock().acquire('x', { ttlMs: 30_000 });
  await (await lock.acquire('other', { ttlMs: 5_000 })).release();
  for (let replies = 0; replies < 8; replies += 1) {
    const abort = new AbortController();
    proxy.hold('toClient');
    const options = { ttlMs: 5_000, waitMs: 30_000, signal: abort.signal };
    const waiting = lock.acquire('x', options).catch((error: Error) => error.name);
    for (let passed = 0; passed < replies; passed += 1) {
      await proxy.untilHeld('toClient');
      proxy.release('toClient');
      proxy.hold('toClient');
    }
    await proxy.untilHeld('toClient');
    abort.abort();
    expect(await waiting).toBe('AbortError');
    proxy.heal();
  }
  await lease.release();
  await world.untilClean();
  await proxy.stop();
});

test('an extension that comes just before a takeover keeps the lease', async () => {
  const { lock, proxy } = await behindProxy();
  // The holder's clock is slow. By another clock, its lease is over when it extends the lease.
  const slow = { ...systemRuntime, nowMs: () => systemRuntime.nowMs() / 20 };
  const owner = world.lock({}, slow);
  const lease = await owner.acquire('x', { ttlMs: 1_000 });
  const waiting = lock.acquire('x', { ttlMs: 2_000, waitMs: 20_000 });
  await world.untilWaiting('x', 1);
  proxy.hold('toServer');
  // Waits for the request that takes the lock over: it is longer than reads and pings.
  for (;;) {
    await proxy.untilHeld('toServer');
    if (proxy.heldBytes('toServer') > 200) break;
    proxy.release('toServer');
    proxy.hold('toServer');
  }
  await lease.extend(5_000);
  expect(lease.remainingMs()).toBeGreaterThan(4_000);
  proxy.heal();
  expect(await world.untilWaiting('x', 1)).toHaveLength(1);
  expect(await world.children('leases/x')).toEqual([lease.owner]);
  expect(await lease.release()).toBe('released');
  expect((await waiting).token).toBeGreaterThan(lease.token);
  await (await waiting).release();
  await proxy.stop();
});

test('an extension that is shorter than the one before does not let others in earlier', async () => {
  const lease = await world.lock().acquire('x', { ttlMs: 1_000 });
  await lease.extend(20_000);
  await lease.extend(100);
  const waiting = world.lock().acquire('x', { ttlMs: 1_000, waitMs: 1_000 });
  await expect(waiting).rejects.toMatchObject({ code: 'timeout' });
  lease.ensure(15_000);
});

test('if an operator deletes nodes, waiters go on, and a holder notices that its lease is lost', async () => {
  const [one, two, three] = [world.lock(), world.lock(), world.lock()];
  const lease = await one.acquire('x', { ttlMs: 30_000 });
  const waiting = [two, three].map((lock) => lock.acquire('x', { ttlMs: 5_000, waitMs: 30_000 }));
  const ended = waiting.map((each) => each.then((next) => next.release()));
  const waiters = await world.untilWaiting('x', 2);
  for (const name of waiters) await insist(world.session, remove(`${world.root}/queues/x/${name}`));
  for (const path of [lease.owner, '']) {
    const node = `${world.root}/leases/x/${path}`.replace(/\/$/, '');
    await insist(world.session, remove(node));
  }
  await Promise.all(ended);
  await expect(lease.extend(5_000)).rejects.toMatchObject({ code: 'lease-lost' });
  expect(await lease.release()).toBe('expired');
  await world.untilClean();
});

test('the lease of a killed process ends with its TTL, and a killed waiter keeps nobody waiting', async () => {
  await (await world.lock().acquire('x', { ttlMs: 1_000 })).release();
  const child = async (waitMs: number) => {
    const env = { ...process.env, SERVERS: service.addresses, ROOT: world.root, WAIT: `${waitMs}` };
    const program = new URL('./harness/zookeeper-child.mjs', import.meta.url);
    return fork(program, { env, execArgv: [] });
  };
  const holder = await child(0);
  const [token] = (await once(holder, 'message')) as [string];
  const waiter = await child(60_000);
  await world.untilWaiting('x', 1);
  const third = world.lock().acquire('x', { ttlMs: 1_000, waitMs: 30_000 });
  await world.untilWaiting('x', 2);
  for (const one of [holder, waiter]) one.kill('SIGKILL');
  const lease = await third;
  expect(lease.token).toBeGreaterThan(BigInt(token));
  await lease.release();
  await world.untilClean();
});

test('any name is a resource, and 256 of the longest are a set', async () => {
  const [one, two] = [world.lock(), world.lock()];
  const names = ['.', '..', 'a/b', '%2E', '\0', '€', '\u{1f512}', 'n'.repeat(1_024)];
  const leases = await Promise.all(names.map((name) => one.acquire(name, { ttlMs: 20_000 })));
  for (const name of names) {
    expect(await two.tryAcquire(name, { ttlMs: 1_000 })).toMatchObject({ reason: 'held' });
  }
  await Promise.all(leases.map((lease) => lease.release()));
  const many = Array.from({ length: 256 }, (_, at) => `${'€'.repeat(1_020)}${at}`);
  const set = await one.acquire(many, { ttlMs: 20_000 });
  expect(await two.tryAcquire(many.slice(-1), { ttlMs: 1_000 })).toMatchObject({ reason: 'held' });
  const waiting = two.acquire(many, { ttlMs: 20_000, waitMs: 20_000 });
  await set.release();
  await (await waiting).release();
  await world.untilClean();
});

test('a lease whose record another program has overwritten is reported, and never taken', async () => {
  const lock = world.lock();
  const lease = await lock.acquire('x', { ttlMs: 20_000 });
  await insist(world.session, setData(`${world.root}/leases/x`, '{}', -1));
  const attempt = await world.lock().tryAcquire('x', { ttlMs: 500 });
  expect(attempt).toMatchObject({ ok: false, reason: 'no-quorum' });
  await expect(world.lock().acquire('x', { ttlMs: 500 })).rejects.toThrow('has no record: {}');
  expect(await lease.release()).toBe('released');
});

test('only clients with the same credentials can use the nodes of a lock', async () => {
  const auth = { scheme: 'digest', auth: 'us:secret' };
  const root = `${world.root}/closed`;
  const lease = await world.lock({ auth, root }).acquire('x', { ttlMs: 20_000 });
  const stranger = world.lock({ root });
  await expect(stranger.acquire('x', { ttlMs: 5_000 })).rejects.toMatchObject({
    code: 'not-installed',
  });
  const friend = world.lock({ auth, root });
  expect(await friend.release({ resource: 'x', owner: lease.owner })).toBe('released');
});

test('a server that accepts connections and says nothing does not fail the first call', async () => {
  const [, ...others] = service.servers;
  const [silent] = service.servers;
  await using proxy = await TcpProxy.start(silent ?? { host: '', port: 0 });
  proxy.swallow('toServer');
  const servers = [proxy, ...others].map(({ host, port }) => `${host}:${port}`).join(',');
  const runtime = { ...systemRuntime, random: () => 0 };
  await using lock = new ZooKeeperLock({ servers, root: world.root }, runtime);
  const attempt = await lock.tryAcquire('x', { ttlMs: 10_000 });
  expect(attempt).toMatchObject({ ok: true });
  expect(proxy.connections).toBe(1);
});

test('connections by TLS check the certificate of the server', async () => {
  await using secure = await startZooKeeper(1, { isSecure: true });
  const { secureAddresses: servers, certificate: ca } = secure;
  await using lock = new ZooKeeperLock({ servers, tls: { ca } });
  // The wait is long, because the first TLS handshake of a new Java process is slow.
  await using _ = await lock.acquire('x', { ttlMs: 60_000, waitMs: 100_000 });
  await using plain = new ZooKeeperLock({ servers: secure.addresses });
  expect(await plain.tryAcquire('x', { ttlMs: 20_000 })).toMatchObject({ reason: 'held' });
  await using stranger = new ZooKeeperLock({ servers, tls: {} });
  await expect(stranger.acquire('x', { ttlMs: 2_000 })).rejects.toMatchObject({
    cause: { cause: { code: 'DEPTH_ZERO_SELF_SIGNED_CERT' } },
  });
}, 120_000);

test('of a set whose lock was lost on one resource, release frees the others at once', async () => {
  const lock = world.lock();
  const lease = await lock.acquire(['x', 'y', 'z'], { ttlMs: 60_000 });
  const path = `${world.root}/leases/y`;
  await insist(world.session, remove(`${path}/${lease.owner}`));
  await insist(world.session, remove(path));
  expect(await lease.release()).toBe('expired');
  for (const name of ['x', 'y', 'z']) {
    const next = await world.lock().tryAcquire(name, { ttlMs: 60_000 });
    expect(next).toMatchObject({ ok: true });
  }
});

test('without an ensemble, calls fail in time and say why', async () => {
  const lock = world.lock({ servers: '127.0.0.1:1,127.0.0.1:2' });
  const failed = lock.acquire('x', { ttlMs: 400 });
  await expect(failed).rejects.toMatchObject({ code: 'no-quorum' });
  await expect(failed).rejects.toThrow('no answer within 200 ms');
  expect(((await failed.catch((error: Error) => error.cause)) as Error).cause).toMatchObject({
    code: 'ECONNREFUSED',
  });
  expect(await lock.release({ resource: 'x', owner: 'y' })).toBe('unknown');
});

test('tokens above 2^53-1 are refused', async () => {
  await using old = await startZooKeeper(3, { epoch: 2 ** 21 - 1 });
  const lock = new ZooKeeperLock({ servers: old.addresses });
  const refused = lock.acquire(['x', 'y'], { ttlMs: 5_000 });
  await expect(refused).rejects.toMatchObject({ code: 'token-exhausted' });
  const attempt = await lock.tryAcquire('x', { ttlMs: 5_000 });
  expect(attempt).toMatchObject({ ok: false, reason: 'token-exhausted' });
  await lock.close();
});

test.each([
  ['no servers', { servers: '' }],
  ['a path behind the servers', { servers: 'a:1,b:2/c' }],
  ['an impossible port', { servers: 'a:70000' }],
  ['a list', { servers: ['a:1'] }],
  ['a root that is no path', { servers: 'a', root: 'fenced' }],
  ['a root with an empty part', { servers: 'a', root: '/a//b' }],
  ['a root with dots', { servers: 'a', root: '/a/..' }],
  ['tls that is none', { servers: 'a', tls: true }],
  ['a certificate that is none', { servers: 'a', tls: { ca: 'x', cert: 'x' } }],
  ['a session that is too short', { servers: 'a', sessionTimeoutMs: 99 }],
  ['credentials that are a text', { servers: 'a', auth: 'us:secret' }],
  ['an unknown option', { servers: 'a', keyPrefix: 'x' }],
])('%s: the constructor refuses it', (_, config) => {
  const make = () => new ZooKeeperLock(config as ConstructorParameters<typeof ZooKeeperLock>[0]);
  expect(make).toThrow(LockArgumentError);
});
