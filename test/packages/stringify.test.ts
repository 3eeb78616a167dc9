import { randomUUID } from 'node:crypto';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { S3Client } from '@aws-sdk/client-s3';
import * as client from '@fenced/client';
import { createLog } from '@fenced/gateway/log';
import * as lock from '@fenced/lock';
import { PostgresLock } from '@fenced/lock/postgres';
import * as store from '@fenced/store';
import { FencedPostgres } from '@fenced/store/postgres';
import { FencedS3 } from '@fenced/store/s3';
import { type RedisService, startPostgres, startRedis } from '@fenced/testbed';
import { Redis } from 'ioredis';
import pg from 'pg';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { inMemory, ScriptedServer } from '../store/harness/s3-servers.js';

/** All fields that the type of a node's answer declares. */
const NODE_FIELDS = ['name', 'answer', 'remainingMs', 'timeMs', 'maxTtlMs', 'error'];

/**
 * Checks that `shown`, which was read from the JSON of `value`, has all of it. Tokens must be
 * decimal strings, errors must have their names.
 */
function expectShown(value: unknown, shown: unknown): void {
  if (typeof value === 'bigint') expect(shown).toBe(value.toString());
  else if (value instanceof Error) {
    const { name, message, cause } = value;
    expect(shown).toMatchObject({ name, message });
    expect(shown).toMatchObject('code' in value ? { code: value.code } : {});
    expectFieldsShown(value, shown);
    if (cause instanceof Error) expectShown(cause, Object(shown).cause);
  } else if (Array.isArray(value)) {
    expect(shown).toHaveLength(value.length);
    for (const [at, one] of value.entries()) expectShown(one, Object(shown)[at]);
  } else if (typeof value === 'object' && value !== null) expectFieldsShown(value, shown);
  else if (value !== undefined) expect(shown).toEqual(value);
}

function expectFieldsShown(value: object, shown: unknown): void {
  for (const [field, part] of Object.entries(value)) {
    // The fields of an error that is not ours are not shown.
    if (value instanceof Error && !('toJSON' in value)) continue;
    if (field === 'nodes' || field === 'node') expectDeclared([part].flat());
    expectShown(part, Object(shown)[field]);
  }
}

function expectDeclared(nodes: readonly unknown[]): void {
  for (const node of nodes) {
    if (typeof node !== 'object' || node === null || !('answer' in node)) continue;
    expect(NODE_FIELDS).toEqual(expect.arrayContaining(Object.keys(node)));
  }
}

function expectStringifies(value: unknown): void {
  expectShown(value, JSON.parse(JSON.stringify(value)));
}

const STORE_EVENTS: Readonly<Record<keyof store.StoreEvents, true>> = {
  'fenced:store:applied': true,
  'fenced:store:refused': true,
  'fenced:store:unknown': true,
  'fenced:store:retried': true,
  'fenced:store:probed': true,
};

/** Runs a function. Returns all events that the stores publish during it, by channel. */
async function storeEvents(run: () => Promise<void>): Promise<Map<string, unknown[]>> {
  const names = Object.keys(STORE_EVENTS);
  const events = new Map<string, unknown[]>(names.map((name) => [name, []]));
  const hear = (message: unknown, name: string | symbol) =>
    void events.get(String(name))?.push(message);
  for (const name of names) subscribe(name, hear);
  try {
    await run();
  } finally {
    for (const name of names) unsubscribe(name, hear);
  }
  return events;
}

/** Returns the error with which the function fails. */
async function failure(run: () => unknown): Promise<Error> {
  try {
    await run();
  } catch (error) {
    return error as Error;
  }
  throw new Error('nothing failed');
}

const classesOf = (exports: object): string[] =>
  Object.entries(exports)
    .filter(([, one]) => typeof one === 'function' && one.prototype instanceof Error)
    .map(([name]) => name)
    .sort();

let redis: RedisService;
const clients: Redis[] = [];
beforeAll(async () => {
  redis = await startRedis(3);
});
afterAll(async () => {
  for (const one of clients) one.disconnect();
  await redis?.stop();
});

/** @param down the number of nodes whose port has no server */
function open(keyPrefix: string, { down = 0, ...config }: { down?: number; maxTtlMs?: number }) {
  const nodes = redis.nodes.map(({ name, port }, at) => {
    const one = new Redis(at < down ? 1 : port, { maxRetriesPerRequest: 0 });
    one.on('error', () => undefined);
    clients.push(one);
    return { name, client: one };
  });
  return new lock.Redlock({ nodes, keyPrefix, ...config });
}

