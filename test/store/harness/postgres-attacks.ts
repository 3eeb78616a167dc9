/** Statements that try to write rows of a guarded table without the right to. */

/** The roles of the attacks, and what each may do with the tables of `keeper`, their owner. */
export const ROLES = {
  keeper: [],
  /** May present tokens. */
  clerk: ['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES'],
  /** May not. */
  guest: ['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES'],
  selects: ['SELECT'],
  inserts: ['INSERT'],
  updates: ['UPDATE'],
  deletes: ['DELETE'],
  truncates: ['TRUNCATE'],
  refers: ['REFERENCES'],
  triggers: ['TRIGGER'],
  maintains: ['MAINTAIN'],
  nothing: [],
} as const;

export type Role = keyof typeof ROLES | 'postgres';

export interface Attack {
  readonly title: string;
  /** @default 'clerk' */
  readonly as?: Role;
  /** They are sent one by one, even if one fails. `COPY … FROM STDIN` copies `COPIED`. */
  readonly statements: readonly string[];
  /** Statements that the superuser runs before, on another connection. */
  readonly before?: readonly string[];
  /** Matches the SQLSTATE with which at least one statement must fail. @default UF001 or UF002 */
  readonly codes?: RegExp;
  /** The first major version of PostgreSQL that knows the statements. */
  readonly since?: number;
  /** True if they cannot follow other statements in one transaction. */
  readonly isOnItsOwn?: boolean;
  /** True if the statements change nothing, even in a table without a guard. */
  readonly isHarmless?: boolean;
}

export const COPIED = '8\t1\n9\t1\n';

/**
 * The tables before each attack. Then the test claims token 34 for each resource of the attacks.
 */
export const TABLES = `
  CREATE EXTENSION postgres_fdw;
  CREATE EXTENSION dblink;
  GRANT CREATE ON SCHEMA public TO PUBLIC;
  SET ROLE keeper;
  CREATE TABLE invoice (id int PRIMARY KEY, total int NOT NULL DEFAULT 0);
  CREATE TABLE line (invoice int REFERENCES invoice ON DELETE CASCADE ON UPDATE CASCADE, text text);
  CREATE TABLE customer (id int PRIMARY KEY);
  CREATE TABLE card (customer int REFERENCES customer ON DELETE SET NULL ON UPDATE CASCADE, number int);
  CREATE TABLE part (id int, total int) PARTITION BY RANGE (id);
  CREATE TABLE part_low PARTITION OF part FOR VALUES FROM (0) TO (10);
  CREATE TABLE dated (at timestamptz, span interval, bytes bytea, share float8, price money, total int DEFAULT 0);
  CREATE VIEW invoice_view AS SELECT * FROM invoice;
  CREATE VIEW invoice_ruled AS SELECT * FROM invoice;
  CREATE RULE ruled AS ON UPDATE TO invoice_ruled DO INSTEAD UPDATE invoice SET total = NEW.total WHERE id = OLD.id;
  CREATE FUNCTION bump(int) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp
    AS 'UPDATE invoice SET total = 1 WHERE id = $1';
  RESET ROLE;`;

export const GUARDS = `
  SET ROLE keeper;
  SELECT fenced.guard('invoice', $$'invoice/' || id$$);
  SELECT fenced.guard('line', $$'invoice/' || invoice$$);
  SELECT fenced.guard('card', $$'customer/' || customer$$);
  SELECT fenced.guard('part', $$'part/' || id$$);
  SELECT fenced.guard('dated', $$'dated ' || bytes::text || ' ' || share$$);
  RESET ROLE;`;

/** Statements that run after the tables have their guards. */
export const LATER = `
  SET ROLE keeper;
  CREATE TABLE part_high PARTITION OF part FOR VALUES FROM (10) TO (20);
  RESET ROLE;`;

/** Removes the objects that attacks have made. Rows of the tables stay. */
export const CLEAN_UP = `
  DROP SERVER IF EXISTS back CASCADE;
  DROP TABLE IF EXISTS part_more;
  DROP OWNED BY @ATTACKERS@ CASCADE;
  CREATE SCHEMA clerk AUTHORIZATION clerk;
  GRANT CREATE, TEMP ON DATABASE @DATABASE@ TO PUBLIC;
  ALTER ROLE clerk RESET ALL;
  ALTER DATABASE @DATABASE@ RESET ALL;
  SELECT fenced.allow('clerk');`;

export const ROWS = `
  TRUNCATE invoice, line, customer, card, part, dated, fenced.ratchet;
  INSERT INTO invoice (id) SELECT generate_series(1, 4);
  INSERT INTO line VALUES (1, 'a'), (2, 'b');
  INSERT INTO customer SELECT generate_series(1, 4);
  INSERT INTO card VALUES (1, 1), (2, 2);
  INSERT INTO part VALUES (1, 1), (2, 2);
  INSERT INTO dated VALUES ('2026-03-02 01:02:03+00', '1 day 2 hours', '\\x6162', 0.1::float8 + 0.2, 1234.5);`;

