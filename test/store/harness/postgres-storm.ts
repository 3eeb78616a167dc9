import { StoreUnavailableError } from '@fenced/store';
import { FencedPostgres, type IsolationLevel } from '@fenced/store/postgres';
import fc from 'fast-check';
import pg from 'pg';
import { expect } from 'vitest';

const LEVELS: readonly IsolationLevel[] = ['read committed', 'repeatable read', 'serializable'];

/** One write, and the fault that hits sessions of the server during that write. */
interface Operation {
  readonly resource: string;
  readonly token: number;
  readonly how: 'query' | 'transaction' | 'another program';
  readonly isolation: IsolationLevel;
  readonly fault: 'none' | 'cancel' | 'terminate';
}

const operation: fc.Arbitrary<Operation> = fc.record({
  resource: fc.constantFrom('a', 'b'),
  token: fc.integer({ min: 1, max: 60 }),
  how: fc.constantFrom('query', 'transaction', 'another program'),
  isolation: fc.constantFrom(...LEVELS),
  fault: fc.oneof(
    { weight: 6, arbitrary: fc.constant('none' as const) },
    { weight: 2, arbitrary: fc.constant('cancel' as const) },
    { weight: 1, arbitrary: fc.constant('terminate' as const) },
  ),
});

/** Plans for several writers at the same time. In the list of each writer, tokens mostly grow. */
export const plans: fc.Arbitrary<Operation[][]> = fc.array(
  fc
    .array(operation, { minLength: 6, maxLength: 10 })
    .map((list) => list.map((op, at) => ({ ...op, token: op.token + 20 * at }))),
  { minLength: 4, maxLength: 8 },
);

type Outcome = 'applied' | 'not-applied' | 'unknown';

export const WRITE = `WITH counted AS (UPDATE counter SET n = n + 1 WHERE resource = $1)
  INSERT INTO history (resource, token, write) VALUES ($1, $2, $3)`;

export async function prepareStorm(pool: pg.Pool): Promise<void> {
  await pool.query(`
    CREATE TABLE history (at serial, resource text, token bigint, write text UNIQUE);
    CREATE TABLE counter (resource text PRIMARY KEY, n int NOT NULL);
    INSERT INTO counter VALUES ('a', 0), ('b', 0)`);
}

/**
 * Carries out a plan, and checks its history.
 *
 * @param url the address that the writers use, which may be a pooler's
 * @param admin connections straight to the server
 */
export async function storm(url: string, admin: pg.Pool, plan: Operation[][]): Promise<void> {
  const pool = new pg.Pool({ connectionString: url, max: plan.length });
  pool.on('error', () => undefined);
  const store = new FencedPostgres({ pool, holdMs: 3_000 });
  const judge = new FencedPostgres({ pool: admin });
  const outcomes = new Map<string, Outcome>();
  await admin.query(
    "TRUNCATE history; UPDATE counter SET n = 0; SELECT fenced.reset(r, 1, 'a new storm') FROM unnest('{a,b}'::text[]) r",
  );
  const writer = async (operations: Operation[]): Promise<void> => {
    for (const op of operations) {
      const id = judge.newWriteId();
      const [outcome] = await Promise.all([write(pool, store, op, id), disturb(admin, op)]);
      const known = outcome === 'unknown' ? await settled(judge, id) : outcome;
      outcomes.set(id, op.how === 'another program' ? outcome : known);
      if (op.how !== 'another program')
        expect(known, 'a note of one day tells').not.toBe('unknown');
    }
  };
  try {
    await Promise.all(plan.map(writer));
    await expectHistory(admin, outcomes);
  } finally {
    await pool.end();
  }
}

async function write(
  pool: pg.Pool,
  store: FencedPostgres,
  op: Operation,
  id: string,
): Promise<Outcome> {
  const values = [op.resource, op.token, id];
  const fence = { resource: op.resource, token: op.token, isolation: op.isolation, writeId: id };
  try {
    if (op.how === 'query') await store.query(fence, WRITE, values);
    else if (op.how === 'transaction')
      await store.transaction(fence, (tx) => tx.query(WRITE, values));
    else await writeWithoutLibrary(pool, op, values);
    return 'applied';
  } catch (error) {
    if (op.how === 'another program') return 'unknown';
    const { code } = error as { code?: string };
    return code === 'outcome-unknown' ? 'unknown' : 'not-applied';
  }
}

function ignore(): void {}

async function writeWithoutLibrary(pool: pg.Pool, op: Operation, values: unknown[]): Promise<void> {
  const client = await pool.connect();
  let failure: Error | undefined;
  // Without a listener, a lost connection would end this process.
  client.on('error', ignore);
  try {
    await client.query('BEGIN');
    await client.query('SELECT fenced.present($1, $2::bigint)', [op.resource, op.token]);
    await client.query(WRITE, values);
    const { command } = await client.query('COMMIT');
    if (command !== 'COMMIT') throw new Error(command);
  } catch (error) {
    failure = error as Error;
    throw error;
  } finally {
    if (!failure) client.off('error', ignore);
    client.release(failure);
  }
}

/** Cancels or terminates a session of the database that is at work, if there is one. */
async function disturb(admin: pg.Pool, { fault }: Operation): Promise<void> {
  if (fault === 'none') return;
  await admin.query(
    `SELECT pg_${fault}_backend(pid) FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle' AND query NOT LIKE '%settle%'
      ORDER BY random() LIMIT 1`,
  );
}

/** Calls `settle` again if a cancellation that was meant for another statement has hit the call. */
async function settled(store: FencedPostgres, id: string): Promise<Outcome> {
  for (;;) {
    try {
      return await store.settle(id);
    } catch (error) {
      if (!(error instanceof StoreUnavailableError)) throw error;
    }
  }
}

/**
 * Requires that no acknowledged write is lost, that no refused one is found, and that tokens grow.
 * The rows are in the order in which their writers had the resource.
 */
export async function expectHistory(
  admin: pg.Pool,
  outcomes: ReadonlyMap<string, Outcome>,
): Promise<void> {
  const { rows } = await admin.query<{ resource: string; token: string; write: string }>(
    'SELECT resource, token, write FROM history ORDER BY at',
  );
  const found = new Set(rows.map(({ write }) => write));
  const named = (wanted: Outcome) =>
    [...outcomes].filter(([, outcome]) => outcome === wanted).map(([write]) => write);
  expect(named('applied').filter((write) => !found.has(write))).toEqual([]);
  expect(named('not-applied').filter((write) => found.has(write))).toEqual([]);
  expect(found.size).toBe(rows.length);
  for (const resource of ['a', 'b']) {
    const tokens = rows
      .filter((row) => row.resource === resource)
      .map(({ token }) => Number(token));
    expect(tokens).toEqual(tokens.toSorted((x, y) => x - y));
    const counter = await admin.query('SELECT n FROM counter WHERE resource = $1', [resource]);
    expect(counter.rows).toEqual([{ n: tokens.length }]);
  }
  // An empty history would say nothing.
  expect(named('applied').length).toBeGreaterThan(0);
}