/** Everything that a lock service returns or publishes: leases, results, errors and events. */
async function everything() {
  const keyPrefix = `{${randomUUID()}}:`;
  const events: [string, unknown][] = [];
  const hear = (message: unknown, name: string | symbol) =>
    void events.push([String(name), message]);
  const names = [
    'acquire',
    'contended',
    'extended',
    'lost',
    'released',
    'node-refused',
    'readmitted',
  ];
  for (const name of names) subscribe(`fenced:lock:${name}`, hear);
  try {
    const long = open(keyPrefix, { maxTtlMs: 60_000 });
    const lease = await long.acquire('held', { ttlMs: 30_000, waitMs: 5_000 });
    await lease.extend(20_000);
    const lost = await long.acquire('lost', { ttlMs: 50, waitMs: 5_000 });
    await new Promise((resolve) => lost.signal.addEventListener('abort', resolve));
    const alone = open(keyPrefix, { down: 2 });
    const closed = open(keyPrefix, {});
    await closed.close();
    const held = { resource: 'held', owner: lease.owner, token: lease.token };
    const won = await long.tryAcquire('free', { ttlMs: 1_000 });
    const results = {
      lease,
      won,
      failed: await long.tryAcquire('held', { ttlMs: 1_000 }),
      granted: await alone.tryAcquire('of one node', { ttlMs: 1_000 }),
      left: await long.extend(held, 25_000),
      status: await alone.status(),
      readmitted: await long.readmit(),
      notReadmitted: await alone.readmit(),
    };
    const tooLong = open(keyPrefix, { maxTtlMs: 90_000 });
    const errors = [
      await failure(() => long.acquire('held', { ttlMs: 1_000 })),
      await failure(() => long.acquire('held', { ttlMs: 1_000, waitMs: 50 })),
      await failure(() => alone.acquire('of one node', { ttlMs: 1_000 })),
      await failure(() => tooLong.acquire('too long', { ttlMs: 90_000, waitMs: 50 })),
      await failure(() => closed.acquire('x', { ttlMs: 1_000 })),
      await failure(() => long.acquire('', { ttlMs: 1_000 })),
      await failure(() => lost.ensure()),
      lost.signal.reason,
    ];
    const released = await long.release(held);
    return { results: { ...results, released }, errors, events };
  } finally {
    for (const name of names) unsubscribe(`fenced:lock:${name}`, hear);
  }
}

describe('JSON.stringify takes', () => {
  let all: Awaited<ReturnType<typeof everything>>;
  beforeAll(async () => {
    all = await everything();
  });

  test('every lease and every result of a Redlock', () => {
    const { lease, granted } = all.results;
    expect(JSON.parse(JSON.stringify(lease))).toEqual({
      resources: ['held'],
      token: String(lease.token),
      remainingMs: expect.any(Number),
    });
    if (granted.ok) throw new Error('one node of three is no majority');
    expect(granted.nodes.map(({ answer }) => answer).sort()).toEqual(['error', 'error', 'granted']);
    expectStringifies(granted);
    expectStringifies(all.results.failed);
    expectStringifies({ ...all.results, lease: null, won: null });
    expect(all.results.won).toMatchObject({ ok: true });
    expect(JSON.stringify(all.results.won)).toContain('"answer":"granted"');
  });

  test('every error of @fenced/lock', () => {
    const classes = new Set(all.errors.flatMap((error) => [error.name]));
    expect([...classes].sort()).toEqual(classesOf(lock));
    for (const error of all.errors) expectStringifies(error);
    const [refused] = all.errors.filter(({ name }) => name === 'NoQuorumError');
    const { nodes } = JSON.parse(JSON.stringify(refused));
    expect(nodes[0]).toEqual({
      name: redis.nodes[0]?.name,
      answer: 'error',
      error: expect.anything(),
    });
    expect(nodes[0].error.message).not.toBe('');
  });

  test('every event, tokens as decimal strings', () => {
    const names = new Set(all.events.map(([name]) => name));
    expect(names.size).toBe(7);
    for (const [, message] of all.events) expectStringifies(message);
  });

  test('every error in a log line, of pino, which does not call toJSON, and of the gateway', () => {
    const lines: string[] = [];
    const destination = { write: (line: string) => void lines.push(line) };
    const logger = pino({}, destination);
    const log = createLog({ level: 'info' }, destination);
    for (const error of [...all.errors, ...ofTheStore]) {
      lines.length = 0;
      logger.error({ err: error }, 'failed');
      log.error('failed', error);
      expect(lines).toHaveLength(2);
      for (const line of lines) {
        const { err = {}, error: told = err } = JSON.parse(line);
        expect(told).toMatchObject({ code: Object(error).code });
        expect(told.message).toContain(error.message);
        expectDeclared(told.nodes ?? []);
        for (const token of Object.values(error).filter((part) => typeof part === 'bigint')) {
          expect(line).toContain(token.toString());
        }
      }
    }
  });

  test('every error of @fenced/store and of its client', () => {
    const names = ofTheStore.map(({ name }) => name).sort();
    expect(names).toEqual([...classesOf(store), ...classesOf(client)].sort());
    for (const error of ofTheStore) expectStringifies(error);
  });

  test('causes that are no errors, that form a circle, and that hold secrets', () => {
    const inner = Object.assign(new Error('inner'), { password: 'secret', code: 'ECONNREFUSED' });
    const outer = new store.StoreUnavailableError('outer', { cause: inner });
    inner.cause = outer;
    const text = JSON.stringify(outer);
    expect(text).not.toContain('secret');
    expect(JSON.parse(text).cause).toMatchObject({ code: 'ECONNREFUSED', message: 'inner' });
    for (const cause of [1n, null, Object.create(null), () => 1, Symbol('a')]) {
      expect(JSON.stringify(new lock.LeaseLostError('lost', { cause }))).toContain('lease-lost');
    }
    const several = new AggregateError([inner, 1n], 'several');
    const { cause } = JSON.parse(JSON.stringify(new lock.LeaseLostError('x', { cause: several })));
    expect(cause.errors).toMatchObject([{ message: 'inner' }, '1']);
  });
});

