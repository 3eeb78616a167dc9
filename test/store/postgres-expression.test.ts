import { describe, expect, test } from 'vitest';
import { openLedger } from './harness/postgres-support.js';

/** Objects that expressions of the tests use. */
const OBJECTS = `
  CREATE TABLE tenant (id int, name text);
  CREATE TABLE invoice (id int, kind text, at timestamptz, day date);
  CREATE SEQUENCE counter;
  CREATE FUNCTION hidden(int) RETURNS text LANGUAGE sql IMMUTABLE
    RETURN current_setting('app.tenant') || $1;
  CREATE FUNCTION hidden_twice(int) RETURNS text LANGUAGE sql IMMUTABLE RETURN 'i/' || hidden($1);
  CREATE FUNCTION hidden_text(int) RETURNS text LANGUAGE sql IMMUTABLE SET search_path = pg_catalog
    AS $$ SELECT current_setting('app.tenant') || $1 $$;
  CREATE FUNCTION hidden_plpgsql(int) RETURNS text LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog
    AS $$ BEGIN RETURN current_setting('app.tenant') || $1; END $$;
  CREATE FUNCTION hidden_query(int) RETURNS text LANGUAGE sql IMMUTABLE
    RETURN (SELECT name FROM tenant WHERE id = $1);
  CREATE FUNCTION hidden_user(int) RETURNS text LANGUAGE sql IMMUTABLE RETURN current_user || $1;
  CREATE FUNCTION hidden_definer(int) RETURNS text LANGUAGE sql IMMUTABLE SECURITY DEFINER
    SET search_path = pg_catalog BEGIN ATOMIC SELECT now()::text || $1; END;
  CREATE FUNCTION only_stable(int) RETURNS text LANGUAGE sql STABLE RETURN 'invoice/' || $1;
  CREATE OPERATOR #+ (LEFTARG = text, RIGHTARG = int, FUNCTION = hidden_pair);
  CREATE FUNCTION pure(kind text, id int DEFAULT 1) RETURNS text LANGUAGE sql IMMUTABLE
    RETURN kind || '/' || id;
  CREATE FUNCTION pure_twice(int) RETURNS text LANGUAGE sql IMMUTABLE
    BEGIN ATOMIC SELECT pure('invoice', $1); END;
  CREATE FUNCTION pure_of_many(VARIADIC text[]) RETURNS text LANGUAGE sql IMMUTABLE RETURN $1[1] || $1[2];
`.replace(
  'CREATE OPERATOR',
  `CREATE FUNCTION hidden_pair(text, int) RETURNS text LANGUAGE sql IMMUTABLE RETURN current_setting('app.tenant');
  CREATE OPERATOR`,
);

/** Each lets the writer, or the time, choose the resource of a row. */
const CHOSEN = [
  "current_setting('app.tenant') || id",
  '(SELECT name FROM tenant WHERE tenant.id = invoice.id)',
  "'invoice/' || (SELECT max(id) FROM tenant)",
  'random()::text',
  "nextval('counter')::text",
  "'invoice/' || now()",
  'current_user || id',
  'session_user || id',
  "coalesce(inet_client_addr()::text, 'local') || id",
  "'invoice/' || at",
  "'invoice/' || day",
  "'invoice/' || at::date::text",
  "to_char(day, 'TMMonth')",
  "concat('invoice/', id)",
  "'invoice/' || kind::regclass",
  "'invoice/' || txid_current()",
  'invoice::text',
  "to_jsonb(invoice) ->> 'id'",
  "'invoice/' || tableoid",
  'hidden(id)',
  'hidden_twice(id)',
  'hidden_text(id)',
  'hidden_plpgsql(id)',
  'hidden_query(id)',
  'hidden_user(id)',
  'hidden_definer(id)',
  'kind #+ id',
  'only_stable(id)',
];

/** Each depends on the row alone. */
const OF_THE_ROW = [
  "'invoice/' || id",
  "kind || '/' || invoice.id",
  "'invoice/' || extract(year FROM day) || '-' || extract(month FROM day)",
  "'invoice/' || ((at AT TIME ZONE 'UTC')::date - DATE '1970-01-01')",
  "CASE WHEN id < 0 THEN 'old' ELSE upper(kind) END",
  'pure(kind, id)',
  'pure(kind)',
  'pure_twice(id)',
  "pure_of_many('invoice/', kind)",
];

describe('the expression of a guard', () => {
  test('is refused if it depends on more than the row', async () => {
    const { store, pool } = await openLedger();
    await pool.query(OBJECTS);
    const accepted: string[] = [];
    for (const expression of CHOSEN) {
      const guarded = store.guard('invoice', expression).then(
        () => accepted.push(expression),
        (error) =>
          expect(error, expression).toMatchObject({
            code: 'invalid-argument',
            message: expect.stringMatching(/depends on more than the row|uses the function/),
          }),
      );
      await guarded;
    }
    expect(accepted).toEqual([]);
    expect(await store.guards()).toEqual([]);
  });

  test('is accepted if it depends on the row alone', async () => {
    const { store, pool } = await openLedger();
    await pool.query(OBJECTS);
    for (const expression of OF_THE_ROW) {
      await store.guard('invoice', expression);
      expect(await store.guards(), expression).toMatchObject([{ expression, problem: null }]);
    }
  });

  test('is reported when one of its functions was replaced, and when an earlier version guarded the table', async () => {
    const { store, pool } = await openLedger();
    await pool.query(OBJECTS);
    await store.guard('invoice', 'pure_twice(id)');
    await pool.query(`CREATE OR REPLACE FUNCTION pure(kind text, id int DEFAULT 1) RETURNS text
      LANGUAGE sql VOLATILE RETURN current_setting('app.tenant')`);
    expect(await store.guards()).toMatchObject([
      { problem: 'a function in its expression was changed: call fenced.guard again' },
    ]);
    await expect(store.guard('invoice', 'pure_twice(id)')).rejects.toThrow(
      'the expression uses the function',
    );
    // The refused call changed nothing: the guard is still there.
    expect(await store.guards()).toMatchObject([{ expression: 'pure_twice(id)' }]);
    await store.guard('invoice', "'invoice/' || id");
    // Earlier versions kept no record of a guard.
    await pool.query('DELETE FROM fenced.guarded');
    expect(await store.guards()).toMatchObject([
      { problem: expect.stringMatching(/^an earlier version made it/) },
    ]);
  });
});