const UPDATE = 'UPDATE invoice SET total = 1 WHERE id = 1';
/**
 * SQL that makes the settings of `fenced.present` without a check of the token, as any role can.
 *
 * @param resources SQL of a text[]
 */
export const forged = (resources: string, token: number | string): string =>
  `SELECT set_config(fenced.slot(r), extract(epoch FROM now()) || E'\\n' || string_agg(to_json(r) || ' ${token}' || E'\\n', ''), true)
    FROM unnest((${resources})) r GROUP BY fenced.slot(r)`;
const forgedFor1 = (token: number | string): string => forged("ARRAY['invoice/1']", token);

/** The name of the setting for `invoice/1`, and a value that `fenced.present` could have given. */
const SLOT = 'fenced.presented_249';
const VALUE = `extract(epoch FROM now()) || E'\\n"invoice/1" 34\\n'`;

/** Joins statements to one text with one transaction, as `psql -c` sends it. */
const together = (...statements: string[]): string[] => [
  ['BEGIN', ...statements, 'COMMIT'].join('; '),
];
/** Presents a token above all others for this resource. Attacks name another one than the row's. */
const presenting = (resource: string): string => `SELECT fenced.present('${resource}', 50)`;

const CONCAT = `LANGUAGE sql IMMUTABLE AS $$ SELECT 'mine' $$`;
const OPERATOR = (schema: string): string[] => [
  `CREATE FUNCTION ${schema}.hostile_concat(text, int) RETURNS text ${CONCAT}`,
  `CREATE OPERATOR ${schema}.|| (LEFTARG = text, RIGHTARG = int, FUNCTION = ${schema}.hostile_concat)`,
];

const loopback =
  "dbname=' || current_database() || ' host=127.0.0.1 port=' || current_setting('port') || ' user=clerk password=secret'";

