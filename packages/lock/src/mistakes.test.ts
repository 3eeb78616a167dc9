import { expect, test } from 'vitest';
import { Elector } from './election/elector.js';
import { PostgresLock } from './postgres/lock.js';
import { Redlock } from './redlock/redlock.js';
import { S3Lock } from './s3/lock.js';
import { MemoryLock } from './testing/memory-lock.js';

/** A caller without a type checker. */
// biome-ignore lint/suspicious/noExplicitAny: that is the mistake
type Any = any;

class Client {
  readonly options = {};
}

/** Nothing may be sent. */
const client = { evalsha: () => expect.unreachable(), eval: () => expect.unreachable() };
const node = { name: 'a', client };
const lock = new Redlock({ nodes: [node] });

/** Methods as `const { acquire } = lock` leaves them. */
const { acquire, tryAcquire, using, extend, release, close } = lock;
const detached = { acquire, tryAcquire, using, extend, release, close };
const ALONE = 'was called without its lock service: write lock.';

const MISTAKES: readonly [string, () => unknown, string][] = [
  [
    'a list of clients',
    () => new Redlock([client] as Any),
    'an object such as { nodes: … }, not an array',
  ],
  [
    'a client',
    () => new Redlock(new Client() as Any),
    'an object such as { nodes: … }, not a Client',
  ],
  ['no configuration', () => new Redlock(undefined as Any), 'an object such as { nodes: … }'],
  [
    'clients, as of another library',
    () => new Redlock({ clients: [client] } as Any),
    'the field is called nodes',
  ],
  [
    'an address in place of a client',
    () => new Redlock({ nodes: ['redis://localhost'] as Any }),
    'make a client of the address',
  ],
  [
    'the address of a node',
    () => new Redlock({ nodes: [{ name: 'a', host: 'h' }] as Any }),
    'pass { name, client }',
  ],
  [
    'one client in place of a list',
    () => new Redlock({ nodes: client as Any }),
    'nodes must be a list of Redis clients',
  ],
  ['an empty list', () => new Redlock({ nodes: [] }), 'must name at least one Redis node'],
  [
    'a node without a name',
    () => new Redlock({ nodes: [{ client }] as Any }),
    'a name that all programs give it: { name, client }',
  ],
  [
    'a name for two nodes',
    () => new Redlock({ nodes: [node, { name: 'a', client: { ...client } }] as Any }),
    'each node needs a name of its own; used twice: name=a',
  ],
  [
    'a client for two nodes',
    () => new Redlock({ nodes: [node, { name: 'b', client }] as Any }),
    'each node needs a client of its own',
  ],
  [
    'a client that is not there yet',
    () => new Redlock({ nodes: [{ name: 'a', client: Promise.resolve(client) }] as Any }),
    'it is a promise; await it first',
  ],
  [
    'settings as the second argument',
    () => new Redlock({ nodes: [node] }, { retryCount: 3 } as Any),
    'waitMs of acquire and using says for how long to try',
  ],
  [
    'retryCount',
    () => new Redlock({ nodes: [node], retryCount: 3 } as Any),
    'waitMs of acquire and using says for how long to try',
  ],
  [
    'a TTL for all calls',
    () => new Redlock({ nodes: [node], ttl: 1_000 } as Any),
    'the field of acquire and using is called ttlMs',
  ],
  [
    'a number as text',
    () => new Redlock({ nodes: [node], maxTtlMs: '60000' as Any }),
    'a whole number of milliseconds from 10 to 86400000',
  ],
  [
    'an empty prefix',
    () => new Redlock({ nodes: [node], keyPrefix: '' }),
    'keyPrefix must be a non-empty string',
  ],
  [
    'a first token of another type',
    () => new Redlock({ nodes: [node], firstToken: 1 as Any }),
    'firstToken must be a bigint',
  ],
  [
    'a word for durable',
    () => new Redlock({ nodes: [{ ...node, durable: 'yes' }] as Any }),
    'durable of nodes[0] must be true or false',
  ],
  [
    'a fence shorter than a lease',
    () => new Redlock({ nodes: [node], fenceTtlMs: 10 }),
    'fenceTtlMs must be a whole number of milliseconds from 60000',
  ],
  ['a TTL alone', () => lock.acquire('x', 1_000 as Any), 'an object such as { ttlMs: 1000 }'],
  ['no TTL', () => lock.acquire('x', undefined as Any), 'an object such as { ttlMs: … }'],
  ['a TTL under another name', () => lock.acquire('x', { ttl: 1_000 } as Any), 'called ttlMs'],
  [
    'a TTL with a unit',
    () => lock.acquire('x', { ttlMs: '10s' as Any }),
    'a whole number of milliseconds from 10 to 60000',
  ],
  [
    'a TTL in seconds',
    () => lock.acquire('x', { ttlMs: 5 }),
    'milliseconds from 10 to 60000 (maxTtlMs=60000; ',
  ],
  [
    'a TTL above the limit',
    () => lock.acquire('x', { ttlMs: 3_600_000 }),
    'using extends a lease while its function runs) ttlMs=3600000',
  ],
  [
    'an endless wait',
    () => lock.acquire('x', { ttlMs: 1_000, waitMs: Number.POSITIVE_INFINITY }),
    'waitMs must be a whole number of milliseconds from 0',
  ],
  [
    'a timeout',
    () => lock.acquire('x', { ttlMs: 1_000, timeout: 5 } as Any),
    'waitMs of acquire and using says for how long',
  ],
  [
    'an empty name',
    () => lock.acquire('', { ttlMs: 1_000 }),
    'resource must be a string of 1 to 1024 characters',
  ],
  [
    'no name',
    () => lock.acquire(undefined as Any, { ttlMs: 1_000 }),
    'resource must be a string of 1 to 1024 characters',
  ],
  ['no names', () => lock.acquire([], { ttlMs: 1_000 }), 'must name at least one thing'],
  ['a name twice', () => lock.acquire(['a', 'a'], { ttlMs: 1_000 }), 'named twice: a'],
  [
    'a controller',
    () => lock.acquire('x', { ttlMs: 1_000, signal: new AbortController() as Any }),
    'such as controller.signal',
  ],
  [
    'a wait of tryAcquire',
    () => lock.tryAcquire('x', { ttlMs: 1_000, waitMs: 5 } as Any),
    'acquire and using wait; tryAcquire makes one attempt',
  ],
  [
    'no routine',
    () => lock.using('x', { ttlMs: 1_000 }, undefined as Any),
    'routine must be a function, the third argument',
  ],
  [
    'a routine in place of the options',
    () => lock.using('x', (() => 0) as Any, undefined as Any),
    'an object such as { ttlMs: … }, not function',
  ],
  [
    'a limit below the TTL',
    () => lock.using('x', { ttlMs: 1_000, maxHoldMs: 10 }, () => 0),
    'maxHoldMs must be a whole number of milliseconds from 1000',
  ],
  [
    'a threshold of node-redlock',
    () => lock.using('x', { ttlMs: 1_000, automaticExtensionThreshold: 5 } as Any, () => 0),
    'using extends each time half of what is left has passed',
  ],
  ['the release of a name', () => lock.release('x' as Any), 'an object such as { resource: … }'],
  [
    'a release without an owner',
    () => lock.release({ resource: 'x' } as Any),
    'owner must be the owner of a lease',
  ],
  [
    'the release of a lease as it is',
    () => lock.release({ resources: ['x'] } as Any),
    'a lease that you have extends and releases itself',
  ],
  [
    'an extension without a TTL',
    () => lock.extend({ resource: 'x', owner: 'o', token: 1n }, undefined as Any),
    'ttlMs must be a whole number',
  ],
  [
    'an extension by the owner alone',
    () => lock.extend({ resource: 'x', owner: 'o' } as Any, 1_000),
    'token must be the token of a lease, a bigint token=undefined',
  ],
  [
    'an extension with a token as text',
    () => lock.extend({ resource: 'x', owner: 'o', token: '34' } as Any, 1_000),
    'token must be the token of a lease, a bigint token="34"',
  ],
  ['the name of a node alone', () => lock.readmit('a' as Any), 'an object such as { node: … }'],
  ['an unknown node', () => lock.readmit({ node: 'z' }), 'no node has that name node=z'],
  ['a pool itself', () => new PostgresLock({ connect: () => 0 } as Any), 'pass { pool }'],
  [
    'a connection string',
    () => new PostgresLock({ connectionString: 'postgres://x' } as Any),
    'make a pool with it, and pass { pool }',
  ],
  [
    'a pool that is none',
    () => new PostgresLock({ pool: {} } as Any),
    'pool must be a pg.Pool, or the sql that postgres() of postgres.js returns',
  ],
  ['acquire apart from its lock', () => detached.acquire('x', { ttlMs: 1_000 }), ALONE],
  ['tryAcquire apart from its lock', () => detached.tryAcquire('x', { ttlMs: 1_000 }), ALONE],
  ['using apart from its lock', () => detached.using('x', { ttlMs: 1_000 }, () => 0), ALONE],
  [
    'extend apart from its lock',
    () => detached.extend({ resource: 'x', owner: 'o', token: 1n }, 10),
    ALONE,
  ],
  ['release apart from its lock', () => detached.release({ resource: 'x', owner: 'o' }), ALONE],
  ['close apart from its lock', () => detached.close(), ALONE],
  ['a time to drain that is none', () => lock.close({ drainMs: -1 }), 'milliseconds from 0'],
  ['the time to drain alone', () => lock.close(5_000 as Any), 'such as { drainMs: 5000 }'],
  [
    'a client and a bucket in place of a store',
    () => new S3Lock({ client, bucket: 'b' } as Any),
    '{ objects: new FencedS3({ client, bucket }) } to S3Lock',
  ],
  [
    'a bucket',
    () => new S3Lock({ bucket: 'b' } as Any),
    'give { objects: new FencedS3({ client, bucket }) }',
  ],
  [
    'an election without a lock',
    () => new Elector({ resource: 'office' } as Any),
    'lock must be a lock service such as a Redlock',
  ],
  [
    'a lock itself',
    () => new Elector(lock as Any),
    'lock must be a lock service such as a Redlock',
  ],
  [
    'an office under another name',
    () => new Elector({ lock, name: 'office' } as Any),
    'the field is called resource',
  ],
  [
    'an election without an office',
    () => new Elector({ lock } as Any),
    'resource must be a string',
  ],
  [
    'a term that is too short',
    () => new Elector({ lock, resource: 'office', ttlMs: 5 }),
    'a whole number of milliseconds from 100',
  ],
  [
    'a callback of campaign',
    () => new Elector({ lock, resource: 'office' }).campaign((() => 0) as Any),
    'an object such as { signal: … }',
  ],
  [
    'an observer without a board',
    () => new Elector({ lock, resource: 'office' }).observe(),
    'observe needs a board, which leaders write to',
  ],
];

