import { FencedPostgres } from '@fenced/store/postgres';
import { startPostgres } from '@fenced/testbed';
import pg from 'pg';
import { compare, type Row } from './measure.ts';

const UPDATE = 'UPDATE bench_invoice SET total = total + 1 WHERE id = 42';

/** One small update by one writer after the other. The raw limit is the same update in a transaction of its own. */
export async function benchPostgres(): Promise<Row[]> {
  await using service = await startPostgres();
  const pool = new pg.Pool({ connectionString: service.url });
  // `end` does not wait for the connections to close, so the server may still end one of them.
  pool.on('error', () => {});
  const ledger = new FencedPostgres({ pool });
  await ledger.install();
  await pool.query('CREATE TABLE IF NOT EXISTS bench_invoice (id int PRIMARY KEY, total bigint)');
  await pool.query('INSERT INTO bench_invoice VALUES (42, 0) ON CONFLICT DO NOTHING');
  const fence = { resource: 'invoice/42', token: 33n };
  const rows = await compare(
    'postgres',
    [
      {
        name: 'BEGIN, UPDATE, COMMIT',
        run: async () => {
          const client = await pool.connect();
          await client.query('BEGIN');
          await client.query(UPDATE);
          await client.query('COMMIT');
          client.release();
        },
      },
      { name: 'query', run: () => ledger.query(fence, UPDATE) },
      { name: 'transaction', run: () => ledger.transaction(fence, (tx) => tx.query(UPDATE)) },
    ],
    100,
  );
  await pool.query('DROP TABLE bench_invoice');
  await pool.end();
  return rows;
}
