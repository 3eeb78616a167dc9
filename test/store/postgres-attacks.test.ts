import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { PostgresLock } from '@fenced/lock/postgres';
import { FencedPostgres } from '@fenced/store/postgres';
import { type LocalPostgres, POSTGRES_MAJORS, startLocalPostgres } from '@fenced/testbed';
import pg from 'pg';
import { from as copyFrom } from 'pg-copy-streams';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  ATTACKS,
  type Attack,
  CLEAN_UP,
  COPIED,
  forged,
  GUARDS,
  LATER,
  PLANTS,
  ROLES,
  ROWS,
  type Role,
  TABLES,
} from './harness/postgres-attacks.js';

const schemaFile = new URL(import.meta.resolve('@fenced/store/postgres/schema.sql'));

/** All rows of the guarded tables. */
const CONTENTS = `SELECT json_build_array(
  (SELECT json_agg(t ORDER BY id) FROM invoice t), (SELECT json_agg(t ORDER BY text) FROM line t),
  (SELECT json_agg(t ORDER BY number) FROM card t), (SELECT json_agg(t ORDER BY id) FROM part t),
  (SELECT json_agg(t) FROM dated t))::text AS contents`;

/** All resources that the attacks name. */
const RESOURCES = `SELECT array_agg(r) FROM (
  SELECT 'invoice/' || n AS r FROM generate_series(1, 300) n
  UNION SELECT 'customer/' || n FROM generate_series(1, 100) n
  UNION SELECT 'part/' || n FROM generate_series(1, 30) n
  UNION SELECT 'dated ' || bytes::text || ' ' || share FROM dated) all_of_them`;