export const ATTACKS: readonly Attack[] = [
  { title: 'INSERT', statements: ['INSERT INTO invoice VALUES (9)'] },
  { title: 'INSERT of many', statements: ['INSERT INTO invoice SELECT generate_series(100, 300)'] },
  { title: 'INSERT … RETURNING', statements: ['INSERT INTO invoice VALUES (9) RETURNING *'] },
  { title: 'UPDATE', statements: [UPDATE] },
  { title: 'UPDATE of everything', statements: ['UPDATE invoice SET total = total + 1'] },
  {
    title: 'UPDATE … FROM',
    statements: ['UPDATE invoice SET total = 1 FROM customer c WHERE c.id = invoice.id'],
  },
  { title: 'UPDATE of the key', statements: ['UPDATE invoice SET id = 90 WHERE id = 3'] },
  {
    title: 'an UPDATE that changes nothing but the row',
    statements: [
      'UPDATE invoice SET total = total WHERE id = 1; UPDATE invoice SET total = 2 WHERE id = 1',
    ],
  },
  { title: 'DELETE', statements: ['DELETE FROM line'] },
  {
    title: 'DELETE … USING',
    statements: ['DELETE FROM line USING customer WHERE customer.id = line.invoice'],
  },
  {
    title: 'ON CONFLICT DO UPDATE',
    statements: [
      'INSERT INTO invoice VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET total = EXCLUDED.total',
    ],
  },
  {
    title: 'ON CONFLICT DO UPDATE … WHERE',
    statements: [
      'INSERT INTO invoice VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET total = 2 WHERE invoice.id = 1',
    ],
  },
  {
    title: 'ON CONFLICT DO NOTHING, without a conflict',
    statements: ['INSERT INTO invoice VALUES (9) ON CONFLICT DO NOTHING'],
  },
  {
    title: 'MERGE, UPDATE',
    since: 15,
    statements: [
      'MERGE INTO invoice i USING customer c ON i.id = c.id WHEN MATCHED THEN UPDATE SET total = 1',
    ],
  },
  {
    title: 'MERGE, DELETE',
    since: 15,
    statements: ['MERGE INTO line l USING customer c ON l.invoice = c.id WHEN MATCHED THEN DELETE'],
  },
  {
    title: 'MERGE, INSERT',
    since: 15,
    statements: [
      'MERGE INTO invoice i USING (VALUES (9)) s (id) ON i.id = s.id WHEN NOT MATCHED THEN INSERT VALUES (s.id)',
    ],
  },
  {
    title: 'MERGE, NOT MATCHED BY SOURCE',
    since: 17,
    statements: [
      'MERGE INTO line l USING (VALUES (9)) s (id) ON l.invoice = s.id WHEN NOT MATCHED BY SOURCE THEN DELETE',
    ],
  },
  {
    title: 'MERGE through a view',
    since: 17,
    statements: [
      'MERGE INTO invoice_view i USING customer c ON i.id = c.id WHEN MATCHED THEN UPDATE SET total = 1',
    ],
  },
  {
    title: 'a writing CTE',
    statements: ['WITH w AS (UPDATE invoice SET total = 1 RETURNING id) SELECT count(*) FROM w'],
  },
  {
    title: 'two writing CTEs',
    statements: [
      'WITH a AS (DELETE FROM line RETURNING invoice), b AS (UPDATE invoice SET total = 1 RETURNING id) SELECT FROM a, b',
    ],
  },
  { title: 'COPY FROM STDIN', statements: ['COPY invoice FROM STDIN'] },
  { title: 'COPY FROM STDIN into a partition', statements: ['COPY part_low FROM STDIN'] },
  {
    title: 'COPY FROM PROGRAM by the superuser',
    as: 'postgres',
    statements: ["COPY invoice FROM PROGRAM 'echo 9,1' CSV"],
  },
  { title: 'EXPLAIN ANALYZE', statements: [`EXPLAIN ANALYZE ${UPDATE}`] },
  { title: 'PREPARE and EXECUTE', statements: [`PREPARE p AS ${UPDATE}`, 'EXECUTE p'] },
  {
    title: 'an updatable view, UPDATE',
    statements: ['UPDATE invoice_view SET total = 1 WHERE id = 1'],
  },
  { title: 'an updatable view, INSERT', statements: ['INSERT INTO invoice_view VALUES (9, 1)'] },
  { title: 'an updatable view, DELETE', statements: ['DELETE FROM invoice_view WHERE id = 3'] },
  { title: "a view's rule", statements: ['UPDATE invoice_ruled SET total = 1 WHERE id = 1'] },
  { title: 'a cascading DELETE', statements: ['DELETE FROM invoice WHERE id = 1'] },
  {
    title: 'a cascading UPDATE from a table without a guard',
    statements: ['UPDATE customer SET id = 90 WHERE id = 1'],
  },
  {
    title: 'ON DELETE SET NULL from a table without a guard',
    statements: ['DELETE FROM customer WHERE id = 1'],
  },
  { title: 'a partitioned table, INSERT', statements: ['INSERT INTO part VALUES (3, 3)'] },
  { title: 'a partition, INSERT', statements: ['INSERT INTO part_low VALUES (3, 3)'] },
  { title: 'a partition, UPDATE', statements: ['UPDATE part_low SET total = 9'] },
  { title: 'a partition, DELETE', statements: ['DELETE FROM part_low'] },
  {
    title: 'a row that moves to a partition that was made later',
    statements: ['UPDATE part SET id = 11 WHERE id = 1'],
  },
  {
    title: 'a partition that was made later',
    statements: ['INSERT INTO part_high VALUES (12, 1)'],
  },
  {
    title: 'a partition that was made later, as a replica',
    as: 'postgres',
    statements: ['SET session_replication_role = replica', 'INSERT INTO part_high VALUES (12, 1)'],
  },
  {
    title: 'a cursor, UPDATE',
    statements: together(
      'DECLARE c CURSOR FOR SELECT * FROM invoice WHERE id = 1 FOR UPDATE',
      'FETCH c',
      'UPDATE invoice SET total = 1 WHERE CURRENT OF c',
    ),
    isOnItsOwn: true,
  },
  {
    title: 'a cursor, DELETE',
    statements: together(
      'DECLARE c CURSOR FOR SELECT * FROM line FOR UPDATE',
      'FETCH c',
      'DELETE FROM line WHERE CURRENT OF c',
    ),
    isOnItsOwn: true,
  },
  {
    title: 'two-phase commit',
    statements: [
      'BEGIN',
      UPDATE,
      "PREPARE TRANSACTION '@DATABASE@'",
      'ROLLBACK',
      "COMMIT PREPARED '@DATABASE@'",
    ],
    isOnItsOwn: true,
  },
  {
    title: 'a token that a prepared transaction presented',
    statements: [
      'BEGIN',
      "SELECT fenced.present('invoice/1', 34)",
      'CREATE TABLE mine ()',
      "PREPARE TRANSACTION '@DATABASE@'",
      UPDATE,
      "ROLLBACK PREPARED '@DATABASE@'",
    ],
    isOnItsOwn: true,
  },
  {
    title: 'a token of a savepoint that was rolled back',
    statements: [
      'BEGIN',
      'SAVEPOINT s',
      "SELECT fenced.present('invoice/1', 34)",
      'ROLLBACK TO s',
      UPDATE,
      'COMMIT',
    ],
    isOnItsOwn: true,
  },
  {
    title: 'an error that a savepoint takes back',
    statements: ['BEGIN', 'SAVEPOINT s', UPDATE, 'RELEASE s', 'COMMIT'],
    isOnItsOwn: true,
  },
  {
    title: 'a token of the transaction before',
    statements: ['BEGIN', "SELECT fenced.present('invoice/1', 34)", 'COMMIT', UPDATE],
    isOnItsOwn: true,
  },
  {
    title: 'a token of the transaction before, in one message',
    statements: [`BEGIN; SELECT fenced.present('invoice/1', 34); COMMIT; ${UPDATE}`],
    isOnItsOwn: true,
  },
  {
    title: 'a token that stays for the session',
    statements: [
      'BEGIN',
      "SELECT fenced.present('invoice/1', 34)",
      `SELECT set_config('${SLOT}', current_setting('${SLOT}'), false)`,
      'COMMIT',
      UPDATE,
    ],
    isOnItsOwn: true,
  },
  {
    title: 'a token of an earlier version',
    statements: [
      `SET fenced.presented = '{"invoice/1": 34}'`,
      `SELECT set_config('fenced.presented', extract(epoch FROM now()) || '{"invoice/1": 34}', true)`,
      UPDATE,
    ],
  },
  {
    title: 'a token by default of the role',
    before: [`ALTER ROLE clerk SET ${SLOT} = '"invoice/1" 34'`],
    statements: [UPDATE],
  },
  {
    title: 'a token by default of the role, with a time',
    before: [`DO $$ BEGIN EXECUTE format('ALTER ROLE clerk SET ${SLOT} = %L', ${VALUE}); END $$`],
    statements: [UPDATE],
  },
  {
    title: 'a token by default of the database',
    before: [
      `DO $$ BEGIN EXECUTE format('ALTER DATABASE @DATABASE@ SET ${SLOT} = %L', ${VALUE}); END $$`,
    ],
    statements: [UPDATE],
  },
  { title: 'a token in no form', statements: [`SET ${SLOT} = 'invoice/1'`, UPDATE] },
  {
    title: 'a token of a transaction before, with its time',
    statements: [
      'BEGIN',
      "SELECT set_config('attack.value', extract(epoch FROM now()) || E'\\n\"invoice/1\" 34\\n', false)",
      'COMMIT',
      `SELECT set_config('${SLOT}', current_setting('attack.value'), false)`,
      UPDATE,
    ],
    isOnItsOwn: true,
  },
  {
    title: 'a token inside the name of another resource',
    statements: together(
      `SELECT fenced.present(E'x" 9\\n"invoice/1" 50', 50)`,
      `SELECT set_config('${SLOT}', (SELECT string_agg(current_setting('fenced.presented_' || n, true), '') FROM generate_series(0, 255) n), true)`,
      UPDATE,
    ),
    isOnItsOwn: true,
  },
  {
    title: 'a token for null',
    statements: [forgedFor1(''), UPDATE],
  },
  {
    title: 'a token that is none',
    statements: together(forgedFor1('x'), UPDATE),
    codes: /^22P02$/,
    isOnItsOwn: true,
  },
  {
    title: 'a token below one',
    statements: together(forgedFor1(0), UPDATE),
    codes: /^22023$/,
    isOnItsOwn: true,
  },
  {
    title: 'a token for another resource',
    statements: together(presenting('invoice/2'), UPDATE),
    isOnItsOwn: true,
  },
  {
    title: 'a token for one of two resources',
    statements: together(presenting('invoice/3'), 'UPDATE invoice SET id = 90 WHERE id = 3'),
    isOnItsOwn: true,
  },
  {
    title: 'the token in the statement itself',
    statements: ["UPDATE invoice SET total = 1 FROM fenced.present('invoice/1', 33) WHERE id = 1"],
  },
  { title: 'DO', statements: [`DO $$ BEGIN ${UPDATE}; END $$`] },
  {
    title: 'DO that hides the error',
    statements: [
      `DO $$ BEGIN ${UPDATE}; EXCEPTION WHEN OTHERS THEN RAISE NOTICE '%', SQLERRM; END $$`,
    ],
    codes: /^$/,
  },
  { title: 'DO with dynamic SQL', statements: [`DO $$ BEGIN EXECUTE '${UPDATE}'; END $$`] },
  {
    title: 'a procedure that commits',
    statements: [
      `CREATE PROCEDURE mine() LANGUAGE plpgsql AS $$ BEGIN ${UPDATE}; COMMIT; END $$`,
      'CALL mine()',
    ],
    isOnItsOwn: true,
  },
  {
    title: 'a procedure that presents in one transaction and writes in the next',
    statements: [
      `CREATE PROCEDURE mine() LANGUAGE plpgsql AS $$ BEGIN PERFORM fenced.present('invoice/1', 34); COMMIT; ${UPDATE}; END $$`,
      'CALL mine()',
    ],
    isOnItsOwn: true,
  },
  {
    title: 'a function of the writer',
    statements: [
      `CREATE FUNCTION mine() RETURNS void LANGUAGE sql AS '${UPDATE}'`,
      'SELECT mine()',
    ],
  },
  { title: "a function with its owner's rights", statements: ['SELECT bump(1)'] },
  {
    title: 'a trigger on a table of the writer',
    statements: [
      `CREATE TABLE mine (); CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ${UPDATE}; RETURN NULL; END $$; CREATE TRIGGER mine BEFORE INSERT ON mine FOR EACH ROW EXECUTE FUNCTION mine()`,
      'INSERT INTO mine DEFAULT VALUES',
    ],
  },
  {
    title: 'a default of a column',
    statements: [
      `CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS '${UPDATE}; SELECT 1'; CREATE TABLE mine (x int DEFAULT mine())`,
      'INSERT INTO mine DEFAULT VALUES',
    ],
  },
  {
    title: 'a rule on a table of the writer',
    statements: [
      `CREATE TABLE mine (x int); CREATE RULE mine AS ON INSERT TO mine DO INSTEAD ${UPDATE}`,
      'INSERT INTO mine VALUES (1)',
    ],
  },
  {
    title: 'a constraint that is deferred',
    statements: together('SET CONSTRAINTS ALL DEFERRED', UPDATE),
    isOnItsOwn: true,
  },
  {
    title: 'a guard that is deferred',
    isHarmless: true,
    statements: ['BEGIN', 'SET CONSTRAINTS fenced_guard DEFERRED', UPDATE, 'COMMIT'],
    codes: /^(42809|25P02)$/,
    isOnItsOwn: true,
  },
  {
    title: 'a replica',
    as: 'postgres',
    statements: ['SET session_replication_role = replica', UPDATE],
  },
  {
    title: 'a replica without foreign keys',
    as: 'postgres',
    statements: ['SET session_replication_role = local', UPDATE],
  },
  {
    title: 'the superuser as the writer',
    as: 'postgres',
    statements: ['BEGIN', 'SET LOCAL ROLE clerk', UPDATE, 'COMMIT'],
    isOnItsOwn: true,
  },
  { title: 'the superuser', as: 'postgres', statements: [UPDATE] },
  { title: 'the owner', as: 'keeper', statements: [UPDATE] },
  {
    title: 'the owner as a partition is attached',
    as: 'keeper',
    statements: [
      'CREATE TABLE part_more (id int, total int)',
      'ALTER TABLE part ATTACH PARTITION part_more FOR VALUES FROM (20) TO (30)',
      'INSERT INTO part_more VALUES (21, 1)',
    ],
  },
  {
    title: 'ALTER TABLE … DISABLE TRIGGER',
    isOnItsOwn: true,
    statements: ['ALTER TABLE invoice DISABLE TRIGGER fenced_guard', UPDATE],
  },
  {
    title: 'ALTER TABLE … DISABLE TRIGGER ALL',
    isOnItsOwn: true,
    statements: ['ALTER TABLE invoice DISABLE TRIGGER ALL', UPDATE],
  },
  {
    title: 'ALTER TABLE … DROP CONSTRAINT',
    isOnItsOwn: true,
    statements: ['ALTER TABLE invoice DROP CONSTRAINT fenced_guard', UPDATE],
  },
  {
    title: 'DROP TRIGGER',
    isOnItsOwn: true,
    statements: ['DROP TRIGGER fenced_guard ON invoice', UPDATE],
  },
  { title: 'unguard', isOnItsOwn: true, statements: ["SELECT fenced.unguard('invoice')", UPDATE] },
  {
    title: 'guard with another expression',
    isOnItsOwn: true,
    statements: ["SELECT fenced.guard('invoice', $$'mine'$$)", UPDATE],
  },
  {
    title: "another function in the place of the guard's",
    isOnItsOwn: true,
    statements: [
      "DO $$ BEGIN EXECUTE format('CREATE OR REPLACE FUNCTION public.fenced_guard_%s() RETURNS trigger LANGUAGE plpgsql AS %L', 'invoice'::regclass::oid, 'BEGIN RETURN NULL; END'); END $$",
      UPDATE,
    ],
  },
  {
    title: "the guard's function away",
    isOnItsOwn: true,
    statements: [
      "DO $$ BEGIN EXECUTE format('DROP FUNCTION public.fenced_guard_%s() CASCADE', 'invoice'::regclass::oid); END $$",
      UPDATE,
    ],
  },
  {
    title: 'fenced.require of the writer',
    isOnItsOwn: true,
    statements: [
      "CREATE OR REPLACE FUNCTION fenced.require(resource text) RETURNS void LANGUAGE sql AS ''",
      UPDATE,
    ],
  },
  {
    title: 'a trigger in the place of the guard',
    as: 'triggers',
    codes: /^42710$/,
    before: ['GRANT UPDATE, SELECT ON invoice TO triggers'],
    statements: [
      "CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
      'CREATE OR REPLACE TRIGGER fenced_guard AFTER INSERT OR UPDATE OR DELETE ON invoice FOR EACH ROW WHEN (false) EXECUTE FUNCTION mine()',
      UPDATE,
    ],
  },
  {
    title: 'a constraint trigger in the place of the guard',
    as: 'triggers',
    codes: /^0A000$/,
    before: ['GRANT UPDATE, SELECT ON invoice TO triggers'],
    statements: [
      "CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
      'CREATE OR REPLACE CONSTRAINT TRIGGER fenced_guard AFTER UPDATE ON invoice DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION mine()',
      UPDATE,
    ],
  },
  {
    title: "a trigger in the place of a partition's guard",
    as: 'triggers',
    codes: /^42710$/,
    before: ['GRANT UPDATE, SELECT ON part_low TO triggers'],
    statements: [
      "CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
      'CREATE OR REPLACE TRIGGER fenced_guard AFTER INSERT OR UPDATE OR DELETE ON part_low FOR EACH ROW WHEN (false) EXECUTE FUNCTION mine()',
      'UPDATE part_low SET total = 9',
    ],
  },
  {
    title: 'a trigger that writes after the guard',
    as: 'triggers',
    before: ['GRANT UPDATE, SELECT ON invoice TO triggers', "SELECT fenced.allow('triggers')"],
    statements: [
      `CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF pg_trigger_depth() < 2 THEN UPDATE invoice SET total = 9; END IF; RETURN NULL; END $$`,
      'CREATE TRIGGER zzz AFTER UPDATE ON invoice FOR EACH ROW EXECUTE FUNCTION mine()',
      UPDATE,
    ],
  },
  { title: 'TRUNCATE', statements: ['TRUNCATE line'] },
  { title: 'TRUNCATE … CASCADE', statements: ['TRUNCATE invoice CASCADE'] },
  {
    title: 'TRUNCATE … CASCADE from a table without a guard',
    statements: ['TRUNCATE customer CASCADE'],
  },
  { title: 'TRUNCATE of a partitioned table', statements: ['TRUNCATE part'] },
  {
    title: 'TRUNCATE of a partition',
    statements: ['TRUNCATE part_low'],
    before: ['GRANT TRUNCATE ON part_low TO clerk'],
  },
  {
    title: 'TRUNCATE as a replica',
    as: 'postgres',
    statements: ['SET session_replication_role = replica', 'TRUNCATE line'],
  },
  {
    title: 'a type "text" of the session',
    statements: [
      'CREATE DOMAIN pg_temp.text AS varchar(4)',
      ...together(presenting('invo'), UPDATE),
    ],
    isOnItsOwn: true,
  },
  {
    title: 'types of the session with the names of others',
    statements: [
      'CREATE DOMAIN pg_temp.regclass AS varchar(4); CREATE DOMAIN pg_temp.jsonb AS varchar(4); CREATE DOMAIN pg_temp.timestamptz AS varchar(4)',
      ...together(presenting('invo'), UPDATE),
    ],
    isOnItsOwn: true,
  },
  {
    title: 'a table of the session with the name of the guarded one',
    statements: [
      'CREATE TEMP TABLE invoice (id int)',
      ...together('UPDATE public.invoice SET total = 1 WHERE id = 1'),
    ],
    isOnItsOwn: true,
  },
  {
    title: "an operator in the writer's own schema",
    statements: [...OPERATOR('clerk'), ...together(presenting('mine'), UPDATE)],
    isOnItsOwn: true,
  },
  {
    title: 'an operator in the schema of all',
    statements: [...OPERATOR('public'), ...together(presenting('mine'), UPDATE)],
    isOnItsOwn: true,
  },
  {
    title: 'operators before those of PostgreSQL',
    statements: [
      ...OPERATOR('clerk'),
      "CREATE FUNCTION clerk.differs(text, text) RETURNS bool LANGUAGE sql AS 'SELECT false'",
      'CREATE OPERATOR clerk.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = clerk.differs)',
      'CREATE OPERATOR clerk.= (LEFTARG = text, RIGHTARG = text, FUNCTION = clerk.differs)',
      'SET search_path = clerk, pg_catalog, public',
      ...together(presenting('mine'), UPDATE),
    ],
    isOnItsOwn: true,
  },
  {
    title: 'functions before those of PostgreSQL',
    statements: [
      `CREATE FUNCTION clerk.split_part(text, text, int) RETURNS text LANGUAGE sql AS 'SELECT extract(epoch FROM now())::text'`,
      'CREATE FUNCTION clerk.current_setting(text, bool) RETURNS text LANGUAGE sql AS $$ SELECT \'{"invoice/1": 34}\' $$',
      'SET search_path = clerk, pg_catalog, public',
      UPDATE,
    ],
  },
  ...(
    [
      ['bytea_output', "'escape'"],
      ['extra_float_digits', '-10'],
    ] as const
  ).map(([setting, value]) => ({
    title: `the name that a row has under another ${setting}`,
    statements: [
      `SET ${setting} = ${value}`,
      // The row's name under the settings of this session. If that is the true name, the session
      // presents the token for another one, `none`.
      "SELECT set_config('attack.named', (SELECT 'dated ' || bytes::text || ' ' || share FROM dated), false)",
      'BEGIN',
      "SELECT fenced.present(CASE WHEN current_setting('attack.named') = 'dated \\x6162 0.30000000000000004' THEN 'none' ELSE current_setting('attack.named') END, 50)",
      'UPDATE dated SET total = 1',
      'COMMIT',
    ],
    isOnItsOwn: true,
  })),
  {
    title: 'the right to INSERT alone',
    as: 'inserts',
    statements: ['INSERT INTO invoice VALUES (9)'],
    codes: /^UF002|42501$/,
  },
  {
    title: 'the right to UPDATE alone',
    as: 'updates',
    statements: ['UPDATE invoice SET total = 1'],
    codes: /^UF002|42501$/,
  },
  {
    title: 'the right to DELETE alone',
    as: 'deletes',
    statements: ['DELETE FROM line'],
    codes: /^UF002|42501$/,
  },
  { title: 'the right to TRUNCATE alone', as: 'truncates', statements: ['TRUNCATE line'] },
  {
    title: 'the right to REFERENCE alone',
    as: 'refers',
    statements: ['CREATE TABLE mine (id int REFERENCES invoice ON DELETE CASCADE)', UPDATE],
    codes: /^42501$/,
    isHarmless: true,
  },
  {
    title: 'the right to TRIGGER alone',
    as: 'triggers',
    statements: ['DROP TRIGGER fenced_guard ON invoice', UPDATE],
    codes: /^42501$/,
    isHarmless: true,
  },
  {
    title: 'the right to MAINTAIN alone',
    as: 'maintains',
    since: 17,
    statements: [
      'REINDEX TABLE invoice',
      'CLUSTER invoice USING invoice_pkey',
      'VACUUM FULL invoice',
      UPDATE,
    ],
    codes: /^42501$/,
    isOnItsOwn: true,
    isHarmless: true,
  },
  {
    title: 'the right to SELECT alone',
    as: 'selects',
    statements: [UPDATE, 'SELECT * FROM invoice FOR UPDATE'],
    codes: /^42501$/,
    isHarmless: true,
  },
  { title: 'no right', as: 'nothing', statements: [UPDATE], codes: /^42501$/, isHarmless: true },
  {
    title: 'every right but that to present',
    as: 'guest',
    statements: ["SELECT fenced.present('invoice/1', 34)", UPDATE],
    codes: /^42501$/,
  },
  {
    title: 'every right but that to present, and the forged setting',
    as: 'guest',
    statements: together(forgedFor1(34), UPDATE),
    codes: /^42501$/,
    isOnItsOwn: true,
  },
  {
    title: 'the ratchet lowered',
    isOnItsOwn: true,
    statements: [
      "SELECT fenced.reset('invoice/1', 1, 'because')",
      'DELETE FROM fenced.ratchet',
      "SELECT fenced.present('invoice/1', 33)",
      UPDATE,
    ],
  },
  {
    title: 'dblink',
    statements: [`SELECT dblink_exec('${loopback}, '${UPDATE}')`],
    codes: /^UF002$/,
    isOnItsOwn: true,
  },
  {
    title: 'postgres_fdw',
    before: [
      "DO $$ BEGIN EXECUTE format('CREATE SERVER back FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host ''127.0.0.1'', port %L, dbname %L)', current_setting('port'), current_database()); END $$",
      "CREATE USER MAPPING FOR clerk SERVER back OPTIONS (user 'clerk', password 'secret')",
      "CREATE FOREIGN TABLE far (id int, total int) SERVER back OPTIONS (table_name 'invoice')",
      'GRANT ALL ON far TO clerk',
    ],
    statements: ['UPDATE far SET total = 1 WHERE id = 1'],
  },
  {
    title: 'postgres_fdw, INSERT',
    before: [
      "DO $$ BEGIN EXECUTE format('CREATE SERVER back FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host ''127.0.0.1'', port %L, dbname %L)', current_setting('port'), current_database()); END $$",
      "CREATE USER MAPPING FOR clerk SERVER back OPTIONS (user 'clerk', password 'secret')",
      "CREATE FOREIGN TABLE far (id int, total int) SERVER back OPTIONS (table_name 'invoice')",
      'GRANT ALL ON far TO clerk',
    ],
    statements: ['INSERT INTO far VALUES (9, 1)'],
  },
];

