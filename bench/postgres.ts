import { FencedPostgres } from '@fenced/store/postgres';
import { startPostgres } from '@fenced/testbed';
import pg from 'pg';
import { compare, type Row, type Subject } from './measure.ts';

const UPDATE = 'UPDATE bench_invoice SET total = total + $1 WHERE id = $2';
const UPSERT = `INSERT INTO bench_document (collection, id, body) VALUES ($1, $2, $3)
  ON CONFLICT (collection, id) DO UPDATE SET body = EXCLUDED.body`;
/** Returns a named statement, which the server parses and plans once for each connection. */
const prepared = (text: string, values: unknown[]): pg.QueryConfig => ({
  name: `bench_${text.slice(0, 6)}`,
  text,
  values,
});
const BODY = { customer: 'Kleppmann', lines: [{ text: 'a token', cents: 3_400 }] };
const FENCE = { resource: 'invoice/42', token: 33n };

/**
 * The least check of a token: no function, no time limit, no guarded tables. It reads the ratchet.
 */
const LOCK = {
  name: 'bench_lock',
  text: 'SELECT pg_advisory_xact_lock_shared($1)',
  values: ['112585829737828'],
};
const COMPARE = {
  name: 'bench_look',
  text: 'SELECT FROM fenced.ratchet WHERE resource = $1 AND token = $2',
  values: [FENCE.resource, FENCE.token],
};

/** Returns a statement without a name, as most programs send it. The server plans it each time. */
const plain = (worker: number): pg.QueryConfig => ({ text: UPDATE, values: [1, worker] });

/** Runs until V8 has compiled both sides, as in a service. */
const WARM_UP = 300;

/**
 * How much slower are statements with `FencedPostgres`? All writers share a token and have own
 * rows.
 */
export async function benchPostgres(): Promise<Row[]> {
  // The lock table must hold a lock for each of 100,000 resources.
  const settings = { max_locks_per_transaction: '2048' };
  await using service = await startPostgres({ fsync: true, settings });
  const rows: Row[] = [];
  for (const synchronousCommit of ['on', 'off']) {
    const options = `-c synchronous_commit=${synchronousCommit}`;
    for (const connections of [1, 10]) {
      const config = { connectionString: service.url, max: connections, options };
      const pool = new pg.Pool(config);
      const pipelining = new pg.Pool({ ...config, pipeline: true });
      // `pool.end` does not wait until the connections are closed, so the server may still end one.
      for (const each of [pool, pipelining]) each.on('error', () => {});
      await prepare(pool);
      const setting = `${connections} conn., commit ${synchronousCommit}`;
      for (const subjects of [
        statements(pool),
        pipelines(pool, pipelining),
        transactions(pool, pipelining),
        documents(pool),
      ]) {
        const named = subjects.map((subject) => ({
          ...subject,
          name: `${subject.name} (${setting})`,
        }));
        rows.push(
          ...(await compare('postgres', named as typeof subjects, 60, {
            workers: connections,
            warmUp: WARM_UP / connections,
          })),
        );
      }
      if (connections === 1 && synchronousCommit === 'off')
        rows.push(...(await compare('postgres', guards(pool), 2)), ...(await manyResources(pool)));
      for (const each of [pool, pipelining]) await each.end();
    }
  }
  return rows;
}

async function prepare(pool: pg.Pool): Promise<void> {
  await new FencedPostgres({ pool }).install();
  await pool.query(`
    DROP TABLE IF EXISTS bench_invoice, bench_guarded, bench_document;
    CREATE TABLE bench_invoice (id int PRIMARY KEY, total bigint NOT NULL) WITH (fillfactor = 70);
    INSERT INTO bench_invoice SELECT n, 0 FROM generate_series(0, 999) n;
    CREATE TABLE bench_guarded (LIKE bench_invoice INCLUDING ALL);
    INSERT INTO bench_guarded TABLE bench_invoice;
    CREATE TABLE bench_document (collection text, id text, body jsonb, PRIMARY KEY (collection, id)) WITH (fillfactor = 70)`);
}

function statements(pool: pg.Pool): [Subject, ...Subject[]] {
  const ledger = new FencedPostgres({ pool });
  return [
    { name: 'UPDATE', run: (worker) => pool.query(UPDATE, [1, worker]) },
    { name: 'UPDATE, prepared', run: (worker) => pool.query(prepared(UPDATE, [1, worker])) },
    { name: 'query', run: (worker) => ledger.query(FENCE, UPDATE, [1, worker]) },
    {
      name: 'query with a writeId',
      run: (worker) =>
        ledger.query({ ...FENCE, writeId: ledger.newWriteId() }, UPDATE, [1, worker]),
    },
  ];
}

