import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import {
  ConflictError,
  InvalidArgumentError,
  OutcomeUnknownError,
  StoreUnavailableError,
} from '@fenced/store';
import { type Fence, FencedPostgres, type FencedTransaction } from '@fenced/store/postgres';
import { POSTGRES_MAJORS, startLocalPostgres, WorkerProcess } from '@fenced/testbed';
import pg from 'pg';
import Cursor from 'pg-cursor';
import { describe, expect, test } from 'vitest';
import {
  closeAfterTest,
  connect,
  describeOfPg,
  evictionOf,
  gate,
  INSERT,
  type Ledger,
  limitsTransactions,
  openLedger,
  rejectionOf,
  startGoodbyeServer,
  testOfPg,
  throughProxy,
  until,
} from './harness/postgres-support.js';

const resource = 'invoice/42';

/** Ends the server process of every session that is in a transaction, as an administrator would. */
async function terminateTransactions({ pool }: Ledger): Promise<void> {
  await pool.query(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL`,
  );
}

describe('the connection is lost', () => {
  test('while the token is presented, nothing was written', async () => {
    const ledger = await openLedger();
    const { proxy, store } = await throughProxy(ledger);
    await store.highest(resource);
    proxy.swallow('toClient');
    const run = rejectionOf(
      store.transaction({ resource, token: 1 }, (tx) => tx.query(INSERT, ['lost'])),
    );
    await proxy.untilSwallowed('toClient');
    proxy.cut();
    expect(await run).toBeInstanceOf(StoreUnavailableError);
    expect(await ledger.store.highest(resource)).toBe(0n);
    expect(await ledger.entries()).toEqual([]);
  });

  test.each(['before a statement', 'before COMMIT'])('%s, nothing was written', async (when) => {
    const ledger = await openLedger();
    const run = ledger.store.transaction({ resource, token: 1 }, async (tx) => {
      await tx.query(INSERT, ['lost']);
      await terminateTransactions(ledger);
      if (when === 'before a statement') await tx.query(INSERT, ['lost too']);
      // Waits until the server has ended the transaction.
      else await until(async () => !(await isInTransaction(ledger)));
    });
    const error = await rejectionOf(run);
    if (when === 'before a statement') expect(error).toBeInstanceOf(StoreUnavailableError);
    else
      expect([StoreUnavailableError, OutcomeUnknownError]).toContain((error as Error).constructor);
    expect(await ledger.entries()).toEqual([]);
    await ledger.store.query({ resource, token: 1 }, INSERT, ['again']);
    expect(await ledger.entries()).toEqual(['again']);
  });

  testOfPg(
    'with the reply to COMMIT, the outcome is unknown, and the write was applied',
    async () => {
      const ledger = await openLedger();
      const { proxy, store } = await throughProxy(ledger);
      const run = store.transaction({ resource, token: 1 }, async (tx) => {
        await tx.query(INSERT, ['applied']);
        proxy.swallow('toClient');
      });
      const rejection = rejectionOf(run);
      await proxy.untilSwallowed('toClient');
      proxy.cut();
      const error = await rejection;
      expect(error).toBeInstanceOf(OutcomeUnknownError);
      expect(error).toMatchObject({ resource, writeId: expect.stringMatching(/^[0-9a-f-]{36}$/) });
      expect(await ledger.entries()).toEqual(['applied']);
    },
  );

  testOfPg(
    'with COMMIT itself, the outcome is unknown, and the write was not applied',
    async () => {
      const ledger = await openLedger();
      const { proxy, store } = await throughProxy(ledger);
      const run = store.transaction({ resource, token: 1 }, async (tx) => {
        await tx.query(INSERT, ['lost']);
        proxy.swallow('toServer');
      });
      const rejection = rejectionOf(run);
      await proxy.untilSwallowed('toServer');
      proxy.cut();
      expect(await rejection).toBeInstanceOf(OutcomeUnknownError);
      await until(async () => !(await isInTransaction(ledger)));
      expect(await ledger.entries()).toEqual([]);
    },
  );

  testOfPg(
    'with the reply to a claim, the outcome is unknown, and a second claim settles it',
    async () => {
      const ledger = await openLedger();
      const { proxy, store } = await throughProxy(ledger);
      await store.highest(resource);
      proxy.swallow('toClient');
      const rejection = rejectionOf(store.claim({ resource, token: 7 }));
      await proxy.untilSwallowed('toClient');
      proxy.cut();
      expect(await rejection).toBeInstanceOf(OutcomeUnknownError);
      proxy.heal();
      await store.claim({ resource, token: 7 });
      expect(await store.highest(resource)).toBe(7n);
    },
  );
});

describe('a function that commits by itself', () => {
  /** Functions that write `kept`, and commit the transaction themselves. */
  const commits = {
    'through its client': async (tx: FencedTransaction) => {
      await tx.query(INSERT, ['kept']);
      await tx.client.query('COMMIT');
    },
    'in a text of several statements': (tx: FencedTransaction) =>
      tx.query("INSERT INTO entry (text) VALUES ('kept'); COMMIT"),
  };
  const serializationFailure = "DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '40001'; END $$";

  describeOfPg.each(Object.entries(commits))('%s', (_, commit) => {
    test.each([
      ['is cancelled', (tx: FencedTransaction) => tx.query('SELECT pg_sleep(20)')],
      ['fails to serialize', (tx: FencedTransaction) => tx.query(serializationFailure)],
      [
        'throws',
        () => {
          throw new Error('of the function');
        },
      ],
    ])('and then %s leaves the outcome unknown, and runs once', async (_, then) => {
      const { store, entries } = await openLedger({ holdMs: 300 });
      const run = store.transaction({ resource, token: 1 }, async (tx) => {
        await commit(tx);
        await tx.client.query("SET statement_timeout = '300ms'");
        // Waits beyond the limit. After that, the store takes a cancellation for an eviction.
        await tx.client.query('SELECT pg_sleep(0.2)');
        await then(tx);
      });
      const error = await rejectionOf(run);
      expect(error).toBeInstanceOf(OutcomeUnknownError);
      expect(error).toMatchObject({ cause: { code: 'invalid-argument' } });
      expect(await entries()).toEqual(['kept']);
    });

    test.each(['waits', 'sends a statement'])(
      'and loses its connection while it %s leaves the outcome unknown',
      async (what) => {
        const ledger = await openLedger();
        const { proxy, store } = await throughProxy(ledger);
        const run = store.transaction({ resource, token: 1 }, async (tx) => {
          await commit(tx);
          const lost = new Promise((resolve) => tx.client.on('error', resolve));
          proxy.cut();
          await lost;
          if (what === 'sends a statement') await tx.query(INSERT, ['lost']);
        });
        expect(await rejectionOf(run)).toBeInstanceOf(OutcomeUnknownError);
        expect(await ledger.entries()).toEqual(['kept']);
      },
    );
  });

  test('in a text whose answer is lost leaves the outcome unknown', async () => {
    const ledger = await openLedger();
    const { proxy, store } = await throughProxy(ledger);
    const run = store.transaction({ resource, token: 1 }, (tx) => {
      proxy.swallow('toClient');
      return tx.query("INSERT INTO entry (text) VALUES ('kept'); COMMIT");
    });
    const rejection = rejectionOf(run);
    await proxy.untilSwallowed('toClient');
    proxy.cut();
    expect(await rejection).toBeInstanceOf(OutcomeUnknownError);
    expect(await ledger.entries()).toEqual(['kept']);
  });

  testOfPg('differs from one that only uses the client, which runs again', async () => {
    const { store, entries } = await openLedger();
    let runs = 0;
    await store.transaction({ resource, token: 1 }, async (tx) => {
      await tx.client.query(INSERT, [`${++runs}`]);
      if (runs === 1) await tx.query(serializationFailure);
    });
    expect(await entries()).toEqual(['2']);
  });
});

describe('the connection stays open, but no answer comes', () => {
  const holdMs = 500;
  const waitedMs = async (call: Promise<unknown>): Promise<[unknown, number]> => {
    const startedMs = performance.now();
    return [await rejectionOf(call), performance.now() - startedMs];
  };

  testOfPg('to a claim or to COMMIT, so the outcome is unknown', async () => {
    const ledger = await openLedger();
    const { proxy, store } = await throughProxy(ledger, { holdMs });
    const calls = [
      async () => {
        await store.highest(resource);
        proxy.swallow('toClient');
        await store.claim({ resource, token: 1 });
      },
      () =>
        store.transaction({ resource, token: 2 }, async (tx) => {
          await tx.query(INSERT, ['applied']);
          proxy.swallow('toClient');
        }),
    ];
    for (const call of calls) {
      const [error, elapsedMs] = await waitedMs(call());
      expect(error).toBeInstanceOf(OutcomeUnknownError);
      expect(elapsedMs).toBeGreaterThanOrEqual(holdMs);
      expect(elapsedMs).toBeLessThan(holdMs + 3_000);
      proxy.heal();
    }
    expect(await ledger.entries()).toEqual(['applied']);
  });

  test('to another call, so nothing was written', async () => {
    const ledger = await openLedger();
    const { proxy, store } = await throughProxy(ledger, { holdMs });
    for (const call of [
      () => store.transaction({ resource, token: 1 }, (tx) => tx.query(INSERT, ['lost'])),
      () => store.highest(resource),
      () => store.install(),
    ]) {
      await store.highest(resource);
      proxy.swallow('toClient');
      const [error, elapsedMs] = await waitedMs(call());
      expect(error).toBeInstanceOf(StoreUnavailableError);
      expect(elapsedMs).toBeLessThan(holdMs + 3_000);
      proxy.heal();
    }
    expect(await ledger.entries()).toEqual([]);
  });

  test("on the caller's only client, so the next transaction waits for the one that was given up", async () => {
    const ledger = await openLedger();
    const { proxy, far } = await throughProxy(ledger);
    const client = new pg.Client({ connectionString: far.href });
    await client.connect();
    closeAfterTest(() => client.end());
    const store = new FencedPostgres({ pool: client, holdMs });
    proxy.hold('toServer');
    const given = store.transaction({ resource: 'given up', token: 1 }, (tx) =>
      tx.query(INSERT, ['given up']),
    );
    expect(await rejectionOf(given)).toBeInstanceOf(StoreUnavailableError);
    const next = store.query({ resource, token: 2 }, INSERT, ['next']);
    proxy.release('toServer');
    await next;
    expect(await ledger.entries()).toEqual(['next']);
    expect(await ledger.store.highest('given up')).toBe(0n);
  });
});

async function isInTransaction({ pool }: Ledger): Promise<boolean> {
  const { rowCount } = await pool.query(
    `SELECT FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL`,
  );
  return rowCount !== 0;
}

describe('a paused holder', () => {
  testOfPg('is evicted by the server when its lease ends, and the next holder writes', async () => {
    const ledger = await openLedger();
    const { store, pool, entries, untilWaiting } = ledger;
    const leaseMs = 400;
    const lease = { remainingMs: () => leaseMs };
    const wake = gate();
    const pausedAt = gate();
    const startedMs = performance.now();
    const paused = store.transaction({ resource, token: 33, lease }, async (tx) => {
      await tx.query(INSERT, ['33']);
      pausedAt.open();
      await wake.passed;
      await tx.query(INSERT, ['33 again']);
    });
    await pausedAt.passed;
    const next = store.query({ resource, token: 34 }, INSERT, ['34']);
    await untilWaiting(1);
    await next;
    const waitedMs = performance.now() - startedMs;
    wake.open();
    const error = await rejectionOf(paused);
    expect(error).toBeInstanceOf(StoreUnavailableError);
    expect(error).toMatchObject({ cause: { code: await evictionOf(pool) } });
    expect(await entries()).toEqual(['34']);
    expect(waitedMs).toBeGreaterThanOrEqual(leaseMs);
    // 3 s are for a busy machine. Without a lease, the limit would be 10 s.
    expect(waitedMs).toBeLessThan(leaseMs + 3_000);
  });

  test.each(POSTGRES_MAJORS)(
    'in a process that is stopped while it receives rows is evicted when its lease ends (Postgres %i)',
    async (of) => {
      await using server = await startLocalPostgres({ of });
      const pool = connect(server.url);
      const store = new FencedPostgres({ pool });
      await store.install();
      await pool.query('CREATE TABLE entry (id serial PRIMARY KEY, text text NOT NULL)');
      // Long enough that the process receives rows before its lease ends, even on a busy machine.
      const leaseMs = 5_000;
      const lines: string[] = [];
      await using worker = await WorkerProcess.start(
        new URL('./harness/paused-receiver.mjs', import.meta.url),
        { args: [server.url, `${leaseMs}`], onLine: (line) => lines.push(line) },
      );
      await until(async () => lines.includes('receiving'));
      await worker.pause();
      const isSending = "SELECT FROM pg_stat_activity WHERE wait_event = 'ClientWrite'";
      await until(async () => (await pool.query(isSending)).rowCount === 1);
      const startedMs = performance.now();
      await store.query({ resource, token: 34 }, INSERT, ['34']);
      // 3 s are for a busy machine.
      expect(performance.now() - startedMs).toBeLessThan(leaseMs + 3_000);
      await worker.wake();
      await until(async () => lines.length > 1);
      expect(lines).toEqual(['receiving', 'unavailable']);
      expect((await pool.query('SELECT text FROM entry')).rows).toEqual([{ text: '34' }]);
    },
  );

  test.each([18, 15] as const)(
    'in a stopped process is evicted when its lease ends (Postgres %i)',
    async (of) => {
      await using server = await startLocalPostgres({ of });
      const pool = connect(server.url);
      const store = new FencedPostgres({ pool });
      await store.install();
      await pool.query('CREATE TABLE entry (id serial PRIMARY KEY, text text NOT NULL)');
      const leaseMs = 1_500;
      const lines: string[] = [];
      await using worker = await WorkerProcess.start(
        new URL('./harness/paused-writer.mjs', import.meta.url),
        { args: [server.url, `${leaseMs}`], onLine: (line) => lines.push(line) },
      );
      await until(async () => lines.includes('written'));
      await worker.pause();
      const startedMs = performance.now();
      await store.query({ resource, token: 34 }, INSERT, ['34']);
      const waitedMs = performance.now() - startedMs;
      // The lease began before `startedMs`. 1 s is for a busy machine.
      expect(waitedMs).toBeLessThan(leaseMs + 1_000);
      await worker.wake();
      await until(async () => lines.length > 1);
      expect(lines).toEqual(['written', 'unavailable']);
      const { rows } = await pool.query('SELECT text FROM entry');
      expect(rows).toEqual([{ text: '34' }]);
    },
  );

  test('whose lease is extended keeps its transaction until the new end of the lease', async () => {
    const { store, pool, entries } = await openLedger();
    let remainingMs = 300;
    const lease = { remainingMs: () => remainingMs };
    await store.transaction({ resource, token: 33, lease }, async (tx) => {
      remainingMs = 5_000;
      await tx.query(INSERT, ['33']);
      // Waits beyond the first end of the lease.
      await pool.query('SELECT pg_sleep(0.6)');
      await tx.query(INSERT, ['33 again']);
    });
    expect(await entries()).toEqual(['33', '33 again']);
  });

  test.each(['returns', 'throws'])(
    'sends no statement once its function %s, even one that waits for the limit to be renewed',
    async (ending) => {
      const { store, entries } = await openLedger();
      let remainingMs = 300;
      const lease = { remainingMs: () => remainingMs };
      let late: Promise<unknown> = Promise.resolve();
      const thrown = new Error('of the function');
      const run = store.transaction({ resource, token: 33, lease }, async (tx) => {
        remainingMs = 5_000;
        late = rejectionOf(tx.query(INSERT, ['not awaited']));
        if (ending === 'throws') throw thrown;
      });
      if (ending === 'throws') expect(await rejectionOf(run)).toBe(thrown);
      else await run;
      expect(await late).toBeInstanceOf(InvalidArgumentError);
      await store.query({ resource, token: 34 }, INSERT, ['34']);
      expect(await entries()).toEqual(['34']);
    },
  );

  test.each([18, 16] as const)(
    'does not outlast its lease in the middle of a statement (Postgres %i)',
    async (of) => {
      await using server = await startLocalPostgres({ of });
      const store = new FencedPostgres({ pool: connect(server.url) });
      await store.install();
      const lease = { remainingMs: () => 300 };
      const startedMs = performance.now();
      const run = store.transaction({ resource, token: 33, lease }, (tx) =>
        tx.query('SELECT pg_sleep(20)'),
      );
      expect(await rejectionOf(run)).toBeInstanceOf(StoreUnavailableError);
      await store.claim({ resource, token: 34 });
      expect(performance.now() - startedMs).toBeLessThan(3_000);
    },
  );

  testOfPg('that sends COMMIT after its eviction has written nothing', async () => {
    const { store, entries, pool } = await openLedger({ holdMs: 100 });
    const run = store.transaction({ resource, token: 33 }, async (tx) => {
      await tx.query(INSERT, ['33']);
      // Blocks the event loop, as in a paused process. The server's error stays in the socket.
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 600);
    });
    const error = await rejectionOf(run);
    expect(error).toBeInstanceOf(StoreUnavailableError);
    expect(error).toMatchObject({ cause: { code: await evictionOf(pool) } });
    expect(await entries()).toEqual([]);
    expect(pool.totalCount).toBeLessThanOrEqual(1);
  });

  test('delays the next holder no longer than the holdMs of that holder', async () => {
    const { store, pool, entries } = await openLedger();
    const impatient = new FencedPostgres({ pool, holdMs: 150 });
    const end = gate();
    const started = gate();
    const holder = store.transaction({ resource, token: 33 }, async (tx) => {
      await tx.query(INSERT, ['33']);
      started.open();
      await end.passed;
    });
    await started.passed;
    const error = await rejectionOf(impatient.query({ resource, token: 34 }, INSERT, ['34']));
    expect(error).toBeInstanceOf(ConflictError);
    expect(error).toMatchObject({ cause: { code: '55P03' } });
    end.open();
    await holder;
    expect(await entries()).toEqual(['33']);
  });

  test('whose lease is over sends nothing', async () => {
    const { store, pool, entries } = await openLedger();
    const over = { remainingMs: () => 0 };
    const run = store.query({ resource, token: 33, lease: over }, INSERT, ['33']);
    await expect(run).rejects.toMatchObject({ code: 'invalid-argument' });
    const lost = { remainingMs: () => 0, signal: AbortSignal.abort(new Error('lease lost')) };
    const again = store.query({ resource, token: 33, lease: lost }, INSERT, ['33']);
    await expect(again).rejects.toThrow('lease lost');
    expect(await entries()).toEqual([]);
    expect(pool.idleCount).toBe(pool.totalCount);
  });
});

describeOfPg('a lease', () => {
  test('limits the transaction to the time that is left when the pool lends a connection', async () => {
    const { url } = await openLedger();
    const pool = connect(url.href, { max: 1 });
    const store = new FencedPostgres({ pool });
    const hasTransactionTimeout = await limitsTransactions(pool);
    const limit = hasTransactionTimeout
      ? 'transaction_timeout'
      : 'idle_in_transaction_session_timeout';
    for (const isolation of ['read committed', 'serializable'] as const) {
      const busy = await pool.connect();
      let remainingMs = 5_000;
      const lease = { remainingMs: () => remainingMs };
      const run = store.query(
        { resource, token: 1, lease, isolation },
        `SELECT current_setting('${limit}')::interval AS hold, current_setting('lock_timeout') AS lock`,
      );
      remainingMs = 700;
      busy.release();
      // The limit is what is left of the lease after the wait for the resource.
      const between = expect.toSatisfy((ms: number) => ms > 0 && ms <= 700);
      const lock = expect.stringMatching(/^(700|[1-6]?\d?\d)ms$/);
      expect((await run).rows).toMatchObject([{ lock, hold: { milliseconds: between } }]);
    }
  });

  test('that ends during the wait for a connection sends nothing', async () => {
    const { url, store: other } = await openLedger();
    const pool = connect(url.href, { max: 1 });
    const store = new FencedPostgres({ pool });
    for (const call of [
      (fence: Fence) => store.claim(fence),
      (fence: Fence) => store.query(fence, INSERT, ['late']),
    ]) {
      const busy = await pool.connect();
      let remainingMs = 5_000;
      const run = call({ resource, token: 1, lease: { remainingMs: () => remainingMs } });
      remainingMs = 0;
      busy.release();
      expect(await rejectionOf(run)).toMatchObject({ code: 'invalid-argument' });
    }
    expect(await other.highest(resource)).toBe(0n);
    expect(pool.idleCount).toBe(1);
  });
});

describe('a signal that aborts', () => {
  testOfPg('ends the wait for the ratchet, and leaves the queue', async () => {
    const ledger = await openLedger();
    const { store, pool, untilWaiting, entries } = ledger;
    const end = gate();
    const started = gate();
    const holder = store.transaction({ resource, token: 33 }, async () => {
      started.open();
      await end.passed;
    });
    await started.passed;
    const controller = new AbortController();
    const reason = new Error('enough');
    const waiter = rejectionOf(
      store.query({ resource, token: 34, signal: controller.signal }, INSERT, ['34']),
    );
    await untilWaiting(1);
    controller.abort(reason);
    expect(await waiter).toBe(reason);
    end.open();
    await holder;
    await until(async () => !(await isInTransaction(ledger)));
    expect(await entries()).toEqual([]);
    expect(pool.waitingCount).toBe(0);
  });

  test.each(['pool', 'client'])('cancels the statement that is running (%s)', async (kind) => {
    const ledger = await openLedger();
    const client = new pg.Client({ connectionString: ledger.url.href });
    client.on('error', () => undefined);
    await client.connect();
    closeAfterTest(() => client.end());
    const store = kind === 'pool' ? ledger.store : new FencedPostgres({ pool: client });
    const isSleeping = async () => {
      const { rowCount } = await ledger.pool.query(
        "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'",
      );
      return rowCount === 1;
    };
    const controller = new AbortController();
    const run = store.transaction({ resource, token: 1, signal: controller.signal }, (tx) =>
      tx.query('SELECT pg_sleep(20)'),
    );
    const rejection = rejectionOf(run);
    await until(isSleeping);
    const reason = new Error('lease lost');
    controller.abort(reason);
    expect(await rejection).toBe(reason);
    expect(await isSleeping()).toBe(false);
    for (let i = 0; i < 10; i++) await store.query({ resource, token: 2 }, INSERT, [`${i}`]);
    expect(await ledger.entries()).toHaveLength(10);
  });

  test('before COMMIT prevents it', async () => {
    const { store, entries } = await openLedger();
    const controller = new AbortController();
    const run = store.transaction({ resource, token: 1, signal: controller.signal }, async (tx) => {
      await tx.query(INSERT, ['lost']);
      controller.abort(new Error('lease lost'));
    });
    await expect(run).rejects.toThrow('lease lost');
    expect(await entries()).toEqual([]);
  });

  testOfPg('while COMMIT is under way leaves the outcome unknown', async () => {
    const ledger = await openLedger();
    const { proxy, store } = await throughProxy(ledger);
    const controller = new AbortController();
    const run = store.transaction({ resource, token: 1, signal: controller.signal }, async (tx) => {
      await tx.query(INSERT, ['applied']);
      proxy.hold('toClient');
    });
    const rejection = rejectionOf(run);
    await proxy.untilHeld('toClient');
    controller.abort();
    expect(await rejection).toBeInstanceOf(OutcomeUnknownError);
    expect(await ledger.entries()).toEqual(['applied']);
  });
});

describeOfPg('the client of a transaction', () => {
  test('takes cursors and named statements, whose writes are fenced', async () => {
    const { store, entries } = await openLedger();
    const rows = await store.transaction(
      { resource, token: 33 },
      async (tx: FencedTransaction<pg.PoolClient>) => {
        const insert = { name: 'insert', text: INSERT };
        for (const text of ['a', 'b', 'c']) await tx.client.query({ ...insert, values: [text] });
        const cursor = tx.client.query(new Cursor('SELECT text FROM entry ORDER BY id'));
        const found = [...(await cursor.read(2)), ...(await cursor.read(2))];
        await cursor.close();
        return found;
      },
    );
    expect(rows).toEqual([{ text: 'a' }, { text: 'b' }, { text: 'c' }]);
    expect(await entries()).toEqual(['a', 'b', 'c']);
  });

  test('commits nothing after a failed statement, even if the function swallowed the error', async () => {
    const { store, entries } = await openLedger();
    const run = store.transaction({ resource, token: 33 }, async (tx) => {
      await tx.query(INSERT, ['lost']);
      await tx.client.query('SELECT 1/0').catch(() => undefined);
    });
    await expect(run).rejects.toMatchObject({ code: '25P02' });
    expect(await entries()).toEqual([]);
  });
});

test('a process lives on when the server ends a connection that is in use', async () => {
  const { url, entries } = await openLedger();
  const program = `
    import pg from 'pg';
    import { FencedPostgres } from '@fenced/store/postgres';
    const pool = new pg.Pool({ connectionString: process.argv[1] });
    const store = new FencedPostgres({ pool, holdMs: 500 });
    const run = store.transaction({ resource: 'r', token: 1 }, async (tx) => {
      await tx.query(${JSON.stringify(INSERT)}, ['lost']);
      const watcher = new pg.Client({ connectionString: process.argv[1] });
      await watcher.connect();
      const others = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL";
      while ((await watcher.query(others)).rowCount > 0);
      await watcher.end();
      await new Promise((resolve) => setImmediate(resolve));
    });
    const code = await run.catch((error) => error.code);
    await store.query({ resource: 'r', token: 2 }, ${JSON.stringify(INSERT)}, ['alive']);
    await pool.end();
    process.stdout.write(code);
  `;
  const child = spawn(
    process.execPath,
    ['--unhandled-rejections=strict', '--input-type=module', '--eval', program, url.href],
    { cwd: import.meta.dirname, stdio: ['ignore', 'pipe', 'inherit'] },
  );
  const [output, [exitCode]] = await Promise.all([text(child.stdout), once(child, 'exit')]);
  expect({ output, exitCode }).toEqual({ output: 'unavailable', exitCode: 0 });
  expect(await entries()).toEqual(['alive']);
});

describeOfPg('round trips', () => {
  test.each(['read committed', 'repeatable read', 'serializable'] as const)(
    'a statement under %s takes one',
    async (isolation) => {
      const ledger = await openLedger();
      const { proxy, store } = await throughProxy(ledger, { max: 1 });
      await store.highest(resource);
      const before = proxy.roundTrips;
      await store.query({ resource: ['a', 'b'], token: 1, isolation }, 'SELECT 1');
      expect(proxy.roundTrips - before).toBe(1);
    },
  );

  test('a claim takes one round trip, and a read of the highest token, too', async () => {
    const ledger = await openLedger();
    const { proxy, store } = await throughProxy(ledger, { max: 1 });
    await store.highest(resource);
    const before = proxy.roundTrips;
    await store.claim({ resource: ['a', 'b'], token: 1 });
    await store.highest(resource);
    expect(proxy.roundTrips - before).toBe(2);
  });
});

describe('a pg.Client in place of a pool', () => {
  async function connectClient({ url }: Ledger, options: pg.ClientConfig = {}): Promise<pg.Client> {
    const client = new pg.Client({ connectionString: url.href, ...options });
    client.on('error', () => undefined);
    await client.connect();
    closeAfterTest(() => client.end());
    return client;
  }

  test.each([false, true])(
    'is used by one transaction after the other (pipeline: %s)',
    async (pipeline) => {
      const ledger = await openLedger();
      const client = await connectClient(ledger, { pipeline });
      const store = new FencedPostgres({ pool: client });
      const another = new FencedPostgres({ pool: client });
      const names = ['a', 'b', 'c', 'd', 'e'];
      const runs = names.map((name, i) =>
        (i % 2 ? store : another).transaction({ resource, token: i + 1 }, async (tx) => {
          await tx.query(INSERT, [`${name} begins`]);
          await tx.query(INSERT, [`${name} ends`]);
        }),
      );
      await Promise.all(runs);
      expect(await ledger.entries()).toEqual(
        names.flatMap((name) => [`${name} begins`, `${name} ends`]),
      );
      expect(client.listenerCount('error')).toBe(1);
      await expect(store.query({ resource, token: 1 }, INSERT, ['late'])).rejects.toMatchObject({
        code: 'stale-token',
      });
      await store.query({ resource, token: 9 }, INSERT, ['in time']);
    },
  );

  test('that was closed sends nothing, so nothing was written', async () => {
    const client = new pg.Client({ connectionString: (await openLedger()).url.href });
    await client.connect();
    const store = new FencedPostgres({ pool: client });
    await client.end();
    for (const call of [() => store.claim({ resource, token: 1 }), () => store.highest(resource)])
      await expect(call()).rejects.toMatchObject({ code: 'unavailable' });
  });

  test('that is not connected, or in a transaction of its owner, is a set-up error', async () => {
    const ledger = await openLedger();
    const fresh = new FencedPostgres({
      pool: new pg.Client({ connectionString: ledger.url.href }),
    });
    await expect(fresh.claim({ resource, token: 1 })).rejects.toMatchObject({
      code: 'store-setup',
    });
    const client = await connectClient(ledger);
    await client.query('BEGIN');
    await client.query(INSERT, ['of the owner']);
    const store = new FencedPostgres({ pool: client });
    const run = store.query({ resource, token: 1 }, INSERT, ['fenced']);
    await expect(run).rejects.toMatchObject({ code: 'store-setup' });
    await client.query('COMMIT');
    expect(await ledger.entries()).toEqual(['of the owner']);
  });
});

test('a server that greets and says goodbye in one packet does not end the process', async () => {
  const store = new FencedPostgres({ pool: connect(await startGoodbyeServer()) });
  const call = store.query({ resource, token: 1 }, INSERT, ['1']);
  await expect(call).rejects.toMatchObject({ code: 'unavailable' });
});