test.each(MISTAKES)('%s is refused, and the message says what to do', async (_, call, message) => {
  const called = (async () => call())();
  await expect(called).rejects.toMatchObject({
    code: expect.stringMatching(/^invalid-(argument|token)$/),
    message: expect.stringContaining(message),
  });
});

test('a call inside of a function that holds the lock is told to use the lease of that function', async () => {
  const memory = new MemoryLock();
  const other = memory.using('x', { ttlMs: 5_000, waitMs: 60 }, async ({ token }) => {
    const advice = `holds x, token=${token}: code inside of it uses its lease`;
    await expect(memory.acquire(['w', 'x'], { ttlMs: 1_000 })).rejects.toThrow(advice);
    const waiting = memory.using('x', { ttlMs: 1_000, waitMs: 20 }, () => 0);
    await expect(waiting).rejects.toThrow(advice);
    const hint = expect.stringContaining(advice);
    expect(await memory.tryAcquire('x', { ttlMs: 1_000 })).toMatchObject({ reason: 'held', hint });
  });
  await other;
  const lease = await memory.acquire('x', { ttlMs: 5_000 });
  const refused = await memory.tryAcquire('x', { ttlMs: 1_000 });
  expect(refused).toMatchObject({ ok: false, reason: 'held' });
  expect(refused).not.toHaveProperty('hint');
  await lease.release();
});

test('a write that using did not await is told why its lease is over', async () => {
  const memory = new MemoryLock();
  const end = Promise.withResolvers<void>();
  const late = await memory.using('x', { ttlMs: 5_000 }, (lease) => ({
    write: end.promise.then(() => lease.ensure()),
  }));
  end.resolve();
  await expect(late.write).rejects.toThrow('await all work that needs it before');
});