/**
 * Functions and operators in `public`, made by a role that may create them there. They have the
 * names of built-in ones. Each raises CA001 if a superuser runs it.
 */
export const PLANTS = `
  SET search_path = pg_catalog;
  CREATE FUNCTION public.canary() RETURNS boolean LANGUAGE plpgsql AS $$
  BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname OPERATOR(pg_catalog.=) current_user AND rolsuper) THEN
      RAISE EXCEPTION 'planted code ran as %', current_user USING ERRCODE = 'CA001';
    END IF;
    RETURN true;
  END $$;
  DO $$
  DECLARE
    types CONSTANT text[] := ARRAY['text', 'name', 'oid', 'regclass', 'regprocedure', 'regnamespace', '"char"',
      'integer', 'bigint', 'boolean', 'jsonb', 'timestamptz', 'interval', 'numeric', 'uuid', 'xid8', 'bytea'];
    body CONSTANT text := quote_literal('BEGIN PERFORM public.canary(); RETURN NULL; END');
    l text; r text; symbol text; arguments text; result text; routine text;
  BEGIN
    FOREACH l IN ARRAY types LOOP
      FOREACH r IN ARRAY types LOOP
        FOREACH symbol IN ARRAY ARRAY['=', '<>', '<', '<=', '>', '>=', '~', '||', '+', '-', '*', '/', '->>'] LOOP
          -- Skips equal types: PostgreSQL gives a literal on the left the type of the right side.
          CONTINUE WHEN symbol = '||' AND l = r;
          result := CASE WHEN symbol IN ('=', '<>', '<', '<=', '>', '>=', '~') THEN 'boolean' ELSE l END;
          routine := CASE result WHEN 'boolean' THEN 'public.planted_test' ELSE 'public.planted_value' END;
          EXECUTE format('CREATE OR REPLACE FUNCTION %s(%s, %s) RETURNS %s LANGUAGE plpgsql IMMUTABLE AS %s', routine, l, r, result, body);
          EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = %s)', symbol, l, r, routine);
        END LOOP;
      END LOOP;
    END LOOP;
    FOREACH l IN ARRAY ARRAY['format', 'quote_ident', 'quote_literal', 'concat', 'concat_ws', 'current_setting', 'set_config',
        'to_regprocedure', 'to_regnamespace', 'substring', 'substr', 'split_part', 'strpos', 'starts_with', 'unnest',
        'pg_get_userbyid', 'has_function_privilege', 'pg_describe_object', 'pg_partition_tree', 'aclexplode', 'md5', 'length',
        'hashtextextended', 'pg_advisory_xact_lock', 'clock_timestamp', 'octet_length', 'now', 'random', 'to_timestamp',
        'json_build_object', 'jsonb_build_object', 'pg_get_functiondef', 'pg_get_viewdef', 'cardinality', 'convert_from'] LOOP
      FOREACH arguments IN ARRAY ARRAY['', 'text', 'name', 'oid', 'bigint', 'regclass', 'regprocedure', 'text, text', 'text, name',
          'text, oid', 'text, regclass', 'text, bigint', 'text, boolean', 'oid, text, text', 'text, text, boolean', 'text, name, text',
          'text, integer', 'text, integer, integer', 'text, text, integer', 'text, regclass, text', 'text, text, regclass'] LOOP
        EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS text LANGUAGE plpgsql IMMUTABLE AS %s', l, arguments, body);
      END LOOP;
    END LOOP;
    FOREACH l IN ARRAY types LOOP
      CONTINUE WHEN l IN ('integer', 'bigint', 'boolean', 'numeric', 'interval', '"char"');
      EXECUTE format('CREATE DOMAIN public.%I AS pg_catalog.%1$I CHECK (public.canary())', l);
    END LOOP;
  END $$;
  CREATE TYPE public.sly AS (x int);
  CREATE FUNCTION public.sly(pg_catalog.text) RETURNS public.sly LANGUAGE plpgsql IMMUTABLE
    AS 'BEGIN PERFORM public.canary(); RETURN NULL; END';
  CREATE CAST (pg_catalog.text AS public.sly) WITH FUNCTION public.sly(pg_catalog.text) AS IMPLICIT;`;
