import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { promisify } from 'node:util';
import { S3Client } from '@aws-sdk/client-s3';
import {
  ConflictError,
  OutcomeUnknownError,
  StaleTokenError,
  type StoreEvents,
  UnsafeStoreError,
  VersionMismatchError,
} from '@fenced/store';
import { FencedS3, type Runtime } from '@fenced/store/s3';
import { afterEach, describe, expect, onTestFinished, test } from 'vitest';
import { INSERT, openLedger, rejectionOf, throughProxy } from './harness/postgres-support.js';
import { type Betrayal, inMemory, ScriptedServer } from './harness/s3-servers.js';

type Name = keyof StoreEvents;
const CHANNELS: Readonly<Record<Name, true>> = {
  'fenced:store:applied': true,
  'fenced:store:refused': true,
  'fenced:store:unknown': true,
  'fenced:store:retried': true,
  'fenced:store:probed': true,
};
const names = Object.keys(CHANNELS) as Name[];

/** Collects the events until the end of the test, each as `[last word of its channel, message]`. */
function listen(): [string, object][] {
  const heard: [string, object][] = [];
  const hear = (message: unknown, name: string | symbol): void =>
    void heard.push([String(name).split(':')[2] ?? '', { ...(message as object) }]);
  for (const name of names) subscribe(name, hear);
  onTestFinished(() => {
    for (const name of names) unsubscribe(name, hear);
  });
  return heard;
}

const took = { tookMs: expect.any(Number) };