test('JSON.stringify takes every event of a FencedS3, tokens as decimal strings', async () => {
  let isDown = false;
  const answer = inMemory({});
  await using server = await ScriptedServer.start((asked) => (isDown ? null : answer(asked)));
  const credentials = { accessKeyId: 'key', secretAccessKey: 'secret' };
  const { endpoint } = server;
  const settings = { endpoint, region: 'us-east-1', credentials, forcePathStyle: true };
  const client = new S3Client(settings);
  const documents = new FencedS3({ client, bucket: 'bucket' });
  const events = await storeEvents(async () => {
    await documents.put('k', '1', { token });
    await failure(() => documents.put('k', '2', { token: token - 1n }));
    isDown = true;
    await failure(() => documents.put('k', '3', { token }));
    await failure(() => new FencedS3({ client, bucket: 'bucket' }).probe());
  });
  client.destroy();
  for (const [name, messages] of events) {
    expect(messages, name).not.toEqual([]);
    for (const message of messages) expectStringifies(message);
  }
  const [refused] = JSON.parse(JSON.stringify(events.get('fenced:store:refused')));
  expect(refused).toMatchObject({
    token: String(token - 1n),
    error: { code: 'stale-token', highest: String(token) },
  });
});

test('JSON.stringify takes every lease, result and error of a PostgresLock', async () => {
  await using service = await startPostgres();
  await using pools = new AsyncDisposableStack();
  const pool = new pg.Pool({ connectionString: service.url });
  pool.on('error', () => undefined);
  // `pool.end` does not wait for the server, which may stop before the connections are closed.
  pool.on('connect', (connection) => connection.on('error', () => undefined));
  pools.defer(() => pool.end());
  const postgres = new PostgresLock({ pool });
  expectStringifies(await postgres.tryAcquire('x', { ttlMs: 1_000 }));
  expectStringifies(await failure(() => postgres.acquire('x', { ttlMs: 1_000 })));
  await postgres.install();
  await using lease = await postgres.acquire('x', { ttlMs: 5_000 });
  expect(JSON.parse(JSON.stringify(lease)).token).toBe(String(lease.token));
  expectStringifies(await postgres.tryAcquire('x', { ttlMs: 1_000 }));
  expectStringifies(await failure(() => postgres.acquire('x', { ttlMs: 1_000 })));

  const ledger = new FencedPostgres({ pool });
  await ledger.install();
  const failing = "DO $$ BEGIN RAISE 'not now' USING ERRCODE = '40001'; END $$";
  const events = await storeEvents(async () => {
    await ledger.claim({ resource, token });
    await failure(() => ledger.claim({ resource, token: token - 1n }));
    await failure(() => ledger.query({ resource, token, attemptsMax: 2 }, failing));
    await ledger.records('c').put('1', null, { token });
  });
  for (const message of [...events.values()].flat()) expectStringifies(message);
  expect([...events.values()].map(({ length }) => length)).toEqual([2, 2, 0, 1, 0]);
  const [applied] = JSON.parse(JSON.stringify(events.get('fenced:store:applied')));
  expect(applied.token).toBe(String(token));
});

const [resource, token] = ['x', 2n ** 62n] as const;
const ofTheStore: Error[] = [
  new store.FencedStoreError('conflict', 'in the way', { cause: new Error('the driver') }),
  new store.StaleTokenError({ resource, presented: token, highest: token + 1n }),
  new store.ConflictError({ resource, attempts: 3 }),
  new store.VersionMismatchError({ resource, expected: null, found: '2' }),
  new store.OutcomeUnknownError({ resource, writeId: 'w', store: 's3', canSettle: true }),
  new store.UnsafeStoreError('put-if-match', 'unsafe', { report: [] }),
  new store.UnsupportedByStoreError('unsupported'),
  new store.CorruptObjectError(resource, 'damaged'),
  new store.RatchetLostError({ resource, known: token, found: 0n }),
  new store.StoreSetupError('no bucket'),
  new store.StoreUnavailableError('no answer'),
  new store.InvalidTokenError(-1n),
  new store.InvalidArgumentError('wrong'),
  new client.LeaseError({ code: 'held', detail: 'held', retryAfterMs: 5 }),
];