function pipelines(pool: pg.Pool, pipelining: pg.Pool): [Subject, ...Subject[]] {
  const ledger = new FencedPostgres({ pool });
  const send = async (update: pg.QueryConfig, first: readonly pg.QueryConfig[]) => {
    const client = await pipelining.connect();
    const begun = client.query('BEGIN');
    const checks = first.map((check) => client.query(check));
    const written = client.query(update);
    await Promise.all([begun, ...checks, written, client.query('COMMIT')]);
    client.release();
  };
  return [
    { name: 'BEGIN, UPDATE, COMMIT pipelined', run: (worker) => send(plain(worker), []) },
    { name: 'query, beside it', run: (worker) => ledger.query(FENCE, UPDATE, [1, worker]) },
    {
      name: 'least check, pipelined, prepared',
      run: (worker) => send(prepared(UPDATE, [1, worker]), [LOCK, COMPARE]),
    },
  ];
}

function transactions(pool: pg.Pool, pipelining: pg.Pool): [Subject, ...Subject[]] {
  const ledger = new FencedPostgres({ pool });
  const serially = async (
    from: pg.Pool,
    update: pg.QueryConfig,
    first: readonly pg.QueryConfig[] = [],
  ) => {
    const client = await from.connect();
    await Promise.all([client.query('BEGIN'), ...first.map((check) => client.query(check))]);
    await client.query(update);
    await client.query('COMMIT');
    client.release();
  };
  return [
    { name: 'BEGIN, UPDATE, COMMIT', run: (worker) => serially(pool, plain(worker)) },
    {
      name: 'BEGIN, UPDATE, COMMIT, prepared',
      run: (worker) => serially(pool, prepared(UPDATE, [1, worker])),
    },
    {
      name: 'transaction',
      run: (worker) => ledger.transaction(FENCE, (tx) => tx.query(UPDATE, [1, worker])),
    },
    {
      name: 'least check, with BEGIN, prepared',
      run: (worker) => serially(pipelining, prepared(UPDATE, [1, worker]), [LOCK, COMPARE]),
    },
  ];
}

function documents(pool: pg.Pool): [Subject, ...Subject[]] {
  const records = new FencedPostgres({ pool }).records('bench');
  const values = (worker: number) => ['bench', `${worker}`, JSON.stringify(BODY)];
  return [
    { name: 'upsert', run: (worker) => pool.query(UPSERT, values(worker)) },
    { name: 'upsert, prepared', run: (worker) => pool.query(prepared(UPSERT, values(worker))) },
    { name: 'records.put', run: (worker) => records.put(`${worker}`, BODY, { token: 33n }) },
  ];
}

/** A statement of 1,000 rows: its difference in ms is that of one row in µs. */
function guards(pool: pg.Pool): [Subject, ...Subject[]] {
  const ledger = new FencedPostgres({ pool });
  const update = (table: string) =>
    ledger.query(FENCE, `UPDATE ${table} SET total = total + 1`).then(() => undefined);
  let isGuarded = false;
  return [
    { name: 'UPDATE of 1,000 rows', run: () => update('bench_invoice') },
    {
      name: 'UPDATE of 1,000 guarded rows',
      run: async () => {
        if (!isGuarded) await ledger.guard('bench_guarded', "'invoice/' || (id / 1000 + 42)");
        isGuarded = true;
        await update('bench_guarded');
      },
    },
  ];
}

/** Rows of as many resources, in one transaction: does the time of a row stay the same? */
async function manyResources(pool: pg.Pool): Promise<Row[]> {
  const ledger = new FencedPostgres({ pool, holdMs: 600_000 });
  await pool.query(`DROP TABLE IF EXISTS bench_many, bench_many_guarded;
    CREATE TABLE bench_many (id int, total bigint NOT NULL DEFAULT 0);
    CREATE TABLE bench_many_guarded (LIKE bench_many INCLUDING ALL)`);
  await ledger.guard('bench_many_guarded', "'many/' || id");
  const rows: Row[] = [];
  for (const [count, rounds] of [
    [1_000, 5],
    [10_000, 3],
    [100_000, 1],
  ] as const) {
    const resource = Array.from({ length: count }, (_, n) => `many/${n + 1}`);
    const fence = { resource, token: 33n };
    for (const table of ['bench_many', 'bench_many_guarded'])
      await ledger.query(fence, `INSERT INTO ${table} SELECT generate_series(1, ${count})`);
    const subjects: [Subject, ...Subject[]] = [
      {
        name: `UPDATE of ${count} rows`,
        run: () => pool.query('UPDATE bench_many SET total = total + 1'),
      },
      {
        name: `UPDATE of ${count} guarded rows of as many resources`,
        run: () => ledger.query(fence, 'UPDATE bench_many_guarded SET total = total + 1'),
      },
    ];
    rows.push(...(await compare('postgres', subjects, 1, { rounds, warmUp: 0 })));
    for (const table of ['bench_many', 'bench_many_guarded'])
      await ledger.query(fence, `DELETE FROM ${table}`);
  }
  return rows;
}
