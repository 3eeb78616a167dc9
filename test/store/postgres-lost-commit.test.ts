import { FencedGateway } from '@fenced/client';
import { createGateway, serveGateway } from '@fenced/gateway';
import { MemoryLock } from '@fenced/lock/testing';
import { VersionMismatchError } from '@fenced/store';
import { FencedPostgres, type Json } from '@fenced/store/postgres';
import { startLocalPostgres } from '@fenced/testbed';
import { expect, test } from 'vitest';
import { connect } from './harness/postgres-support.js';

/**
 * A server that acknowledges commits before it writes them, and does not write them soon. A crash
 * loses them. So does a failover to an asynchronous standby.
 */
async function startForgetful() {
  await using parts = new AsyncDisposableStack();
  const settings = { synchronous_commit: 'off', wal_writer_delay: '10s' };
  const server = parts.use(await startLocalPostgres({ settings }));
  const pool = connect(server.url);
  const store = new FencedPostgres({ pool });
  await store.install();
  const app = createGateway({ lock: new MemoryLock(), records: store });
  const gateway = await serveGateway(app, { port: 0 });
  parts.defer(async () => void (await gateway.drain()));
  const all = parts.move();
  return {
    server,
    pool,
    store,
    url: gateway.url,
    far: new FencedGateway({ url: gateway.url }),
    /** Writes to the disk what was committed up to now. */
    checkpoint: () => pool.query('CHECKPOINT'),
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
}

const token = 33;

test('after a lost commit, a write that expects the lost version is refused', async () => {
  await using forgetful = await startForgetful();
  const { server, pool, store, far, url, checkpoint } = forgetful;
  const records = { directly: store.records('bills'), 'through a gateway': far.records('bills') };
  const at = (id: string): string => `${url}/v1/records/bills/${id}`;
  const send = (id: string, headers: Record<string, string>, body?: string) =>
    fetch(at(id), {
      method: body === undefined ? 'GET' : 'PUT',
      headers: { 'Content-Type': 'application/json', 'Fencing-Token': String(token), ...headers },
      ...(body !== undefined && { body }),
    });
  const ids = Object.keys(records).flatMap((way) =>
    ['put', 'delete', 'update'].map((call) => `${call} ${way}`),
  );
  for (const id of [...ids, 'etag']) await records.directly.put(id, ['kept'], { token });
  // docs/guarantees.md has this pattern for tables of one's own.
  await pool.query(
    `CREATE TABLE invoice (id int, version uuid);
     INSERT INTO invoice VALUES (42, gen_random_uuid())`,
  );
  const replace = 'UPDATE invoice SET version = gen_random_uuid() WHERE id = 42 AND version = $1';
  const versionOf = async () => (await pool.query('SELECT version FROM invoice')).rows[0]?.version;
  const fence = { resource: 'invoice/42', token };
  const kept = await versionOf();
  await checkpoint();

  // A writes, and B reads it.
  for (const id of [...ids, 'etag']) await records.directly.put(id, ['lost'], { token });
  await store.query(fence, replace, [kept]);
  const lost = await versionOf();
  const tag = (await fetch(at('etag'))).headers.get('etag') ?? '';
  const calls: (() => Promise<unknown>)[] = [];
  const updates: Promise<unknown>[] = [];
  const crashed = Promise.withResolvers<void>();
  for (const [way, of] of Object.entries(records)) {
    for (const call of ['put', 'delete'] as const) {
      const { version: expected } = (await of.get(`${call} ${way}`)) ?? {};
      if (expected === undefined) throw new Error('a document is there');
      const options = { token, expected };
      calls.push(() =>
        call === 'put'
          ? of.put(`put ${way}`, ['of B'], options)
          : of.delete(`delete ${way}`, options),
      );
    }
    const read = Promise.withResolvers<void>();
    const edit = async (current: { readonly body: Json } | null) => {
      read.resolve();
      await crashed.promise;
      return [...((current?.body as Json[]) ?? []), 'of B'];
    };
    updates.push(of.update(`update ${way}`, { token }, edit));
    await read.promise;
  }
  await server.crash('SIGKILL');
  for (const id of [...ids, 'etag'])
    expect(await records.directly.get(id)).toMatchObject({ body: ['kept'] });

  expect(await versionOf()).toBe(kept);

  // C writes, and its writes are acknowledged. Then B writes.
  const add = (current: { readonly body: Json } | null) => [
    ...((current?.body as Json[]) ?? []),
    'of C',
  ];
  for (const id of [...ids, 'etag']) await records.directly.update(id, { token }, add);
  expect((await store.query(fence, replace, [kept])).rowCount).toBe(1);
  await checkpoint();
  crashed.resolve();
  await Promise.all(updates);
  for (const call of calls)
    expect.soft(await call().catch((error: unknown) => error)).toBeInstanceOf(VersionMismatchError);
  expect.soft((await fetch(at('etag'), { headers: { 'If-None-Match': tag } })).status).toBe(200);
  expect.soft((await send('etag', { 'If-Match': tag }, '["of B"]')).status).toBe(412);
  expect.soft((await store.query(fence, replace, [lost])).rowCount).toBe(0);
  for (const id of [...ids, 'etag']) {
    const last = id.startsWith('update') ? ['kept', 'of C', 'of B'] : ['kept', 'of C'];
    expect.soft(await records.directly.get(id), id).toMatchObject({ body: last });
  }
}, 60_000);