describe('S3', () => {
  const clients: S3Client[] = [];
  afterEach(() => {
    for (const client of clients.splice(0)) client.destroy();
  });

  /** Starts a server that may stop answering. Its stores pause for no time between attempts. */
  async function open(betrayal: Betrayal = {}) {
    let isDown = false;
    const answer = inMemory(betrayal);
    const server = await ScriptedServer.start((asked) => (isDown ? null : answer(asked)));
    onTestFinished(() => server[Symbol.asyncDispose]());
    let clocks = 0;
    const runtime: Runtime = {
      random: Math.random,
      wallClockMs: Date.now,
      nowMs: () => {
        clocks++;
        return performance.now();
      },
      writeId: () => randomBytes(16).toString('hex'),
      sleep: async () => undefined,
    };
    const store = (): FencedS3 => {
      const credentials = { accessKeyId: 'key', secretAccessKey: 'secret' };
      const { endpoint } = server;
      const settings = { endpoint, region: 'us-east-1', credentials, forcePathStyle: true };
      const client = new S3Client(settings);
      clients.push(client);
      return new FencedS3({ client, bucket: 'bucket' }, runtime);
    };
    const takeDown = (): void => {
      isDown = true;
    };
    return { server, store, takeDown, clocks: () => clocks };
  }

  test('every write, claim and fenced read is published with its outcome', async () => {
    const { store } = await open();
    const [ours, theirs] = [store(), store()];
    await Promise.all([ours.probe(), theirs.probe()]);
    const heard = listen();
    const of = { store: 's3', bucket: 'bucket', resources: ['k'], ...took };
    const { writeId } = await ours.put('k', '1', { token: 33 });
    expect(heard.splice(0)).toEqual([
      ['applied', { ...of, operation: 'put', token: 33n, writeId }],
    ]);
    await ours.update('k', { token: 33 }, () => '2');
    await ours.claim('k', { token: 34 });
    await ours.claimAndGet('k', { token: 35 });
    await ours.delete('k', { token: 35 });
    expect(heard.splice(0)).toMatchObject([
      ['applied', { ...of, operation: 'update', token: 33n }],
      ['applied', { ...of, operation: 'claim', token: 34n }],
      ['applied', { ...of, operation: 'claimAndGet', token: 35n }],
      ['applied', { ...of, operation: 'delete', token: 35n }],
    ]);
    const stale = await rejectionOf(theirs.put('k', 'late', { token: 34 }));
    expect(stale).toBeInstanceOf(StaleTokenError);
    expect(heard.splice(0)).toEqual([
      ['refused', { ...of, operation: 'put', token: 34n, error: stale }],
    ]);
    const differs = await rejectionOf(theirs.put('k', 'x', { token: 35, expected: '1' }));
    expect(differs).toBeInstanceOf(VersionMismatchError);
    expect(heard.splice(0)).toMatchObject([['refused', { error: { code: 'version-mismatch' } }]]);
    // Invalid arguments and plain reads publish no event.
    await rejectionOf(theirs.put('k', 'x', { token: -1 }));
    await ours.get('k');
    await ours.highest('k');
    expect(heard).toEqual([]);
  });

  test('retries are published after a conflict and after a lost request', async () => {
    const { store, takeDown } = await open();
    const [ours, theirs] = [store(), store()];
    await ours.put('k', '1', { token: 1 });
    await theirs.put('k', '2', { token: 1 });
    const heard = listen();
    await ours.put('k', '3', { token: 1 });
    const of = { store: 's3', bucket: 'bucket', resources: ['k'] };
    expect(heard.splice(0)).toMatchObject([
      ['retried', { ...of, attempt: 1, reason: 'conflict' }],
      ['applied', { ...of, operation: 'put' }],
    ]);
    takeDown();
    const error = await rejectionOf(ours.put('k', '4', { token: 1 }));
    expect(error).toBeInstanceOf(OutcomeUnknownError);
    const [last] = heard.splice(-1);
    expect(last).toEqual(['unknown', { ...of, ...took, operation: 'put', token: 1n, error }]);
    const puts = heard.filter(([, { error: one }]: [string, { error?: object }]) =>
      String(one).includes('operation=put'),
    );
    expect(puts).toMatchObject(
      [1, 2, 3, 4, 5].map((attempt) => ['retried', { ...of, attempt, reason: 'unavailable' }]),
    );
  });

  test('every verdict on a server is published', async () => {
    const honest = await open();
    const heard = listen();
    const capabilities = await honest.store().probe();
    const of = { store: 's3', bucket: 'bucket' };
    expect(heard.splice(0)).toEqual([
      ['probed', { ...of, verdict: 'safe', source: 'probe', capabilities }],
    ]);
    await honest.store().probe();
    expect(heard.splice(0)).toMatchObject([
      ['probed', { ...of, verdict: 'safe', source: 'certificate' }],
    ]);
    const lying = await open({ ignoresMatch: true });
    const unsafe = await rejectionOf(lying.store().put('k', '1', { token: 1 }));
    expect(unsafe).toBeInstanceOf(UnsafeStoreError);
    expect(heard.splice(0)).toMatchObject([
      ['probed', { ...of, verdict: 'unsafe', error: unsafe }],
      ['refused', { operation: 'put', error: unsafe }],
    ]);
    honest.takeDown();
    const unavailable = await rejectionOf(honest.store().probe());
    expect(heard.filter(([name]) => name === 'probed')).toEqual([
      ['probed', { ...of, verdict: 'unknown', error: unavailable }],
    ]);
  });

  test('an update whose edit function fails with the unknown outcome of another store is published as refused', async () => {
    const { store } = await open();
    const [ours, broken] = [store(), await open()];
    await ours.put('k', '1', { token: 1 });
    const other = broken.store();
    await other.put('other', '0', { token: 1 });
    broken.takeDown();
    const heard = listen();
    const error = await rejectionOf(
      ours.update('k', { token: 1 }, async () => {
        await other.put('other', '1', { token: 1 });
        return '2';
      }),
    );
    expect(error).toBeInstanceOf(OutcomeUnknownError);
    const outcomes = heard.filter(([name]) => name !== 'retried');
    expect(outcomes).toMatchObject([
      ['unknown', { resources: ['other'] }],
      ['refused', { resources: ['k'], error }],
    ]);
  });

  test('without a subscriber, no clock is read for events', async () => {
    const { store, clocks } = await open();
    const readsOfPut = async (): Promise<number> => {
      const before = clocks();
      await store().put('k', '1', { token: 1 });
      return clocks() - before;
    };
    await readsOfPut();
    const withoutSubscriber = await readsOfPut();
    listen();
    expect(await readsOfPut()).toBe(withoutSubscriber + 2);
  });
});

