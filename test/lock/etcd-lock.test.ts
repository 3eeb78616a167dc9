import { randomUUID } from 'node:crypto';
import { setTimeout } from 'node:timers/promises';
import { AcquireTimeoutError, type Lease, LeaseLostError, LockArgumentError } from '@fenced/lock';
import { EtcdLock, type Fetch } from '@fenced/lock/etcd';
import { type EtcdNode, type EtcdService, startEtcd } from '@fenced/testbed';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { type Acquisition, judge } from './harness/redlock-history.js';

let service: EtcdService;
let endpoints: string[];
beforeAll(async () => {
  service = await startEtcd();
  endpoints = service.nodes.map(({ url }) => url);
});
afterAll(() => service?.stop());

const newPrefix = (): string => `${randomUUID()}/`;
const open = (keyPrefix: string, fetch: Fetch = globalThis.fetch): EtcdLock =>
  new EtcdLock({ endpoints, keyPrefix, fetch });

async function call(
  path: string,
  body: object,
  endpoint = endpoints[0],
): Promise<Record<string, unknown>> {
  const init = { method: 'POST', body: JSON.stringify(body) };
  const answer = await fetch(`${endpoint}/v3/${path}`, init);
  return (await answer.json()) as Record<string, unknown>;
}

/** The number of keys below a prefix: holders and waiters. */
async function keysBelow(prefix: string): Promise<number> {
  const range = [prefix, `${prefix}\x7f`].map((key) => Buffer.from(key).toString('base64'));
  const [key, range_end] = range;
  return Number((await call('kv/range', { key, range_end, count_only: true })).count ?? 0);
}

async function leader(): Promise<EtcdNode> {
  return vi.waitFor(async () => {
    for (const node of service.nodes) if (await node.isLeader()) return node;
    throw new Error('no leader');
  });
}

/** Loses the replies of the next `due` requests to `path`. etcd carries the requests out. */
class LossyNetwork {
  due = 0;
  /** The bodies of the requests whose replies were lost. */
  readonly lost = new Set<string>();
  readonly #path: string;
  /** Only requests with this text lose their replies. */
  readonly #text: string;

  constructor(path: string, text = '') {
    this.#path = path;
    this.#text = text;
  }