describe.each(POSTGRES_MAJORS)('on PostgreSQL %i', (of) => {
  let server: LocalPostgres;
  const admins: Record<string, Promise<pg.Client>> = {};
  const pools: pg.Pool[] = [];
  let names = 0;
  let stale = '';
  let cleanUp = '';

  async function connectTo(database: string, role: Role = 'postgres'): Promise<pg.Client> {
    const url = new URL(server.url);
    url.pathname = `/${database}`;
    if (role !== 'postgres') Object.assign(url, { username: role, password: 'secret' });
    const client = new pg.Client(url.href);
    client.on('error', () => undefined);
    await client.connect();
    return client;
  }

  /** Runs statements as the superuser. */
  async function run(database: string, ...statements: string[]): Promise<pg.QueryResult> {
    admins[database] ??= connectTo(database);
    const client = await admins[database];
    let last: pg.QueryResult | undefined;
    for (const statement of statements)
      last = await client.query(statement.replaceAll('@DATABASE@', database));
    return last as pg.QueryResult;
  }

  beforeAll(async () => {
    server = await startLocalPostgres({ of, settings: { max_prepared_transactions: '10' } });
    const roles = (Object.keys(ROLES) as (keyof typeof ROLES)[]).filter(
      (role) => role !== 'maintains' || of >= 17,
    );
    await run('postgres', ...roles.map((role) => `CREATE ROLE ${role} LOGIN PASSWORD 'secret'`));
    const schema = await readFile(schemaFile, 'utf8');
    const attackers = roles.filter((role) => role !== 'keeper');
    const grants = attackers
      .filter((role) => ROLES[role].length > 0)
      .map((role) => `GRANT ${ROLES[role].join(', ')} ON ALL TABLES IN SCHEMA public TO ${role}`);
    cleanUp = [CLEAN_UP.replace('@ATTACKERS@', attackers.join(', ')), ...grants].join(';');
    const allowed = "SELECT fenced.allow('keeper')";
    for (const name of ['open', 'guarded', 'planted'])
      await run('postgres', `CREATE DATABASE ${name}`);
    await run('planted', 'GRANT CREATE ON SCHEMA public TO PUBLIC');
    await (await admins.planted)?.end();
    const planting = await connectTo('planted', 'nothing');
    await planting.query(PLANTS);
    await planting.end();
    await run('open', schema, allowed, TABLES, LATER);
    await run('guarded', schema, allowed, TABLES, ROWS, GUARDS, LATER);
    await run('guarded', `SELECT fenced.present((${RESOURCES}), 34)`);
    stale = (await run('guarded', `SELECT (${RESOURCES})::text AS names`)).rows[0].names;
  }, 120_000);
  afterAll(async () => {
    for (const pool of pools) await pool.end();
    for (const admin of Object.values(admins)) await (await admin).end().catch(() => undefined);
    await server?.stop();
  });

  /** Runs the statements, and returns the SQLSTATE of each; an empty string for success. */
  async function attack(database: string, { as = 'clerk', statements }: Attack): Promise<string[]> {
    const client = await connectTo(database, as);
    const codes: string[] = [];
    try {
      for (const statement of [...statements, 'COMMIT']) {
        const text = statement.replaceAll('@DATABASE@', database);
        try {
          if (text.includes('FROM STDIN'))
            await pipeline(Readable.from([COPIED]), client.query(copyFrom(text)));
          else await client.query(text);
          codes.push('');
        } catch (error) {
          codes.push((error as pg.DatabaseError).code ?? String(error));
        }
      }
    } finally {
      const ended = once(client, 'end');
      await client.end();
      await ended.catch(() => undefined);
    }
    return codes;
  }

  const contentsOf = async (database: string): Promise<string> =>
    (await run(database, CONTENTS)).rows[0].contents;

  describe.each(['"$user", public', 'public, pg_catalog'])(
    'objects that a role plants in a shared schema are not run by a superuser with the path %s',
    (path) => {
      async function openPlanted(...before: string[]) {
        const name = `planted_${names++}`;
        await run('postgres', `CREATE DATABASE ${name} TEMPLATE planted`);
        await run(name, 'SET search_path = pg_catalog', ...before);
        const url = new URL(server.url);
        url.pathname = `/${name}`;
        const options = `-c search_path=${path.replaceAll(' ', '')}`;
        const pool = new pg.Pool({ connectionString: url.href, options });
        pool.on('error', () => undefined);
        pools.push(pool);
        return { pool, store: new FencedPostgres({ pool }) };
      }

      test('the hostile operators and functions are used if nothing prevents it', async () => {
        const { pool } = await openPlanted();
        for (const statement of ["SELECT 'a' || 1", "SELECT format('%s', 1::bigint::oid)"])
          await expect(pool.query(statement)).rejects.toMatchObject({ code: 'CA001' });
      });

      test('install, claims, writes, records and locks', async () => {
        const { pool, store } = await openPlanted('CREATE TABLE public.entry (id int)');
        await store.install();
        await store.install();
        const fence = { resource: 'invoice/1', token: 34 };
        const write = 'INSERT INTO public.entry VALUES (1)';
        for (let i = 0; i < 3; i++) await store.query(fence, write);
        await store.transaction({ ...fence, isolation: 'serializable' }, (tx) => tx.query(write));
        expect(await store.highest('invoice/1')).toBe(34n);
        const writeId = store.newWriteId();
        await store.query({ ...fence, writeId }, write);
        expect(await store.settle(writeId)).toBe('applied');
        const records = store.records('invoice');
        await records.put('1', { a: 1 }, { token: 34 });
        expect(await records.claimAndGet('1', { token: 35 })).toMatchObject({ body: { a: 1 } });
        const lock = new PostgresLock({ pool });
        await lock.install();
        await using lease = await lock.acquire('x', { ttlMs: 10_000 });
        await lease.extend(10_000);
      });

      test.each([5, 6])('an upgrade from version %i', async (from) => {
        const file = new URL(`./harness/postgres-schema-${from}.sql`, import.meta.url);
        const { store } = await openPlanted(await readFile(file, 'utf8'));
        await store.install();
        await store.claim({ resource: 'invoice/1', token: 34 });
      });

      test('guard, guards and unguard; an expression with a planted operator is refused', async () => {
        const { pool, store } = await openPlanted('CREATE TABLE public.invoice (id int)');
        await store.install();
        await expect(store.guard('public.invoice', "'invoice/' || id")).rejects.toMatchObject({
          code: 'invalid-argument',
          message: expect.stringContaining('of the role nothing'),
        });
        await store.guard('public.invoice', "'invoice/' OPERATOR(pg_catalog.||) id");
        expect(await store.guards()).toMatchObject([{ problem: null }]);
        const write = 'INSERT INTO public.invoice VALUES (1)';
        await expect(pool.query(write)).rejects.toMatchObject({ code: 'UF002' });
        await store.query({ resource: 'invoice/1', token: 1 }, write);
        await store.unguard('public.invoice');
        await pool.query(write);
      });
    },
  );

  const known = ATTACKS.filter(({ since = 14 }) => of >= since);

  test('there are more than sixty attacks', () => {
    expect(known.length).toBeGreaterThan(60);
  });

  test.each(known)('$title', async (one) => {
    const { before = [], codes = /^UF00[12]$/ } = one;
    await run('open', cleanUp, ROWS);
    await run('guarded', cleanUp);
    const contents = await contentsOf('guarded');
    expect(await contentsOf('open')).toBe(contents);

    // On a table without a guard, the attack must succeed. Otherwise it would show nothing.
    await run('open', ...before).catch((error) => expect(error.message).toMatch(/fenced/));
    await attack('open', one);
    if (!one.isHarmless) expect(await contentsOf('open')).not.toBe(contents);

    await run('guarded', ...before);
    if (!one.isOnItsOwn) {
      const answers = await attack('guarded', {
        ...one,
        statements: ['BEGIN', forged(`'${stale}'::text[]`, 33), ...one.statements],
      });
      expect(answers.slice(0, 2)).toEqual(['', '']);
      expect(answers).toContainEqual(expect.stringMatching(codes));
      expect(await contentsOf('guarded')).toBe(contents);
    }
    const answers = await attack('guarded', one);
    expect(answers).toContainEqual(expect.stringMatching(codes));
    expect(await contentsOf('guarded')).toBe(contents);
    const { rows } = await run('guarded', 'SELECT problem FROM fenced.guards()');
    expect(rows).toHaveLength(5);
    for (const { problem } of rows)
      expect(problem ?? '').not.toMatch(/gone|earlier version|changed|belong|rows/);
  });
});