describe('Postgres', () => {
  const resource = 'invoice/42';
  const of = { store: 'postgres', resources: [resource], ...took };

  test('every transaction, query and claim is published with its outcome', async () => {
    const { store } = await openLedger();
    const heard = listen();
    const writeId = store.newWriteId();
    await store.transaction({ resource, token: 33, writeId }, (tx) => tx.query(INSERT, ['a']));
    await store.query({ resource: ['b', 'a'], token: 33 }, INSERT, ['b']);
    await store.claim({ resource, token: 34 });
    expect(heard.splice(0)).toEqual([
      ['applied', { ...of, operation: 'transaction', token: 33n, writeId }],
      ['applied', { ...of, operation: 'query', token: 33n, resources: ['a', 'b'] }],
      ['applied', { ...of, operation: 'claim', token: 34n }],
    ]);
    const error = await rejectionOf(store.query({ resource, token: 33 }, INSERT, ['late']));
    expect(error).toBeInstanceOf(StaleTokenError);
    expect(heard.splice(0)).toEqual([
      ['refused', { ...of, operation: 'query', token: 33n, error }],
    ]);
    // Failures of the caller's own statement or function publish no event.
    await rejectionOf(store.query({ resource, token: 34 }, 'SELECT 1 / 0'));
    await rejectionOf(store.transaction({ resource, token: 34 }, () => Promise.reject('no')));
    expect(heard).toEqual([]);
  });

  test('a transaction that the server rolled back is retried', async () => {
    const { store } = await openLedger();
    const heard = listen();
    const fence = { resource, token: 1, attemptsMax: 2 };
    const failing = "DO $$ BEGIN RAISE 'not now' USING ERRCODE = '40001'; END $$";
    const error = await rejectionOf(store.query(fence, failing));
    expect(error).toBeInstanceOf(ConflictError);
    const again = { store: 'postgres', resources: [resource], attempt: 1, reason: 'conflict' };
    expect(heard).toEqual([
      ['retried', { ...again, error: expect.objectContaining({ code: '40001' }) }],
      ['refused', { ...of, operation: 'query', token: 1n, error }],
    ]);
  });

  test('a lost reply to a transaction and to a claim of a record is an unknown outcome', async () => {
    const { proxy, store } = await throughProxy(await openLedger());
    const records = store.records('invoices');
    const heard = listen();
    for (const [operation, run, place] of [
      ['query', () => store.query({ resource, token: 1 }, INSERT, ['x']), {}],
      ['claim', () => records.claim(resource, { token: 1 }), { collection: 'invoices' }],
    ] as const) {
      await store.highest(resource);
      proxy.swallow('toClient');
      const running = rejectionOf(run());
      await proxy.untilSwallowed('toClient');
      proxy.cut();
      const error = await running;
      proxy.heal();
      expect(heard.splice(0)).toEqual([
        ['unknown', { ...of, ...place, operation, token: 1n, error }],
      ]);
    }
  });

  test('every write and claim of a record is published with its outcome', async () => {
    const { store } = await openLedger();
    const records = store.records('invoices');
    const heard = listen();
    const { writeId } = await records.put('42', 1, { token: 33 });
    await records.claim('42', { token: 33 });
    await records.claimAndGet('42', { token: 33 });
    await records.get('42');
    await records.delete('42', { token: 33 });
    const event = { ...of, collection: 'invoices', resources: ['42'], token: 33n };
    expect(heard.splice(0)).toMatchObject([
      ['applied', { ...event, operation: 'put', writeId }],
      ['applied', { ...event, operation: 'claim' }],
      ['applied', { ...event, operation: 'claimAndGet' }],
      ['applied', { ...event, operation: 'delete' }],
    ]);
    const error = await rejectionOf(records.put('42', 1, { token: 32 }));
    expect(heard.splice(0)).toEqual([
      ['refused', { ...event, operation: 'put', token: 32n, error }],
    ]);
    await records.update('42', { token: 33 }, async (current) => {
      if (current === null) await records.put('42', 'between', { token: 33 });
      return 'after';
    });
    expect(heard.splice(0)).toMatchObject([
      ['applied', { ...event, operation: 'put' }],
      ['retried', { collection: 'invoices', resources: ['42'], attempt: 1, reason: 'conflict' }],
      ['applied', { ...event, operation: 'update' }],
    ]);
  });
});

test('a subscriber that throws changes no outcome: its error is uncaught', async () => {
  await using server = await ScriptedServer.start(inMemory({}));
  // In its own process: the test runner would take the error for one of the test.
  const program = `
    import { subscribe } from 'node:diagnostics_channel';
    import { S3Client } from '@aws-sdk/client-s3';
    import { FencedS3 } from '@fenced/store/s3';
    const names = ${JSON.stringify(names)};
    for (const name of names) subscribe(name, () => { throw new Error(name); });
    const uncaught = [];
    process.on('uncaughtException', ({ message }) => uncaught.push(message));
    const credentials = { accessKeyId: 'key', secretAccessKey: 'secret' };
    const settings = { endpoint: '${server.endpoint}', region: 'us-east-1', credentials };
    const client = new S3Client({ ...settings, forcePathStyle: true });
    const store = new FencedS3({ client, bucket: 'bucket' });
    const { token } = await store.put('k', '1', { token: 33 });
    const stale = await store.put('k', '1', { token: 32 }).catch(({ code }) => code);
    await new Promise(setImmediate);
    console.log(JSON.stringify({ token: String(token), stale, uncaught }));
    client.destroy();`;
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['--input-type=module', '--eval', program],
    { cwd: import.meta.dirname },
  );
  expect(JSON.parse(stdout)).toEqual({
    token: '33',
    stale: 'stale-token',
    uncaught: ['fenced:store:probed', 'fenced:store:applied', 'fenced:store:refused'],
  });
});
