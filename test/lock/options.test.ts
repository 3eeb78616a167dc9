import { LockArgumentError, Redlock } from '@fenced/lock';
import { EtcdLock } from '@fenced/lock/etcd';
import { PostgresLock } from '@fenced/lock/postgres';
import { ZooKeeperLock } from '@fenced/lock/zookeeper';
import { describe, expect, test } from 'vitest';

/** A method of a client or of a pool, which no test may call. */
const sent = (): never => {
  throw new Error('something was sent');
};
const client = { evalsha: sent, eval: sent };
const nodes = [{ name: 'a', client }];
const pool = { connect: sent, query: sent };
/** Calls a method with a value of a wrong type, as programs in JavaScript may. */
const call = (run: (value: never) => unknown, value: unknown): unknown => run(value as never);

describe.each([
  ['Redlock', () => new Redlock({ nodes })],
  ['PostgresLock', () => new PostgresLock({ pool })],
  ['EtcdLock', () => new EtcdLock({ endpoints: ['http://a:1'], fetch: sent })],
  ['ZooKeeperLock', () => new ZooKeeperLock({ servers: '127.0.0.1:1' })],
] as const)('%s refuses a call with', (_, open) => {
  const routine = (): number => 0;
  const ttlMs = 1_000;
  test.each<[string, (value: never) => unknown, unknown, RegExp]>([
    [
      'a field that is none',
      (it) => open().acquire('x', it),
      { ttlMs, tllMs: 1 },
      /field tllMs in the options of acquire.*ttlMs, signal, waitMs/,
    ],
    [
      'an undefined one',
      (it) => open().acquire('x', it),
      { ttlMs, ttl: undefined },
      /field ttl .*called ttlMs/,
    ],
    [
      'retryCount',
      (it) => open().acquire('x', it),
      { ttlMs, retryCount: 3 },
      /field retryCount .*waitMs of acquire/,
    ],
    [
      'a number of milliseconds',
      (it) => open().acquire('x', it),
      5_000,
      /an object such as \{ ttlMs: 5000 \}, not number/,
    ],
    [
      'waitMs, of tryAcquire',
      (it) => open().tryAcquire('x', it),
      { ttlMs, waitMs: 5 },
      /field waitMs .*tryAcquire makes one attempt/,
    ],
    ['a number, of tryAcquire', (it) => open().tryAcquire('x', it), 5_000, /\{ ttlMs: 5000 \}/],
    [
      'a number, of using',
      (it) => open().using('x', it, routine),
      5_000,
      /options of using .*\{ ttlMs: 5000 \}/,
    ],
    [
      'extensionsMax',
      (it) => open().using('x', it, routine),
      { ttlMs, extensionsMax: 5 },
      /field extensionsMax .*maxHoldMs/,
    ],
    [
      'automaticExtensionThreshold',
      (it) => open().using('x', it, routine),
      { ttlMs, automaticExtensionThreshold: 500 },
      /field automaticExtensionThreshold/,
    ],
    [
      'settings in place of the routine',
      (it) => open().using('x', { ttlMs }, it),
      { retryCount: 3 },
      /routine must be a function/,
    ],
    [
      'a lease as it is, of extend',
      (it) => open().extend(it, ttlMs),
      { resources: ['x'], token: 1n },
      /field resources .*a lease that you have extends/,
    ],
    [
      'nothing, of extend',
      (it) => open().extend(it, ttlMs),
      undefined,
      /a lease of another process must be an object .*not undefined/,
    ],
    ['nothing, of release', (it) => open().release(it), null, /must be an object .*not null/],
    [
      'a field that is none, of release',
      (it) => open().release(it),
      { resource: 'x', owner: 'o', ttlMs: 1 },
      /field ttlMs/,
    ],
  ])('%s', async (_, run, value, message) => {
    const refused = Promise.resolve().then(() => call(run, value));
    await expect(refused).rejects.toThrow(message);
    await expect(refused).rejects.toBeInstanceOf(LockArgumentError);
  });
});

test.each<[string, (value: never) => unknown, unknown, RegExp]>([
  [
    'an array of clients',
    (it) => new Redlock(it),
    [client],
    /first argument of Redlock must be an object such as \{ nodes: … \}, not an array/,
  ],
  [
    'driftFactor',
    (it) => new Redlock(it),
    { nodes, driftFactor: 0.01 },
    /field driftFactor .*2 ms for drift/,
  ],
  [
    'a misspelt option',
    (it) => new Redlock(it),
    { nodes, maxTtlMS: 1 },
    /field maxTtlMS in .*known are nodes, maxTtlMs/,
  ],
  [
    'the settings of node-redlock',
    (it) => new Redlock({ nodes }, it),
    { retryDelay: 200 },
    /field retryDelay in the second argument/,
  ],
  [
    'a Runtime that is none',
    (it) => new Redlock({ nodes }, it),
    { nowMs: () => 0 },
    /a Runtime has the functions nowMs/,
  ],
  [
    'a misspelt field of a node',
    (it) => new Redlock({ nodes: [it] }),
    { name: 'a', client, durabel: true },
    /field durabel in nodes\[0\].*client, name, durable/,
  ],
  [
    'a word for durable',
    (it) => new Redlock({ nodes: [{ name: 'a', client, durable: it }] }),
    'no',
    /durable of nodes\[0\] must be true or false durable=no/,
  ],
  [
    'a misspelt option of readmit',
    (it) => new Redlock({ nodes }).readmit(it),
    { forced: true },
    /field forced in the options of readmit/,
  ],
  [
    'a word for force',
    (it) => new Redlock({ nodes }).readmit({ force: it }),
    'no',
    /force must be true or false force=no/,
  ],
  [
    'a pool in place of the configuration',
    (it) => new PostgresLock(it),
    { ...pool, options: {} },
    /field connect in the first argument of PostgresLock.*pool/,
  ],
  [
    'options of Redlock for PostgresLock',
    (it) => new PostgresLock(it),
    { pool, keyPrefix: 'a' },
    /field keyPrefix .*known are pool, maxTtlMs/,
  ],
  ['nothing', (it) => new PostgresLock(it), undefined, /\{ pool: … \}, not undefined/],
])('%s is refused', async (_, run, value, message) => {
  const refused = Promise.resolve().then(() => call(run, value));
  await expect(refused).rejects.toThrow(message);
  await expect(refused).rejects.toBeInstanceOf(LockArgumentError);
});