  readonly fetch: Fetch = async (url, init) => {
    const answer = await fetch(url, init);
    const isMeant = url.endsWith(this.#path) && init.body.includes(this.#text);
    if (!isMeant || this.due === 0) return answer;
    this.due -= 1;
    this.lost.add(init.body);
    await answer.text();
    throw new Error('the reply is lost');
  };
}

test('members are killed and stopped, the leader too: one holder at a time, and tokens grow', async () => {
  const prefix = newPrefix();
  const history: Acquisition[] = [];
  const held = new Set<Lease>();
  let isOver = false;
  const client = async (name: string, resource: string | string[]): Promise<void> => {
    const lock = open(prefix);
    while (!isOver) {
      const askedMs = performance.now();
      const lease = await lock.acquire(resource, { ttlMs: 2_000, waitMs: 60_000 });
      const { resources, token } = lease;
      history.push({ client: name, resources, token, askedMs, heldMs: performance.now() });
      const others = [...held].filter((one) => one.resources.some((of) => resources.includes(of)));
      expect(others.filter((one) => one.remainingMs() > 0)).toEqual([]);
      held.add(lease);
      await setTimeout(5);
      await lease.extend(2_000).catch(() => undefined);
      held.delete(lease);
      await lease.release();
    }
  };
  const clients = [
    ...['one', 'two', 'three'].map((name) => client(name, 'x')),
    client('set', ['y', 'x']),
  ];
  const progress = async (): Promise<void> => {
    const before = history.length;
    await vi.waitFor(() => expect(history.length).toBeGreaterThan(before + 4), { timeout: 20_000 });
  };
  await progress();
  const killed = await leader();
  await killed.kill();
  await progress();
  await killed.start();
  const stopped = await leader();
  await stopped.pause();
  await progress();
  await stopped.wake();
  await progress();
  isOver = true;
  await Promise.all(clients);
  expect(judge(history)).toMatchObject({ verdict: 'grows' });
  await vi.waitFor(async () => expect(await keysBelow(prefix)).toBe(0), { timeout: 10_000 });
}, 90_000);

test('an extended lease outlives the leader of etcd, and the former leader does not revoke it', async () => {
  const prefix = newPrefix();
  const [one, two] = [open(prefix), open(prefix)];
  const stopped = await leader();
  await using lease = await one.acquire('x', { ttlMs: 4_000 });
  const extendAll = async (forMs: number): Promise<number> => {
    let extensions = 0;
    for (const startedMs = performance.now(); performance.now() - startedMs < forMs; ) {
      // No member answers during the election.
      await lease.extend(4_000).then(
        () => (extensions += 1),
        (error: unknown) => expect(error).toMatchObject({ code: 'no-quorum' }),
      );
      expect(await two.tryAcquire('x', { ttlMs: 4_000 })).not.toMatchObject({ ok: true });
      await setTimeout(50);
    }
    return extensions;
  };
  await stopped.pause();
  // The stopped leader does not know these extensions. By its clock, the lease is over after 5 s.
  expect(await extendAll(5_000)).toBeGreaterThan(3);
  await stopped.wake();
  expect(await extendAll(1_500)).toBeGreaterThan(3);
  lease.ensure();
}, 40_000);

test('a lost reply of a transaction is found by its owner, and leaves no second key', async () => {
  const prefix = newPrefix();
  const network = new LossyNetwork('/kv/txn');
  const [one, two] = [open(prefix, network.fetch), open(prefix)];
  network.due = 1;
  const lease = await one.acquire('x', { ttlMs: 5_000 });
  expect(await keysBelow(prefix)).toBe(1);
  network.due = 1;
  await lease.extend(20_000);
  expect(lease.remainingMs()).toBeGreaterThan(15_000);
  network.due = 1;
  const waiting = one.acquire(['y', 'x'], { ttlMs: 5_000, waitMs: 20_000 });
  await vi.waitFor(async () => expect(await keysBelow(prefix)).toBe(3));
  await lease.release();
  const next = await waiting;
  expect(next.token).toBeGreaterThan(lease.token);
  expect(network.lost.size).toBe(3);
  await next.release();
  await using last = await two.acquire('x', { ttlMs: 5_000 });
  expect(last.token).toBeGreaterThan(next.token);
});

test('a release whose reply is lost has an unknown outcome, and frees the lock', async () => {
  const prefix = newPrefix();
  const network = new LossyNetwork('/kv/txn');
  const lease = await open(prefix, network.fetch).acquire(['x', 'y'], { ttlMs: 60_000 });
  network.due = 1;
  expect(await lease.release()).toBe('unknown');
  expect(await keysBelow(prefix)).toBe(0);
});

test('a waiter does not wait for a key that its own request has put, if the reply was lost', async () => {
  const prefix = newPrefix();
  const network = new LossyNetwork('/kv/txn', '"MOD"');
  const lease = await open(prefix).acquire('x', { ttlMs: 60_000 });
  const waiting = open(prefix, network.fetch).acquire('x', { ttlMs: 60_000, waitMs: 20_000 });
  await vi.waitFor(async () => expect(await keysBelow(prefix)).toBe(2));
  network.due = Number.POSITIVE_INFINITY;
  await lease.release();
  // The acquisition of the waiter fails after 2 s. Its next acquisition sends another transaction.
  await vi.waitFor(() => expect(network.lost.size).toBe(2), 10_000);
  network.due = 0;
  expect(await (await waiting).release()).toBe('released');
  expect(await keysBelow(prefix)).toBe(0);
});

test('an extension whose outcome stays unknown does not end the lease, and the next extension succeeds', async () => {
  const prefix = newPrefix();
  const network = new LossyNetwork('/kv/txn');
  const lock = open(prefix, network.fetch);
  const lease = await lock.acquire('x', { ttlMs: 5_000 });
  network.due = Number.POSITIVE_INFINITY;
  await expect(lease.extend(500)).rejects.toMatchObject({ code: 'no-quorum' });
  network.due = 0;
  expect(lease.remainingMs()).toBeGreaterThan(3_000);
  expect(await keysBelow(prefix)).toBe(1);
  await lease.extend(20_000);
  expect(await lease.release()).toBe('released');
});

test('waiters are served first come first served, and a release wakes the next one', async () => {
  const prefix = newPrefix();
  const lease = await open(prefix).acquire('x', { ttlMs: 60_000 });
  const served: number[] = [];
  const waiting: Promise<void>[] = [];
  for (let number = 0; number < 8; number++) {
    waiting.push(
      open(prefix).using('x', { ttlMs: 60_000, waitMs: 60_000 }, () => void served.push(number)),
    );
    await vi.waitFor(async () => expect(await keysBelow(prefix)).toBe(number + 2));
  }
  const startedMs = performance.now();
  await call('kv/compaction', { revision: String(lease.token + 3n) });
  await lease.release();
  await Promise.all(waiting);
  expect(served).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
  // Without the watch, a waiter would look once a second, and eight hand-overs would take longer.
  expect(performance.now() - startedMs).toBeLessThan(4_000);
});

test('a waiter whose watch is at a stopped member gets the lock', async () => {
  const keyPrefix = newPrefix();
  // Stops a follower. Without a leader, the release could stay unknown, and the lock held for a
  // TTL.
  const led = await leader();
  const [watched, ...others] = service.nodes.toSorted((a) => (a === led ? 1 : -1));
  if (watched === undefined) throw new Error('there is no follower');
  const config = { endpoints: [watched, ...others].map(({ url }) => url), keyPrefix };
  const [holder, waiter] = [new EtcdLock(config), new EtcdLock(config)];
  const lease = await holder.acquire('x', { ttlMs: 60_000 });
  const next = waiter.acquire('x', { ttlMs: 60_000, waitMs: 60_000 });
  await vi.waitFor(async () => expect(await keysBelow(keyPrefix)).toBe(2));
  await watched.pause();
  try {
    expect(await lease.release()).toBe('released');
    await (await next).release();
  } finally {
    await watched.wake();
  }
});

test('a crashed waiter delays the queue by a few seconds, and a waiter that gave up does not', async () => {
  const prefix = newPrefix();
  const lease = await open(prefix).acquire('x', { ttlMs: 60_000 });
  const gaveUp = open(prefix).acquire('x', { ttlMs: 60_000, waitMs: 300 });
  await expect(gaveUp).rejects.toBeInstanceOf(AcquireTimeoutError);
  await vi.waitFor(async () => expect(await keysBelow(prefix)).toBe(1));
  let isDead = false;
  const dying = open(prefix, (url, init) =>
    isDead ? new Promise<never>(() => {}) : fetch(url, init),
  );
  const controller = new AbortController();
  const dead = dying.acquire('x', { ttlMs: 500, waitMs: 60_000, signal: controller.signal });
  await vi.waitFor(async () => expect(await keysBelow(prefix)).toBe(2));
  isDead = true;
  await lease.release();
  await (await open(prefix).acquire('x', { ttlMs: 5_000, waitMs: 15_000 })).release();
  controller.abort();
  await expect(dead).rejects.toThrow('aborted');
});

test('waiters ask servers that refuse connections ever more rarely, and go on when one answers', async () => {
  let asked = 0;
  let isDown = true;
  const lock = open(newPrefix(), (url, init) => {
    asked += 1;
    return isDown ? Promise.reject(new TypeError('fetch failed')) : fetch(url, init);
  });
  const waiting = Array.from({ length: 10 }, (_, at) =>
    lock.using(`${at}`, { ttlMs: 5_000, waitMs: 60_000 }, () => undefined),
  );
  await setTimeout(4_000);
  asked = 0;
  await setTimeout(3_000);
  // Three members, which each waiter asks about once a second. With a pause of 50 ms: above 150.
  expect(asked / 10).toBeLessThan(30);
  isDown = false;
  await Promise.all(waiting);
});

test('a key that an operator deletes ends the lease at the next extension', async () => {
  const prefix = newPrefix();
  const lock = open(prefix);
  const lease = await lock.acquire(['x', 'y'], { ttlMs: 60_000 });
  const key = Buffer.from(`${prefix}x/${lease.owner}`).toString('base64');
  await call('kv/deleterange', { key });
  await using other = await lock.acquire('x', { ttlMs: 5_000 });
  await expect(lease.extend(60_000)).rejects.toBeInstanceOf(LeaseLostError);
  expect(other.token).toBeGreaterThan(lease.token);
});

test('a user logs in again after a restart of etcd, a change of rights, and the first login of all', async () => {
  await using guarded = await startEtcd(1);
  const [node] = guarded.nodes;
  if (!node) throw new Error('there is no member');
  let logins = 0;
  const counted: Fetch = (url, init) => {
    if (url.endsWith('/auth/authenticate')) logins += 1;
    return fetch(url, init);
  };
  const lockOf = (name: string, password = 'secret', ask = counted) =>
    new EtcdLock({ endpoints: [node.url], auth: { name, password }, fetch: ask });
  const lock = lockOf('root');
  // The cluster has no users yet.
  const lease = await lock.acquire('x', { ttlMs: 60_000 });
  await call('auth/user/add', { name: 'root', password: 'secret' }, node.url);
  await call('auth/role/add', { name: 'root' }, node.url);
  await call('auth/user/grant', { user: 'root', role: 'root' }, node.url);
  await call('auth/enable', {}, node.url);
  const waiting = lock.using('x', { ttlMs: 60_000, waitMs: 60_000 }, () => 'served');
  await lease.extend(60_000);
  await node.kill();
  await node.start();
  await lease.extend(60_000);
  expect(await lease.release()).toBe('released');
  expect(await waiting).toBe('served');
  logins = 0;
  await Promise.all(['a', 'b', 'c'].map((name) => lock.acquire(name, { ttlMs: 60_000 })));
  expect(logins).toBe(0);
  await lock.close();
  for (const wrong of [lockOf('root', 'wrong'), lockOf('nobody')]) {
    await expect(wrong.acquire('y', { ttlMs: 5_000, waitMs: 9_000 })).rejects.toMatchObject({
      code: 'not-installed',
      message: expect.stringContaining('name and password of auth'),
    });
  }
});

test('tokenOffset raises the tokens, after a restore from a backup', async () => {
  const lock = new EtcdLock({ endpoints, keyPrefix: newPrefix(), tokenOffset: 1_000_000_000n });
  await using lease = await lock.acquire('x', { ttlMs: 5_000 });
  expect(lease.token).toBeGreaterThan(1_000_000_000n);
});

test.each([
  ['no endpoints', {}],
  ['an empty list', { endpoints: [] }],
  ['another path', { endpoints: ['http://127.0.0.1:2379/v3'] }],
  ['no URL', { endpoints: ['127.0.0.1:2379'] }],
  ['a prefix that is none', { endpoints: ['http://a:1'], keyPrefix: '' }],
  ['an offset that is none', { endpoints: ['http://a:1'], tokenOffset: 5 }],
  ['a user without a password', { endpoints: ['http://a:1'], auth: { name: 'me' } }],
  ['a fetch that is none', { endpoints: ['http://a:1'], fetch: 5 }],
  ['another option', { endpoints: ['http://a:1'], ttl: 5 }],
])('bad options are refused: %s', (_, config) => {
  expect(() => new EtcdLock(config as never)).toThrow(LockArgumentError);
});

test('more resources than one transaction takes are refused, and a right that is missing is named', async () => {
  const lock = open(newPrefix());
  const many = Array.from({ length: 129 }, (_, at) => `${at}`);
  await expect(lock.acquire(many, { ttlMs: 5_000 })).rejects.toBeInstanceOf(LockArgumentError);
  const long = (length: number) => many.slice(1).map((name) => name.padStart(length, '€'));
  await expect(lock.acquire(long(300), { ttlMs: 5_000 })).rejects.toThrow('percent-encoded');
  await using _ = await lock.acquire(long(228), { ttlMs: 60_000 });
  for (const [status, hint] of [
    [401, 'name and password of auth'],
    [403, 'keyPrefix'],
  ] as const) {
    const refused = open(newPrefix(), async () => new Response('{"error":"denied"}', { status }));
    await expect(refused.acquire('x', { ttlMs: 5_000, waitMs: 9_000 })).rejects.toMatchObject({
      code: 'not-installed',
      message: expect.stringContaining(hint),
    });
  }
  const cause = new Error('connect ECONNREFUSED');
  const down = open(newPrefix(), () => Promise.reject(new TypeError('fetch failed', { cause })));
  await expect(down.acquire('x', { ttlMs: 500 })).rejects.toThrow(
    'etcd: fetch failed: connect ECONNREFUSED',
  );
  const garbage = open(newPrefix(), async () => new Response('<html>'));
  await expect(garbage.acquire('x', { ttlMs: 500 })).rejects.toMatchObject({ code: 'no-quorum' });
});
