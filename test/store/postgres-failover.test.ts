import { OutcomeUnknownError, StaleTokenError, StoreSetupError } from '@fenced/store';
import { FencedPostgres } from '@fenced/store/postgres';
import { type LocalPostgres, startLocalPostgres, TcpProxy } from '@fenced/testbed';
import type pg from 'pg';
import { describe, expect, test } from 'vitest';
import { expectHistory, prepareStorm, WRITE } from './harness/postgres-storm.js';
import { connect, INSERT, rejectionOf, until } from './harness/postgres-support.js';

const resource = 'invoice/42';
/** The sessions whose commits wait for the standby. */
const OF_WAITING = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

interface Side {
  readonly pool: pg.Pool;
  readonly store: FencedPostgres;
  entries(): Promise<string[]>;
}

function sideOf({ url }: LocalPostgres): Side {
  const pool = connect(url, { max: 8 });
  return {
    pool,
    store: new FencedPostgres({ pool, holdMs: 1_500 }),
    entries: async () => {
      const { rows } = await pool.query<{ text: string }>('SELECT text FROM entry ORDER BY id');
      return rows.map(({ text }) => text);
    },
  };
}

/** A primary, and a standby that replicates it through the proxy `wire`. */
async function startPair() {
  await using parts = new AsyncDisposableStack();
  const primary = parts.use(await startLocalPostgres());
  const before = sideOf(primary);
  await before.store.install();
  await before.pool.query('CREATE TABLE entry (id serial PRIMARY KEY, text text NOT NULL)');
  await prepareStorm(before.pool);
  const { hostname, port } = new URL(primary.url);
  const wire = parts.use(await TcpProxy.start({ host: hostname, port: Number(port) }));
  const standby = parts.use(await primary.startStandby(wire));
  const after = sideOf(standby);
  const all = parts.move();
  return {
    primary,
    before,
    wire,
    after,
    /** The standby takes over with what it has. */
    promote: () => after.pool.query('SELECT pg_promote()'),
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
}

describe('an asynchronous standby takes over', () => {
  test('it has lost the last writes together with their tokens, and settle reports them as not applied', async () => {
    await using pair = await startPair();
    const { primary, before, wire, after, promote } = pair;
    const [kept, lost, refused] = [1, 2, 3].map(() => before.store.newWriteId());
    const write = (side: Side, token: number, text: string, writeId = side.store.newWriteId()) =>
      side.store.query({ resource, token, writeId }, INSERT, [text]);

    await write(before, 33, 'kept', kept);
    await until(async () => (await after.store.highest(resource)) === 33n);
    await expect(write(after, 33, 'on a standby')).rejects.toBeInstanceOf(StoreSetupError);

    wire.swallow('toClient');
    await write(before, 34, 'lost', lost);
    await expect(write(before, 33, 'late', refused)).rejects.toBeInstanceOf(StaleTokenError);
    await primary.crash('SIGKILL');
    await promote();

    expect(await after.entries()).toEqual(['kept']);
    expect(await after.store.highest(resource)).toBe(33n);
    expect(await after.store.settle(kept ?? '')).toBe('applied');
    expect(await after.store.settle(lost ?? '')).toBe('not-applied');
    expect(await after.store.settle(refused ?? '')).toBe('not-applied');
    // A late copy of the lost write is refused, because `settle` has decided.
    await expect(write(after, 34, 'lost', lost)).rejects.toMatchObject({
      code: 'invalid-argument',
    });

    // An earlier holder gets in, because its successor's token is lost. A claim keeps it out again.
    await write(after, 33, 'let in again');
    await after.store.claim({ resource, token: 34 });
    await expect(write(after, 33, 'late again')).rejects.toBeInstanceOf(StaleTokenError);
    expect(await after.entries()).toEqual(['kept', 'let in again']);

    // The old primary does not know of the failover. Clients that reach it can still write there.
    await write(before, 34, 'written to nobody');
    expect(await before.entries()).toEqual(['kept', 'lost', 'written to nobody']);
    expect(await before.store.settle(lost ?? '')).toBe('applied');
  }, 60_000);
});

describe('a synchronous standby takes over', () => {
  async function startSynchronousPair() {
    const pair = await startPair();
    const { pool } = pair.before;
    await pool.query("ALTER SYSTEM SET synchronous_standby_names = 'standby'");
    await pool.query('ALTER SYSTEM SET synchronous_commit = remote_apply');
    await pool.query('SELECT pg_reload_conf()');
    await until(async () => {
      const { rowCount } = await pool.query(
        "SELECT FROM pg_stat_replication WHERE sync_state = 'sync' AND current_setting('synchronous_commit') = 'remote_apply'",
      );
      return rowCount === 1;
    });
    // The processes of the primary load the setting one after the other. A commit does not wait for
    // the standby until the last of them has.
    pair.wire.hold('toClient');
    // Tries one commit at a time, because a waiting commit keeps one of the pool's few connections.
    let commit: Promise<void> | null = null;
    await until(async () => {
      commit ??= pool.query("SELECT pg_logical_emit_message(true, 'a', 'commit')").then(() => {
        commit = null;
      });
      return (await waiting(pair.before)) > 0;
    });
    pair.wire.release('toClient');
    await commit;
    return pair;
  }

  async function waiting({ pool }: Side): Promise<number> {
    return (await pool.query(`SELECT ${OF_WAITING}`)).rowCount ?? 0;
  }

  test('no acknowledged write is lost, no refused one is found, and settle decides the rest', async () => {
    await using pair = await startSynchronousPair();
    const { primary, before, wire, after, promote } = pair;
    const outcomes = new Map<string, 'applied' | 'not-applied' | 'unknown'>();
    const count = (wanted: string) => [...outcomes.values()].filter((o) => o === wanted).length;
    let isOver = false;
    let token = 1;
    const writer = async (name: 'a' | 'b') => {
      while (!isOver) {
        const writeId = before.store.newWriteId();
        const fence = { resource: name, token: token++, writeId };
        try {
          await before.store.query(fence, WRITE, [name, fence.token, writeId]);
          outcomes.set(writeId, 'applied');
        } catch (error) {
          const isUnknown = error instanceof OutcomeUnknownError;
          outcomes.set(writeId, isUnknown ? 'unknown' : 'not-applied');
        }
      }
    };
    const writers = ['a', 'b', 'a', 'b'].map((name) => writer(name as 'a' | 'b'));
    await until(async () => count('applied') >= 50);
    wire.swallow('toClient');
    // Two writes are committed on the primary, and wait for a standby that does not get them.
    await until(async () => (await waiting(before)) === 2);
    isOver = true;
    await primary.crash('SIGKILL');
    await Promise.all(writers);
    await promote();
    expect(count('unknown')).toBeGreaterThan(0);
    for (const [id, outcome] of outcomes)
      if (outcome === 'unknown') outcomes.set(id, await after.store.settle(id));
    expect(count('unknown')).toBe(0);
    await expectHistory(after.pool, outcomes);
  }, 60_000);

  const cancelled = {
    'a query, by its signal': ({ store }, fence, signal) =>
      store.query({ ...fence, signal }, INSERT, ['alone']),
    'a transaction, by its signal': ({ store }, fence, signal) =>
      store.transaction({ ...fence, signal }, (tx) => tx.query(INSERT, ['alone'])),
    'a query, by an administrator': ({ store }, fence) => store.query(fence, INSERT, ['alone']),
    'the write of a record, by an administrator': ({ store }, fence) =>
      store.records('bills').put('42', 'alone', fence),
    'a claim, by an administrator': ({ store }, fence) => store.claim(fence),
  } satisfies Record<
    string,
    (
      side: Side,
      fence: { resource: string; token: number; writeId: string },
      signal: AbortSignal,
    ) => Promise<unknown>
  >;

  test('a write whose wait for the standby is cancelled is unknown, and settle calls it applied only when the standby has it', async () => {
    await using pair = await startSynchronousPair();
    const { before, wire, promote, after, primary } = pair;
    wire.swallow('toClient');
    const fences = Object.entries(cancelled).map(([what, write]) => {
      const fence = { resource: what, token: 33, writeId: before.store.newWriteId() };
      return { what, write, fence };
    });
    for (const { what, write, fence } of fences) {
      const abort = new AbortController();
      const written = rejectionOf(write(before, fence, abort.signal));
      await until(async () => (await waiting(before)) === 1);
      if (what.endsWith('signal')) abort.abort(new Error('the lease was lost'));
      else await before.pool.query(`SELECT pg_cancel_backend(pid) ${OF_WAITING}`);
      expect(await written, what).toBeInstanceOf(OutcomeUnknownError);
      // The session in which the store looked for the write may still wait. It is ended.
      await before.pool.query(`SELECT pg_terminate_backend(pid) ${OF_WAITING}`);
      await until(async () => (await waiting(before)) === 0);
    }
    // The primary has committed all three writes. A failover could still lose them.
    expect(await before.entries()).toEqual(['alone', 'alone', 'alone']);
    expect(await before.store.records('bills').highest('42')).toBe(33n);
    const settle = (side: Side) =>
      Promise.allSettled(fences.map(({ fence }) => side.store.settle(fence.writeId)));
    for (const answer of await settle(before))
      expect(answer).toMatchObject({ status: 'rejected', reason: { code: 'unavailable' } });

    await primary.crash('SIGKILL');
    await promote();
    for (const answer of await settle(after))
      expect(answer).toMatchObject({ value: 'not-applied' });
    expect(await after.entries()).toEqual([]);
    expect(await after.store.records('bills').get('42')).toBeNull();
    for (const { fence } of fences) expect(await after.store.highest(fence.resource)).toBe(0n);
  }, 60_000);
});
