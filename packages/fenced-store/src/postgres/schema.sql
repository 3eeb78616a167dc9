-- The fencing ratchet of @fenced/store, for PostgreSQL 14 and later.
--
-- Install it by `psql --single-transaction -f schema.sql`, by a migration tool, or by install() of
-- FencedPostgres. A second run changes nothing. Versions 5 and 6 are upgraded; others are refused.
--
-- Without the library, begin each fenced transaction with this:
--
--   SELECT fenced.present('invoice/42', 34);
--
-- Under REPEATABLE READ and SERIALIZABLE, also call it before, in a transaction of its own, as the
-- library does. `present` waits for an earlier holder. A snapshot from before that wait would lack
-- the last writes of that holder.
--
-- SQLSTATEs, none of which is to be retried:
-- - UF001: the token is stale, and stays so for ever
-- - UF002: a guarded row was written without a token for it
-- - UF003: the transaction is not the one that presented the token
-- - UF004: the transaction is not READ COMMITTED, READ WRITE
-- - UF005: the rights on the table let other roles remove its guard
-- - UF006: a command would leave a table without the guard that it should have

-- The search path has no schema but PostgreSQL's, so no function, operator or type of another role
-- takes part. The last statement of this file restores the path.
--
-- Invariant: two names are equal if their bytes are, and the order of an index never changes. So
-- each stored name has the collation "C", and each function takes its names in it. A column of
-- the caller may have another collation. An upgrade of ICU or of the C library may change the order
-- of the database's own.
SELECT pg_catalog.set_config('fenced.search_path', pg_catalog.current_setting('search_path'), false);
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);

-- Serializes installations until the transaction ends. The number is "fenced" in ASCII.
SELECT pg_advisory_xact_lock(112585829737828);

DO $$
DECLARE
  schema CONSTANT oid := to_regnamespace('fenced');
  stranger name;
  installed integer;
  twice record;
BEGIN
  -- The owner of an object can later replace it by one that harms the role that runs this file.
  SELECT r.rolname INTO stranger FROM pg_roles r
    WHERE NOT r.rolsuper AND r.rolname <> current_user AND r.oid IN (
      SELECT nspowner FROM pg_namespace WHERE oid = schema
      UNION SELECT proowner FROM pg_proc WHERE pronamespace = schema
      UNION SELECT relowner FROM pg_class WHERE relnamespace = schema);
  IF FOUND THEN
    RAISE EXCEPTION 'the schema "fenced", or a part of it, belongs to the role %',
        quote_ident(stranger)
      USING ERRCODE = 'insufficient_privilege',
        HINT = format('Install as that role: SET ROLE %I', stranger);
  END IF;
  -- Reads the number in the function's source, without calling the function.
  SELECT substring(prosrc FROM '[0-9]+')::integer INTO installed
    FROM pg_proc WHERE oid = to_regprocedure('fenced.version()');
  IF installed NOT IN (5, 6, 7) THEN
    RAISE EXCEPTION 'the schema "fenced" has version %, this file is version 7', installed
      USING ERRCODE = 'object_not_in_prerequisite_state', HINT = CASE WHEN installed > 7
        THEN 'Use the library of that version.' ELSE 'Run the schema.sql of version 5 first.' END;
  END IF;
  IF installed < 7 THEN
    DROP FUNCTION fenced.guards(), fenced.presented(), fenced.guard(regclass, text),
      fenced.guard_by_path(regclass, text, text);
  END IF;
  IF installed = 5 THEN
    LOCK TABLE fenced.ratchet, fenced.floor, fenced.record IN ACCESS EXCLUSIVE MODE;
    DROP FUNCTION fenced.put_record(text, text, jsonb, bigint, uuid, bigint),
      fenced.get_record(text, text), fenced.claim_record(text, text, bigint);
    UPDATE fenced.record SET write_id = gen_random_uuid() WHERE version > 0 AND write_id IS NULL;
    -- An index in another collation may have lost names, which were then inserted again. Joins of a
    -- table with itself would not find them: the server takes the names for unique, and omits them.
    DELETE FROM fenced.ratchet WHERE ctid IN (SELECT r.ctid FROM (SELECT ctid,
      row_number() OVER (PARTITION BY resource COLLATE "C" ORDER BY token DESC) AS place
      FROM fenced.ratchet) r WHERE r.place > 1);
    DELETE FROM fenced.floor WHERE ctid IN (SELECT f.ctid FROM (SELECT ctid,
      row_number() OVER (PARTITION BY prefix COLLATE "C" ORDER BY token DESC) AS place
      FROM fenced.floor) f WHERE f.place > 1);
    SELECT min(r.collection) AS collection, min(r.id) AS id INTO twice FROM fenced.record r
      GROUP BY r.collection COLLATE "C", r.id COLLATE "C" HAVING count(*) > 1 LIMIT 1;
    IF FOUND THEN
      RAISE EXCEPTION 'the record %/% is stored twice', twice.collection, twice.id
        USING ERRCODE = 'object_not_in_prerequisite_state',
          HINT = 'Look at both with enable_indexscan = off, and delete the wrong one by its ctid.';
    END IF;
    ALTER TABLE fenced.ratchet ALTER resource TYPE text COLLATE "C";
    ALTER TABLE fenced.floor ALTER prefix TYPE text COLLATE "C";
    ALTER TABLE fenced.reset_log ALTER resource TYPE text COLLATE "C";
    ALTER TABLE fenced.record
      ALTER collection TYPE text COLLATE "C", ALTER id TYPE text COLLATE "C";
  END IF;
END
$$;

CREATE SCHEMA IF NOT EXISTS fenced;

-- The highest committed token of each resource. Only `prune` deletes rows, and then a floor stands
-- for their tokens. Columns that change are in no index, and pages have room, so updates are HOT.
CREATE TABLE IF NOT EXISTS fenced.ratchet (
  resource text COLLATE "C" PRIMARY KEY CHECK (octet_length(resource) BETWEEN 1 AND 1024),
  token bigint NOT NULL CHECK (token > 0),
  advanced_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 70);

-- Invariant: no pruned resource that begins with `prefix` ever had a token above `token`. If a
-- resource has no row, the highest floor over it counts as its token. Each round of pruning also
-- updates the row of the empty prefix. `advance` locks that row, and so fails if its snapshot is
-- older than the round.
CREATE TABLE IF NOT EXISTS fenced.floor (
  prefix text COLLATE "C" PRIMARY KEY CHECK (octet_length(prefix) <= 1024),
  token bigint NOT NULL CHECK (token >= 0),
  raised_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO fenced.floor (prefix, token) VALUES ('', 0) ON CONFLICT DO NOTHING;

-- The first UUID of version 7 from that time on.
CREATE OR REPLACE FUNCTION fenced.first_id(made_at timestamptz) RETURNS uuid
LANGUAGE sql IMMUTABLE AS $$ SELECT rpad(
  lpad(to_hex((extract(epoch FROM made_at) * 1000)::bigint), 12, '0'), 32, '0')::uuid $$;

-- The outcomes of writes, kept for a day. The write's own transaction inserts its row, so the row
-- is there if that transaction committed. If `settle` inserts the row before, the write's insertion
-- fails, and the write never commits. Ids are UUIDs of version 7, which begin with the time.
CREATE TABLE IF NOT EXISTS fenced.write (
  id uuid PRIMARY KEY,
  applied boolean NOT NULL
);

-- The highest id of a deleted note. The outcome of a write with an id up to it is unknown, unless
-- its note is still there. Version 5 kept no such id, so all ids from before the upgrade count.
CREATE TABLE IF NOT EXISTS fenced.forgotten_write (id uuid NOT NULL);
INSERT INTO fenced.forgotten_write (id)
  SELECT CASE WHEN to_regprocedure('fenced.version()') IS NULL
    THEN '00000000-0000-0000-0000-000000000000' ELSE fenced.first_id(clock_timestamp()) END
  WHERE NOT EXISTS (SELECT FROM fenced.forgotten_write);

-- A log of lowered ratchets.
CREATE TABLE IF NOT EXISTS fenced.reset_log (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  resource text COLLATE "C" NOT NULL,
  token_before bigint,
  token_after bigint NOT NULL,
  reason text NOT NULL CHECK (reason <> ''),
  by_role name NOT NULL DEFAULT session_user,
  at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- JSON documents, each with its own ratchet. A deleted one keeps its row, without a body.
CREATE TABLE IF NOT EXISTS fenced.record (
  collection text COLLATE "C" NOT NULL CHECK (octet_length(collection) BETWEEN 1 AND 1024),
  id text COLLATE "C" NOT NULL CHECK (octet_length(id) BETWEEN 1 AND 1024),
  body jsonb,
  token bigint NOT NULL CHECK (token > 0),
  version bigint NOT NULL,
  write_id uuid,
  PRIMARY KEY (collection, id)
) WITH (fillfactor = 70);

-- True if the caller has the rights of the role. A role that is gone has none.
CREATE OR REPLACE FUNCTION fenced.acts_as(role_name name) RETURNS boolean
LANGUAGE sql STABLE
AS $$ SELECT EXISTS (SELECT FROM pg_catalog.pg_roles r
  WHERE r.rolname OPERATOR(pg_catalog.=) role_name AND pg_catalog.pg_has_role(r.oid, 'USAGE')) $$;

-- The guards that should exist, by the names of their tables. `guard` inserts a row, and `unguard`
-- deletes it. A copy that took the place of a guarded table has a row here and no guard. So has a
-- table that was restored without its triggers.
CREATE TABLE IF NOT EXISTS fenced.guarded (
  schema_name name NOT NULL,
  table_name name NOT NULL,
  -- The owner of the table. That role may delete the row when the table is gone.
  owner name NOT NULL DEFAULT current_user,
  expression text NOT NULL,
  -- The functions in the expression that are not PostgreSQL's, and a hash of their definitions.
  functions text[] NOT NULL,
  digest text NOT NULL,
  PRIMARY KEY (schema_name, table_name)
);

-- The owner of a table, by the table's name; NULL if there is no such table.
CREATE OR REPLACE FUNCTION fenced.owner_of(schema_name name, table_name name) RETURNS name
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$ SELECT pg_get_userbyid(c.relowner) FROM pg_class c
  WHERE c.oid = to_regclass(format('%I.%I', schema_name, table_name)) $$;

DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_policy WHERE polrelid = 'fenced.guarded'::regclass) THEN
    ALTER TABLE fenced.guarded ENABLE ROW LEVEL SECURITY;
    CREATE POLICY everybody_reads ON fenced.guarded FOR SELECT USING (true);
    CREATE POLICY owner_inserts ON fenced.guarded FOR INSERT WITH CHECK (
      fenced.acts_as(owner) AND owner = fenced.owner_of(schema_name, table_name));
    CREATE POLICY owner_deletes ON fenced.guarded FOR DELETE USING (
      fenced.acts_as(coalesce(fenced.owner_of(schema_name, table_name), owner)));
    GRANT SELECT, INSERT, DELETE ON fenced.guarded TO PUBLIC;
  END IF;
END
$$;

-- The writes that guards in audit mode would have refused: one row for each transaction, statement
-- and reason. So no two transactions wait for each other, and a statement of a million rows adds
-- one row. A write that is rolled back leaves no row.
--
-- Invariant: only a guard writes rows that the view `audit` shows. It runs as the owner of its
-- table, so `owner` is that role. Any role can insert rows, but only under its own name.
CREATE TABLE IF NOT EXISTS fenced.audit_log (
  owner name NOT NULL DEFAULT current_user,
  schema_name name NOT NULL,
  table_name name NOT NULL,
  role name NOT NULL,
  application text NOT NULL,
  statement text NOT NULL,
  reason text NOT NULL,
  resource text COLLATE "C",
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  digest text NOT NULL,
  PRIMARY KEY (xid, owner, digest)
);

DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_policy WHERE polrelid = 'fenced.audit_log'::regclass) THEN
    ALTER TABLE fenced.audit_log ENABLE ROW LEVEL SECURITY;
    CREATE POLICY guard_inserts ON fenced.audit_log FOR INSERT WITH CHECK (owner = current_user);
    CREATE POLICY owner_reads ON fenced.audit_log FOR SELECT USING (fenced.acts_as(owner));
    CREATE POLICY owner_deletes ON fenced.audit_log FOR DELETE USING (fenced.acts_as(owner));
    GRANT SELECT, INSERT, DELETE ON fenced.audit_log TO PUBLIC;
  END IF;
END
$$;

-- For the owners of guarded tables: the roles, applications and statements that would be refused.
CREATE OR REPLACE VIEW fenced.audit WITH (security_barrier) AS
  SELECT l.schema_name, l.table_name, l.role, l.application, l.statement, l.reason,
    count(*) AS transactions, min(l.at) AS first_at, max(l.at) AS last_at,
    (array_agg(l.resource ORDER BY l.at DESC))[1] AS last_resource
  FROM fenced.audit_log l JOIN fenced.guarded g USING (owner, schema_name, table_name)
  WHERE fenced.acts_as(l.owner)
  GROUP BY l.schema_name, l.table_name, l.role, l.application, l.statement, l.reason;
GRANT SELECT ON fenced.audit TO PUBLIC;

CREATE OR REPLACE FUNCTION fenced.version() RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT 7';

-- A random name of the ratchets, which is dumped and restored with them.
DO $$
BEGIN
  IF to_regprocedure('fenced.installation()') IS NULL THEN
    EXECUTE format('CREATE FUNCTION fenced.installation() RETURNS text LANGUAGE sql IMMUTABLE AS %L',
      format('SELECT %L', gen_random_uuid()));
  END IF;
END
$$;

-- Raises UF001, with the facts as JSON in DETAIL. A pruned resource may have had a higher token.
CREATE OR REPLACE FUNCTION fenced.refuse(
  resource text, presented bigint, highest bigint, pruned boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'UF001',
    MESSAGE = CASE WHEN pruned THEN 'stale fencing token: it is below the floor of pruned resources'
      ELSE 'stale fencing token' END,
    DETAIL = json_build_object('resource', resource, 'presented', presented::text,
      'highest', highest::text, 'pruned', pruned),
    HINT = CASE WHEN pruned THEN
        format('If the token is the latest that the lock service gave: SELECT fenced.reset(%L, %s, ''why'')',
          resource, presented)
      ELSE 'A later holder has written. Give up.' END;
END
$$;

-- Refuses an update that lowers a token, except by `reset`. The functions of this file make no such
-- update. The apply of logical replication could: it overwrites rows with those of a publisher.
CREATE OR REPLACE FUNCTION fenced.refuse_lower() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  kept CONSTANT jsonb := to_jsonb(OLD);
BEGIN
  IF current_setting('fenced.is_reset', true) IS DISTINCT FROM 'on' THEN
    PERFORM fenced.refuse(coalesce(kept ->> 'resource',
      concat(kept ->> 'collection', '/', kept ->> 'id')), NEW.token, OLD.token);
  END IF;
  RETURN NEW;
END
$$;

DO $$
DECLARE
  target regclass;
BEGIN
  FOREACH target IN ARRAY ARRAY['fenced.ratchet', 'fenced.record']::regclass[] LOOP
    CONTINUE WHEN EXISTS (SELECT FROM pg_trigger WHERE tgrelid = target AND NOT tgisinternal);
    EXECUTE format('CREATE TRIGGER refuse_lower BEFORE UPDATE ON %s FOR EACH ROW
      WHEN (NEW.token < OLD.token) EXECUTE FUNCTION fenced.refuse_lower()', target);
    -- Also for replicated rows.
    EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER refuse_lower', target);
  END LOOP;
END
$$;

-- The functions without a search path of their own are inlined into their callers.

-- The highest floor over a resource, or over all resources with a prefix.
CREATE OR REPLACE FUNCTION fenced.floor_of(resource text) RETURNS bigint
LANGUAGE sql STABLE AS $$ SELECT coalesce(max(f.token), 0) FROM fenced.floor f
  WHERE starts_with(floor_of.resource COLLATE "C", f.prefix) $$;

-- Raises the ratchet of a resource to the token, or raises UF001 if a higher token was presented.
-- The transaction then holds the resource until it ends. Only transactions with the same token may
-- hold the resource at the same time.
--
-- Invariant: a token is raised under the exclusive advisory lock of the resource, and an equal
-- token is used under the shared one. So under the lock, no transaction with another token is under
-- way, and the next read of the row is final. Under READ COMMITTED, the snapshot of that read is
-- younger than the lock. Under the other levels it may be older. There, the read also locks the
-- row, and fails with 40001 if the row has changed since the snapshot. The read before the lock can
-- only refuse a token, which is final, because tokens never fall.
--
-- Invariant: `prune` deletes a row under the exclusive lock, after it raised a floor to the row's
-- token. So if the row is missing under the lock, its floor is there. If the snapshot is older than
-- the floor, locking the floor's row of the empty prefix fails with 40001.
--
-- Row locks alone would not do. The server grants a shared row lock even if another transaction
-- waits for the exclusive one. So overlapping transactions of an old holder would starve its
-- successor. Each row lock also writes to the page and the WAL. An advisory lock is named by a
-- hash. If two resources have the same hash, they wait for each other, which is harmless.
CREATE OR REPLACE FUNCTION fenced.advance(resource text, token bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  name CONSTANT text COLLATE "C" := advance.resource;
  key CONSTANT bigint := hashtextextended(name, 112585829737828);
  is_read_committed CONSTANT boolean := current_setting('transaction_isolation') = 'read committed';
  highest bigint;
  floor bigint;
BEGIN
  IF name IS NULL OR advance.token IS NULL OR advance.token < 1 THEN
    RAISE EXCEPTION 'a fencing token needs a resource and is a whole number from 1 to 9223372036854775807'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  LOOP
    SELECT r.token INTO highest FROM fenced.ratchet r WHERE r.resource = name;
    IF highest > advance.token THEN
      PERFORM fenced.refuse(name, advance.token, highest);
    ELSIF highest = advance.token THEN
      PERFORM pg_advisory_xact_lock_shared(key);
      IF is_read_committed THEN
        PERFORM FROM fenced.ratchet r
          WHERE r.resource = name AND r.token = advance.token;
      ELSE
        PERFORM FROM fenced.ratchet r
          WHERE r.resource = name AND r.token = advance.token FOR SHARE;
      END IF;
    ELSIF highest < advance.token THEN
      PERFORM pg_advisory_xact_lock(key);
      UPDATE fenced.ratchet r SET token = advance.token, advanced_at = clock_timestamp()
        WHERE r.resource = name AND r.token < advance.token;
    ELSE
      PERFORM pg_advisory_xact_lock(key);
      IF NOT is_read_committed THEN
        PERFORM FROM fenced.floor f WHERE f.prefix = '' FOR SHARE;
      END IF;
      SELECT fenced.floor_of(name) INTO floor;
      IF floor > advance.token AND NOT EXISTS (
          SELECT FROM fenced.ratchet r WHERE r.resource = name) THEN
        PERFORM fenced.refuse(name, advance.token, floor, true);
      END IF;
      INSERT INTO fenced.ratchet (resource, token) VALUES (name, advance.token)
        ON CONFLICT DO NOTHING;
    END IF;
    -- Not found: another token came first during the wait, or the row was pruned.
    EXIT WHEN FOUND;
  END LOOP;
END
$$;

-- The setting that holds the tokens of some resources: one of 256, by a hash of the name. A row's
-- resource is looked up in a 256th of the tokens that a transaction presented. One setting for all
-- would make the time of a transaction grow with the square of its resources. A setting for each
-- resource would stay in the session for ever.
CREATE OR REPLACE FUNCTION fenced.slot(resource text) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$ SELECT 'fenced.presented_' || (hashtextextended(resource COLLATE "C", 0) & 255) $$;

-- The beginning of a slot whose tokens count: the time when the transaction began, in seconds. A
-- value from the session, the role, the database or an earlier transaction has another time.
CREATE OR REPLACE FUNCTION fenced.slot_head() RETURNS text
LANGUAGE sql STABLE AS $$ SELECT extract(epoch FROM now()) || E'\n' $$;

-- The token in the value of a slot; NULL if there is none. Each line of the value has a resource,
-- as JSON, and its token. JSON has no line break, so each match is the beginning of a line.
CREATE OR REPLACE FUNCTION fenced.token_in(slot text, resource text) RETURNS text
LANGUAGE sql STABLE AS $$ SELECT CASE WHEN starts_with(slot COLLATE "C", fenced.slot_head()) THEN
  nullif(split_part(split_part(slot COLLATE "C", E'\n' || to_json(resource) || ' ', 2), E'\n', 1), '') END $$;

-- The limit in milliseconds, or the session's own if that is stricter.
CREATE OR REPLACE FUNCTION fenced.stricter(setting text, ms integer) RETURNS text
LANGUAGE sql STABLE AS $$ SELECT least(ms,
  nullif(extract(epoch FROM current_setting(setting)::interval) * 1000, 0)::integer)::text $$;

-- Milliseconds until that time, at least 1: a limit of 0 would be none.
CREATE OR REPLACE FUNCTION fenced.left_ms(ends timestamptz) RETURNS integer
LANGUAGE sql
AS $$ SELECT greatest(1, ceil(extract(epoch FROM ends - clock_timestamp()) * 1000))::integer $$;

-- Limits the rest of the transaction. When the time is over, the server ends it and its session.
-- Servers before PostgreSQL 17 have no such limit. There, each statement and each pause between two
-- statements is limited. tcp_user_timeout ends a connection whose client takes no more rows.
--
-- A later call may raise the limits again, up to those that the session had before the first call.
-- The transaction keeps these in `fenced.limits`, because the settings themselves are replaced.
CREATE OR REPLACE FUNCTION fenced.hold(ms integer) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  is_whole CONSTANT boolean := current_setting('server_version_num')::integer >= 170000;
  main CONSTANT text := CASE WHEN is_whole THEN 'transaction_timeout'
    ELSE 'idle_in_transaction_session_timeout' END;
  most CONSTANT integer := 2147483647;
  own integer[] := nullif(current_setting('fenced.limits', true), '');
BEGIN
  IF own IS NULL THEN
    -- Unlike the other settings, tcp_user_timeout is shown without a unit.
    own := ARRAY[coalesce(nullif(current_setting('tcp_user_timeout')::integer, 0), most),
      fenced.stricter(main, most)::integer, fenced.stricter('statement_timeout', most)::integer];
    PERFORM set_config('fenced.limits', own::text, true);
  END IF;
  PERFORM set_config('tcp_user_timeout', least(ms, own[1])::text, true);
  IF is_whole THEN
    -- A running timer ignores another value, so it is stopped first.
    PERFORM set_config(main, '0', true), set_config(main, least(ms, own[2])::text, true);
  ELSE
    PERFORM set_config(main, least(ms, own[2])::text, true),
      set_config('statement_timeout', least(ms, own[3])::text, true);
  END IF;
END
$$;

-- Presents a token for resources, in sorted order, so that transactions which share some of them
-- cannot deadlock over them. Then the transaction may write the guarded rows of the resources.
--
-- hold_ms limits the wait for the resources and the transaction after it. write_id notes the write
-- for `settle`. With read_committed, a transaction of another kind is refused.
CREATE OR REPLACE FUNCTION fenced.present(resources text[], token bigint,
  hold_ms integer DEFAULT NULL, write_id uuid DEFAULT NULL, read_committed boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  ends CONSTANT timestamptz := clock_timestamp() + hold_ms * interval '1 ms';
  head CONSTANT text COLLATE "C" := fenced.slot_head();
  name text COLLATE "C";
  slot text COLLATE "C";
BEGIN
  IF read_committed AND (current_setting('transaction_isolation') <> 'read committed'
      OR current_setting('transaction_read_only')::boolean) THEN
    RAISE EXCEPTION 'the transaction is not READ COMMITTED, READ WRITE' USING ERRCODE = 'UF004';
  END IF;
  FOR name IN SELECT DISTINCT n COLLATE "C" FROM unnest(resources) n ORDER BY 1 LOOP
    IF hold_ms IS NOT NULL THEN
      -- lock_timeout counts for each wait, so it is the time that is left.
      PERFORM set_config('lock_timeout',
        fenced.stricter('lock_timeout', fenced.left_ms(ends)), true);
    END IF;
    PERFORM fenced.advance(name, present.token);
    slot := current_setting(fenced.slot(name), true);
    IF fenced.token_in(slot, name) IS DISTINCT FROM present.token::text THEN
      -- The first line of a resource counts.
      PERFORM set_config(fenced.slot(name), concat(head, to_json(name), ' ', present.token, E'\n',
        CASE WHEN starts_with(slot, head) THEN substr(slot, length(head) + 1) END), true);
    END IF;
  END LOOP;
  IF hold_ms IS NOT NULL THEN
    -- Only after the wait: if the wait is too long, `lock_timeout` ends it with an error, and the
    -- session goes on.
    PERFORM fenced.hold(fenced.stricter(CASE
      WHEN current_setting('server_version_num')::integer >= 170000 THEN 'transaction_timeout'
      ELSE 'idle_in_transaction_session_timeout' END, fenced.left_ms(ends))::integer);
  END IF;
  IF write_id IS NOT NULL THEN
    INSERT INTO fenced.write (id, applied) VALUES (write_id, true);
    IF random() < 1.0 / 256 THEN
      PERFORM fenced.forget_writes();
    END IF;
  END IF;
END
$$;

CREATE OR REPLACE FUNCTION fenced.present(resource text, token bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ BEGIN PERFORM fenced.present(ARRAY[present.resource], present.token); END $$;

-- The highest committed token of the resource; 0 if there is none. The floor if it has no row.
CREATE OR REPLACE FUNCTION fenced.highest(resource text) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT coalesce(
  (SELECT r.token FROM fenced.ratchet r WHERE r.resource = highest.resource COLLATE "C"),
  fenced.floor_of(highest.resource)) $$;

-- Raises UF003 unless this is still the transaction `started`. The library calls it right before
-- COMMIT. If a statement of the caller ended the transaction, those after it were not fenced.
CREATE OR REPLACE FUNCTION fenced.confirm(started xid8) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF started IS DISTINCT FROM pg_current_xact_id() THEN
    RAISE EXCEPTION 'the transaction that presented the fencing token has ended'
      USING ERRCODE = 'UF003';
  END IF;
END
$$;

-- Deletes up to 1024 notes of applied writes that are older than a day: four times as many as were
-- inserted since the last time. Notes of `settle` stay, because their writes may still arrive. The
-- highest deleted id is kept: if the clock is wrong for a moment, age does not tell which notes are
-- deleted. Only one transaction at a time deletes. It must be READ COMMITTED: with an older
-- snapshot, its DELETE could meet rows that are deleted already, and fail with 40001.
CREATE OR REPLACE FUNCTION fenced.forget_writes() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  first_kept CONSTANT uuid := fenced.first_id(clock_timestamp() - interval '1 day');
BEGIN
  IF current_setting('transaction_isolation') = 'read committed'
      AND pg_try_advisory_xact_lock(112585829737829) THEN
    WITH deleted AS (
      DELETE FROM fenced.write WHERE id IN (SELECT w.id FROM fenced.write w
        WHERE w.id < first_kept AND w.applied ORDER BY w.id LIMIT 1024) RETURNING id)
    UPDATE fenced.forgotten_write f SET id = d.id
      FROM (SELECT id FROM deleted ORDER BY id DESC LIMIT 1) d WHERE f.id < d.id;
  END IF;
END
$$;

-- The outcome of a write: 'applied', 'not-applied', or 'unknown' if its note may be deleted, or if
-- it is still under way after wait_ms. The answer is final: a write that has not arrived is
-- refused.
--
-- Invariant: 'not-applied' needs a note of `settle` that was inserted while no note of a higher or
-- equal id was deleted. So no note of the write itself was there before. Under READ COMMITTED, the
-- check after the insertion sees a deletion for which the insertion waited. The other levels may
-- have an older snapshot. There, locking the row fails with 40001 if it has changed since.
CREATE OR REPLACE FUNCTION fenced.settle(write_id uuid, wait_ms integer DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  digits CONSTANT text := translate(write_id::text, '-', '');
  made_at CONSTANT timestamptz := to_timestamp(('x' || left(digits, 12))::bit(48)::bigint / 1000.0);
  applied boolean;
BEGIN
  IF wait_ms IS NOT NULL THEN
    PERFORM set_config('lock_timeout', fenced.stricter('lock_timeout', wait_ms), true);
  END IF;
  -- Only version 7 has a time. Notes are kept for 24 hours.
  IF made_at > clock_timestamp() - interval '23 hours' AND substr(digits, 13, 1) = '7' THEN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
      PERFORM FROM fenced.forgotten_write FOR SHARE;
    END IF;
    INSERT INTO fenced.write (id, applied)
      SELECT write_id, false FROM fenced.forgotten_write f WHERE f.id < write_id
      ON CONFLICT DO NOTHING;
    IF FOUND AND EXISTS (SELECT FROM fenced.forgotten_write f WHERE f.id >= write_id) THEN
      DELETE FROM fenced.write w WHERE w.id = write_id;
    END IF;
  END IF;
  SELECT w.applied INTO applied FROM fenced.write w WHERE w.id = write_id;
  -- An entry in the WAL makes the COMMIT of this transaction wait for synchronous standbys. Without
  -- it, they may still lack the write that is reported here.
  PERFORM pg_logical_emit_message(true, 'fenced', '');
  RETURN CASE applied WHEN true THEN 'applied' WHEN false THEN 'not-applied' ELSE 'unknown' END;
EXCEPTION WHEN lock_not_available THEN
  RETURN 'unknown';
END
$$;

-- For operators: sets a ratchet to any token, also to a lower one, and logs it in fenced.reset_log.
-- Holders of tokens between the two may write again.
CREATE OR REPLACE FUNCTION fenced.reset(resource text, token bigint, reason text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  name CONSTANT text COLLATE "C" := reset.resource;
  before bigint;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended(name, 112585829737828));
  SELECT r.token INTO before FROM fenced.ratchet r WHERE r.resource = name;
  PERFORM set_config('fenced.is_reset', 'on', true);
  INSERT INTO fenced.ratchet AS r (resource, token) VALUES (name, reset.token)
    ON CONFLICT ON CONSTRAINT ratchet_pkey
    DO UPDATE SET token = EXCLUDED.token, advanced_at = EXCLUDED.advanced_at;
  PERFORM set_config('fenced.is_reset', '', true);
  INSERT INTO fenced.reset_log (resource, token_before, token_after, reason)
    VALUES (name, before, reset.token, reset.reason);
END
$$;

-- The time limit of pruning: only resources whose last advance was before it may be pruned.
CREATE OR REPLACE FUNCTION fenced.advanced_before(prefix text, older_than interval)
RETURNS timestamptz
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF prefix IS NULL OR older_than IS NULL OR older_than < interval '0' THEN
    RAISE EXCEPTION 'pruning needs a prefix, and an interval that is not negative'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  RETURN clock_timestamp() - older_than;
END
$$;

-- For operators, before `prune`: raises the floor of the resources that begin with `prefix`. The
-- new floor is the highest token of the old ones: those that did not advance for `older_than`. But
-- it is never above the token of another resource with the prefix. If that keeps the floor down,
-- `held_back_by` is the one with the lowest token. With `up_to`, the floor is at most `up_to`, and
-- the tokens of the others do not count.
CREATE OR REPLACE FUNCTION fenced.raise_floor(prefix text, older_than interval,
  up_to bigint DEFAULT NULL, OUT floor bigint, OUT held_back_by text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  beginning CONSTANT text COLLATE "C" := raise_floor.prefix;
  advanced_before CONSTANT timestamptz := fenced.advanced_before(prefix, older_than);
  lowest record;
  wanted bigint;
BEGIN
  IF up_to IS NULL THEN
    SELECT r.resource, r.token INTO lowest FROM fenced.ratchet r
      WHERE starts_with(r.resource, beginning) AND r.advanced_at >= advanced_before
      ORDER BY r.token LIMIT 1;
  ELSE
    SELECT NULL AS resource, up_to AS token INTO lowest;
  END IF;
  SELECT max(r.token) FILTER (WHERE (r.token > lowest.token) IS NOT TRUE),
      CASE WHEN bool_or(r.token > lowest.token) THEN lowest.resource END
    INTO wanted, held_back_by FROM fenced.ratchet r
    WHERE starts_with(r.resource, beginning) AND r.advanced_at < advanced_before;
  IF wanted > fenced.floor_of(beginning) THEN
    INSERT INTO fenced.floor AS f (prefix, token)
      SELECT p, CASE p WHEN beginning THEN wanted ELSE 0 END
      FROM (SELECT '' UNION SELECT beginning) AS raised (p) ORDER BY p
      ON CONFLICT ON CONSTRAINT floor_pkey
      DO UPDATE SET token = greatest(f.token, EXCLUDED.token), raised_at = clock_timestamp();
  END IF;
  floor := fenced.floor_of(beginning);
END
$$;

-- For operators, after `raise_floor`: deletes resources in these pages of fenced.ratchet. They
-- begin with `prefix`, did not advance for `older_than`, and have no token above the floor. A
-- resource in use is passed over. Gives the number of deleted ones, and the next page; NULL after
-- the last.
CREATE OR REPLACE FUNCTION fenced.prune(prefix text, older_than interval, page bigint DEFAULT 0,
  pages integer DEFAULT 4, OUT pruned bigint, OUT next_page bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  advanced_before CONSTANT timestamptz := fenced.advanced_before(prefix, older_than);
  floor CONSTANT bigint := fenced.floor_of(prefix);
  locked text[] COLLATE "C";
BEGIN
  -- Few pages at once: each deleted resource takes an entry of the server's lock table until the
  -- transaction ends.
  IF (page >= 0 AND pages BETWEEN 1 AND 64) IS NOT TRUE THEN
    RAISE EXCEPTION 'a page is 0 or more, and 1 to 64 are pruned at once'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  WITH old AS MATERIALIZED (
    SELECT r.resource FROM fenced.ratchet r
      WHERE r.ctid >= format('(%s,0)', page)::tid AND r.ctid < format('(%s,0)', page + pages)::tid
        AND starts_with(r.resource, prune.prefix COLLATE "C")
        AND r.advanced_at < advanced_before AND r.token <= floor)
  SELECT array_agg(o.resource) INTO locked FROM old o
    WHERE pg_try_advisory_xact_lock(hashtextextended(o.resource, 112585829737828));
  -- A row may have advanced before its lock. Under the lock, the next read is final.
  DELETE FROM fenced.ratchet r
    WHERE r.resource = ANY (locked) AND r.advanced_at < advanced_before AND r.token <= floor;
  GET DIAGNOSTICS pruned = ROW_COUNT;
  next_page := page + pages;
  IF next_page * current_setting('block_size')::bigint >= pg_relation_size('fenced.ratchet') THEN
    next_page := NULL;
  END IF;
END
$$;

-- Called by the triggers of guarded tables for each row. It runs as the role that writes, which
-- needs the right to present tokens. Any role can change the setting that it reads, so `advance`
-- checks the token again.
CREATE OR REPLACE FUNCTION fenced.require(resource text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  presented CONSTANT text :=
    fenced.token_in(current_setting(fenced.slot(resource), true), resource);
BEGIN
  IF presented IS NULL THEN
    RAISE EXCEPTION 'this row may be written only with a fencing token: call fenced.present(%, token) before, in the same transaction', quote_nullable(resource)
      USING ERRCODE = 'UF002', DETAIL = json_build_object('resource', resource);
  END IF;
  PERFORM fenced.advance(resource, presented::bigint);
END
$$;

-- Records a write that a guard in audit mode would have refused, and warns its client. Called by
-- the trigger, which runs as the owner of the table. The role, the application and the statement
-- are those of the session.
CREATE OR REPLACE FUNCTION fenced.note_unfenced(
  schema_name name, table_name name, resource text, reason text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET row_security = on AS $$
DECLARE
  role CONSTANT text := fenced.session_role();
  application CONSTANT text := current_setting('application_name');
  statement CONSTANT text := left(current_query(), 1000);
BEGIN
  INSERT INTO fenced.audit_log (schema_name, table_name, role, application, statement, reason, resource, digest)
    VALUES (schema_name, table_name, role, application, statement, reason, resource,
      md5(concat_ws(E'\n', schema_name, table_name, role, application, reason, statement)))
    ON CONFLICT DO NOTHING;
  IF FOUND THEN
    RAISE WARNING 'the guard of %.% will refuse this write: %', quote_ident(schema_name), quote_ident(table_name), reason
      USING DETAIL = json_build_object('resource', resource), HINT = 'The guard is in audit mode. SELECT * FROM fenced.audit';
  END IF;
END
$$;

-- The role that the session acts as. Inside a trigger that runs as its owner, current_user is not.
CREATE OR REPLACE FUNCTION fenced.session_role() RETURNS name
LANGUAGE sql STABLE AS $$ SELECT CASE current_setting('role')
  WHEN 'none' THEN session_user ELSE current_setting('role')::name END $$;

-- Called by the triggers of guards in audit mode for each row: records a write that `require` would
-- refuse. A transaction that presented a token holds the resource, so the highest token is final.
CREATE OR REPLACE FUNCTION fenced.audit_row(schema_name name, table_name name, resource text)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  presented CONSTANT text :=
    fenced.token_in(current_setting(fenced.slot(resource), true), resource);
  reason CONSTANT text := CASE
    WHEN presented IS NULL THEN 'no token'
    WHEN NOT has_function_privilege(fenced.session_role(), 'fenced.advance(text, bigint)', 'EXECUTE')
      THEN 'the role may not present tokens'
    WHEN fenced.highest(resource) > presented::bigint THEN 'stale token' END;
BEGIN
  IF reason IS NOT NULL THEN
    PERFORM fenced.note_unfenced(schema_name, table_name, resource, reason);
  END IF;
END
$$;

-- A trigger for TRUNCATE does not see the rows, so it cannot check their tokens.
CREATE OR REPLACE FUNCTION fenced.refuse_truncate() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION 'a guarded table may not be truncated: % has rows of many resources', TG_RELID::regclass USING ERRCODE = 'UF002',
    HINT = 'Present the tokens of its rows and DELETE them, or call fenced.unguard first';
END
$$;

-- Statements that revoke other roles' right to create triggers on the table or its partitions; NULL
-- if none has it. Such a role can replace the guard against TRUNCATE, and run code with the rights
-- of every role that writes the table.
CREATE OR REPLACE FUNCTION fenced.trigger_revokes(target regclass) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT string_agg(format('REVOKE TRIGGER ON %s FROM %s', c.oid::regclass, coalesce(quote_ident(r.rolname), 'PUBLIC')), '; ')
    FROM pg_class c, aclexplode(c.relacl) a LEFT JOIN pg_roles r ON r.oid = a.grantee
    WHERE (c.oid = target OR c.oid IN (SELECT relid FROM pg_partition_tree(target)))
      AND a.privilege_type = 'TRIGGER' AND a.grantee <> c.relowner AND r.rolsuper IS NOT TRUE
$$;

-- The SQL of a view's expression, with every name resolved. The triggers' functions get the same
-- settings: a row's resource has the same text, whatever the settings of a writer's session are.
CREATE OR REPLACE FUNCTION fenced.resolved(reading regclass) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
SET DateStyle = 'ISO, MDY' SET IntervalStyle = 'postgres' SET TimeZone = 'UTC' SET bytea_output = 'hex'
SET extra_float_digits = 1 SET standard_conforming_strings = on SET quote_all_identifiers = off
SET transform_null_equals = off SET array_nulls = on SET xmlbinary = 'base64' SET xmloption = 'content'
SET lc_monetary = 'C' SET lc_numeric = 'C' SET lc_time = 'C' SET default_text_search_config = 'pg_catalog.simple'
AS $$ SELECT substring(pg_get_viewdef(reading) FROM '^\s*SELECT\s+(.*) AS fenced_resource\s+FROM ONLY ') $$;

-- The objects, other than PostgreSQL's own and tables, on which the expression of the view depends.
CREATE OR REPLACE FUNCTION fenced.used_by(reading regclass) RETURNS TABLE (classid oid, objid oid)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  WITH RECURSIVE used (classid, objid) AS (
    SELECT d.refclassid, d.refobjid FROM pg_depend d JOIN pg_rewrite v ON d.classid = 'pg_rewrite'::regclass AND d.objid = v.oid
      WHERE v.ev_class = reading AND d.deptype = 'n' AND d.refclassid <> 'pg_class'::regclass
    UNION SELECT d.refclassid, d.refobjid FROM used u JOIN pg_depend d USING (classid, objid)
      WHERE d.deptype = 'n' AND d.refclassid NOT IN ('pg_namespace'::regclass, 'pg_class'::regclass))
  SELECT used.classid, used.objid FROM used $$;

-- Refuses an expression whose value depends on more than the row. PostgreSQL decides it: such an
-- expression cannot have an index. The index is made on an empty copy of the table, whose name an
-- expression may contain.
--
-- Invariant: a guard's expression gives the same resource for the same row to every writer, at any
-- time. Otherwise a writer with a stale token could choose a resource whose token is not stale. It
-- would not hold if a function in C or inside the server were wrongly marked IMMUTABLE.
CREATE OR REPLACE FUNCTION fenced.refuse_more_than_row(target regclass, resource text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  copy CONSTANT text := (SELECT format('pg_temp.%I', relname) FROM pg_class WHERE oid = target);
BEGIN
  EXECUTE format('CREATE TEMPORARY TABLE %s (LIKE %s)', copy, target);
  BEGIN
    EXECUTE format('CREATE INDEX ON %s ((%s))', copy, resource);
  EXCEPTION WHEN invalid_object_definition OR feature_not_supported THEN
    RAISE EXCEPTION 'the expression depends on more than the row: %', SQLERRM
      USING ERRCODE = 'invalid_object_definition',
        HINT = 'Use columns and IMMUTABLE functions only: || in place of concat(), extract() in place of the text of a date.';
  END;
  EXECUTE format('DROP TABLE %s', copy);
END
$$;

-- Refuses a function that is not IMMUTABLE, or whose body is not. PostgreSQL believes what a
-- function is marked as. It looks into the body only to inline a function that is marked VOLATILE.
-- So the body is copied into one, and an index is made over the copy. PostgreSQL does not know the
-- bodies of other languages, nor those that are stored as text.
CREATE OR REPLACE FUNCTION fenced.refuse_impure(routine regprocedure) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  part record;
BEGIN
  SELECT p.provolatile, l.lanname, pg_get_function_sqlbody(p.oid) AS body, p.provariadic <> 0 AS is_variadic,
      (SELECT coalesce(string_agg(format('a%s %s', n, format_type(t, NULL)), ', ' ORDER BY n), '')
        FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY a (t, n)) AS columns,
      (SELECT coalesce(string_agg('a' || n, ', ' ORDER BY n), '') FROM generate_series(1, p.pronargs) n) AS arguments
    INTO part FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang WHERE p.oid = routine;
  IF part.provolatile <> 'i' THEN
    RAISE EXCEPTION 'the expression uses the function %, which is not IMMUTABLE', routine
      USING ERRCODE = 'invalid_object_definition';
  END IF;
  IF part.lanname IN ('internal', 'c') THEN
    RETURN;
  END IF;
  IF part.body IS NULL THEN
    RAISE EXCEPTION 'the expression uses the function %, and PostgreSQL does not know on what its body depends', routine
      USING ERRCODE = 'invalid_object_definition',
        HINT = 'Write the function in SQL, with RETURN or BEGIN ATOMIC in place of a string.';
  END IF;
  EXECUTE format('CREATE FUNCTION pg_temp.fenced_body(%s) RETURNS %s LANGUAGE sql VOLATILE %s',
    pg_get_function_arguments(routine), pg_get_function_result(routine), part.body);
  EXECUTE format('CREATE TEMPORARY TABLE fenced_arguments (%s)', part.columns);
  BEGIN
    EXECUTE format('CREATE INDEX ON pg_temp.fenced_arguments ((pg_temp.fenced_body(%s) IS NULL))',
      CASE WHEN part.is_variadic THEN regexp_replace(part.arguments, '(a\d+)$', 'VARIADIC \1') ELSE part.arguments END);
  EXCEPTION WHEN invalid_object_definition OR feature_not_supported THEN
    RAISE EXCEPTION 'the expression uses the function %, whose body is more than one expression over its arguments', routine
      USING ERRCODE = 'invalid_object_definition', DETAIL = SQLERRM,
        HINT = 'Let the body be one expression of arguments and IMMUTABLE functions: no query, setting, role or time.';
  END;
  DROP TABLE pg_temp.fenced_arguments;
  EXECUTE format('DROP FUNCTION pg_temp.fenced_body(%s)', pg_get_function_identity_arguments(routine));
END
$$;

-- A hash that changes with each of the functions, and with their owners.
CREATE OR REPLACE FUNCTION fenced.digest_of(functions text[]) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT md5(coalesce(string_agg(concat(f, pg_get_userbyid(p.proowner), pg_get_functiondef(p.oid)), E'\n' ORDER BY f), ''))
    FROM unnest(functions) f LEFT JOIN pg_proc p ON p.oid = to_regprocedure(f) $$;

-- Guards a table. The expression is read with the search path `path`.
CREATE OR REPLACE FUNCTION fenced.guard_by_path(target regclass, expression text, mode text, path text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET row_security = on AS $guard$
DECLARE
  is_audit CONSTANT boolean := mode COLLATE "C" = 'audit';
  relation record;
  routine text;
  reading text;
  body text;
  resource text;
  settings text;
  part record;
  used regprocedure;
  functions text[] COLLATE "C" := '{}';
  partition regclass;
BEGIN
  SELECT c.relname, c.relkind, c.relowner, n.nspname, pg_get_userbyid(c.relowner) AS owner INTO STRICT relation
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = target;
  IF coalesce(mode, '') COLLATE "C" NOT IN ('refuse', 'audit') THEN
    RAISE EXCEPTION 'the mode of a guard is refuse or audit' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF relation.relkind NOT IN ('r', 'p') THEN
    RAISE EXCEPTION '% is not a table', target USING ERRCODE = 'wrong_object_type';
  END IF;
  IF NOT has_function_privilege(relation.relowner, 'fenced.advance(text, bigint)', 'EXECUTE') THEN
    RAISE EXCEPTION 'the owner of %, as whom foreign keys cascade, may not present tokens', target
      USING ERRCODE = 'insufficient_privilege', HINT = format('SELECT fenced.allow(%L)', relation.owner);
  END IF;
  IF fenced.trigger_revokes(target) IS NOT NULL THEN
    RAISE EXCEPTION 'other roles may create triggers on %, and so take its guard away', target
      USING ERRCODE = 'UF005', HINT = fenced.trigger_revokes(target);
  END IF;
  PERFORM fenced.unguard(target);
  routine := format('%I.%I', relation.nspname, 'fenced_guard_' || target::oid);

  -- A view makes the server read the expression with the caller's path, and remember the objects
  -- that its names mean. Until the path is restored, names in this function have their schema.
  reading := format(E'CREATE VIEW %s AS SELECT (%s\n)::pg_catalog.text AS fenced_resource FROM ONLY %s AS %I',
    routine, expression, target, relation.relname);
  PERFORM set_config('search_path', path, true);
  EXECUTE reading;
  PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

  -- The owner of a function in the expression could change its result, and would run code with the
  -- rights of every writer.
  SELECT pg_describe_object(u.classid, u.objid, 0) AS name, r.rolname AS stranger INTO part
    FROM fenced.used_by(routine::regclass) u
    JOIN pg_shdepend o ON o.classid = u.classid AND o.objid = u.objid AND o.deptype = 'o'
      AND o.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
    JOIN pg_roles r ON r.oid = o.refobjid AND r.oid <> relation.relowner AND NOT r.rolsuper LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'the expression uses the % of the role %', part.name, quote_ident(part.stranger)
      USING ERRCODE = 'invalid_object_definition',
        HINT = 'Name what is meant with its schema: OPERATOR(pg_catalog.||). Or give it to the table''s owner.';
  END IF;
  FOR used IN SELECT u.objid FROM fenced.used_by(routine::regclass) u
      JOIN pg_proc p ON u.classid = 'pg_proc'::regclass AND p.oid = u.objid AND p.prokind = 'f' LOOP
    functions := functions || used::text;
    PERFORM fenced.refuse_impure(used);
  END LOOP;
  FOR part IN SELECT a.attname FROM pg_attribute a, pg_rewrite v
      WHERE a.attrelid = target AND a.attgenerated = 'v' AND v.ev_class = routine::regclass
        AND (v.ev_action::text ~ ':varattno 0 ' OR EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_rewrite'::regclass
          AND d.objid = v.oid AND d.refobjid = target AND d.refobjsubid = a.attnum))
  LOOP
    RAISE EXCEPTION 'the expression uses the virtual column %, whose value triggers do not see', quote_ident(part.attname)
      USING ERRCODE = 'invalid_object_definition', HINT = 'Write what generates it in its place, or name each column in place of the row.';
  END LOOP;

  resource := fenced.resolved(routine::regclass);
  EXECUTE format('DROP VIEW %s', routine);
  PERFORM fenced.refuse_more_than_row(target, resource);
  -- A trigger lacks some values, such as the row as a value of the table's type. This view lacks
  -- them, too, so the expression fails here, and not when the first row is written.
  EXECUTE format('CREATE VIEW %s AS SELECT %s FROM (SELECT r.* FROM ONLY %s AS r) AS %I', routine, resource, target, relation.relname);
  EXECUTE format('DROP VIEW %s', routine);
  settings := (SELECT string_agg(format('SET %s = %L', split_part(c, '=', 1), substr(c, strpos(c, '=') + 1)), ' ')
    FROM pg_proc, unnest(proconfig) AS c WHERE oid = 'fenced.resolved(regclass)'::regprocedure AND NOT starts_with(c, 'search_path='));
  body := format($body$
  IF TG_OP <> 'INSERT' THEN
    resource_before_ := (SELECT %1$s FROM (SELECT OLD.*) AS %2$I);
    done_ := %3$s(%4$sresource_before_);
  END IF;
  IF TG_OP <> 'DELETE' THEN
    resource_after_ := (SELECT %1$s FROM (SELECT NEW.*) AS %2$I);
    IF TG_OP = 'INSERT' OR resource_after_ IS DISTINCT FROM resource_before_ THEN
      done_ := %3$s(%4$sresource_after_);
    END IF;
  END IF;$body$, resource, relation.relname, CASE WHEN is_audit THEN 'fenced.audit_row' ELSE 'fenced.require' END,
    CASE WHEN is_audit THEN format('%L, %L, ', relation.nspname, relation.relname) END);
  IF is_audit THEN
    -- In audit mode, an expression that fails must not refuse the write either.
    body := format($body$
  IF TG_OP = 'TRUNCATE' THEN
    done_ := fenced.note_unfenced(%1$L, %2$L, NULL, 'TRUNCATE');
    RETURN NULL;
  END IF;
  BEGIN%3$s
  EXCEPTION WHEN OTHERS THEN
    done_ := fenced.note_unfenced(%1$L, %2$L, NULL, SQLERRM);
  END;$body$, relation.nspname, relation.relname, body);
  END IF;
  -- Not CREATE OR REPLACE: a function of another role would keep its owner.
  EXECUTE format($create$
    CREATE FUNCTION %1$s() RETURNS trigger LANGUAGE plpgsql %4$s SET search_path = pg_catalog, pg_temp %3$s AS %2$L
    $create$, routine, format($body$
#variable_conflict use_column
DECLARE
  installation_ CONSTANT text := %2$L;
  resource_before_ text COLLATE "C";
  resource_after_ text COLLATE "C";
  done_ text;
BEGIN%1$s
  RETURN NULL;
END
    $body$, body, fenced.installation()), settings, CASE WHEN is_audit THEN 'SECURITY DEFINER' END);
  EXECUTE format('REVOKE ALL ON FUNCTION %s() FROM PUBLIC', routine);
  IF relation.owner <> current_user THEN
    EXECUTE format('ALTER FUNCTION %s() OWNER TO %I', routine, relation.owner);
  END IF;
  EXECUTE format('CREATE CONSTRAINT TRIGGER fenced_guard AFTER INSERT OR UPDATE OR DELETE ON %s
    NOT DEFERRABLE FOR EACH ROW EXECUTE FUNCTION %s(%L, %L)',
    target, routine, fenced.digest(format('%s()', routine)::regprocedure), expression);
  FOR partition IN SELECT target UNION SELECT relid FROM pg_partition_tree(target) LOOP
    EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER fenced_guard', partition);
    EXECUTE format('CREATE TRIGGER fenced_guard_truncate BEFORE TRUNCATE ON %s EXECUTE FUNCTION %s()', partition,
      CASE WHEN is_audit THEN routine ELSE 'fenced.refuse_truncate' END);
    EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER fenced_guard_truncate', partition);
  END LOOP;
  INSERT INTO fenced.guarded (schema_name, table_name, owner, expression, functions, digest)
    VALUES (relation.nspname, relation.relname, relation.owner, guard_by_path.expression, functions,
      fenced.digest_of(functions));
END
$guard$;

-- Lets every row of the table be written only in transactions that presented a token for its
-- resource. The expression gives the resource from the row's columns. A second call replaces the
-- first. For the owner of the table. The names in the expression keep the meaning that they have
-- for the caller now. With the mode 'audit', the guard refuses nothing: it warns, and records what
-- it would refuse. A call without a mode then lets it refuse.
--
-- The row trigger is a constraint trigger, which no role can replace. It is an AFTER trigger, so it
-- sees the stored row. It is ENABLE ALWAYS, so it also fires for replicated rows. A partition that
-- is created later is guarded, except against its own TRUNCATE, until this is called again.
CREATE OR REPLACE FUNCTION fenced.guard(target regclass, expression text, mode text DEFAULT 'refuse') RETURNS void
LANGUAGE sql VOLATILE
RETURN fenced.guard_by_path(target, expression, mode, pg_catalog.current_setting('search_path'));

-- A hash that changes with the function.
CREATE OR REPLACE FUNCTION fenced.digest(routine regprocedure) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS 'SELECT md5(pg_get_functiondef(routine))';

-- The parts of a guard that do not hold, for the table and its partitions; NULL if all do. A
-- trigger that was disabled and enabled again does not fire for replicated rows.
CREATE OR REPLACE FUNCTION fenced.holes(target regclass, OUT rows text, OUT truncates text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT nullif(concat_ws('; ', 'rows are not guarded in ' || string_agg(name, ', ') FILTER (WHERE of_rows = 'D'),
      'rows are not guarded under session_replication_role = replica in ' || string_agg(name, ', ') FILTER (WHERE of_rows = 'O'),
      'rows are guarded only under session_replication_role = replica in ' || string_agg(name, ', ') FILTER (WHERE of_rows = 'R')), ''),
    nullif(concat_ws('; ', 'TRUNCATE is not refused of ' || string_agg(name, ', ') FILTER (WHERE of_all = 'D'),
      'TRUNCATE is not refused under session_replication_role = replica of ' || string_agg(name, ', ') FILTER (WHERE of_all = 'O'),
      'TRUNCATE is refused only under session_replication_role = replica of ' || string_agg(name, ', ') FILTER (WHERE of_all = 'R')), '')
  FROM (SELECT r.oid::regclass::text COLLATE "C" AS name,
      coalesce((SELECT g.tgenabled FROM pg_trigger g JOIN pg_trigger t ON t.tgrelid = target AND t.tgname = 'fenced_guard' AND t.tgfoid = g.tgfoid
        WHERE g.tgrelid = r.oid AND g.tgname = 'fenced_guard' AND g.tgtype = 29 AND g.tgqual IS NULL AND cardinality(g.tgattr::int2[]) = 0), 'D') AS of_rows,
      coalesce((SELECT g.tgenabled FROM pg_trigger g WHERE g.tgrelid = r.oid AND g.tgname = 'fenced_guard_truncate'
        AND (g.tgfoid = 'fenced.refuse_truncate()'::regprocedure OR g.tgfoid = (SELECT t.tgfoid FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
          WHERE t.tgrelid = target AND t.tgname = 'fenced_guard' AND p.prosecdef)) AND g.tgtype = 34 AND g.tgqual IS NULL), 'D') AS of_all
    FROM pg_class r WHERE r.oid = target OR r.oid IN (SELECT relid FROM pg_partition_tree(target)) ORDER BY 1) part
$$;

-- The tables that are guarded, or should be, with their expressions. `problem` is NULL if the guard
-- is as `guard` made it. `recorded` is the name in fenced.guarded; `target` is NULL if no table has
-- that name.
CREATE OR REPLACE FUNCTION fenced.guards()
RETURNS TABLE (target regclass, recorded text, expression text, mode text, problem text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET row_security = on AS $$
  SELECT c.oid::regclass, quote_ident(w.schema_name) || '.' || quote_ident(w.table_name),
    -- The trigger's arguments are the digest (32 bytes) and the expression. A zero byte ends each.
    CASE WHEN t.tgnargs = 2 THEN convert_from(substr(t.tgargs, 34, length(t.tgargs) - 34), getdatabaseencoding())
      ELSE w.expression END,
    -- Only the function of a guard in audit mode runs as the owner of the table.
    CASE WHEN p.prosecdef THEN 'audit' WHEN t.tgnargs = 2 THEN 'refuse' END,
    CASE WHEN c.oid IS NULL THEN 'there is no such table: guard the table that took its place, and delete this row of fenced.guarded'
    ELSE nullif(concat_ws('; ',
      CASE WHEN t.oid IS NULL THEN 'its trigger is gone'
        WHEN t.tgconstraint = 0 OR t.tgnargs <> 2 THEN 'an earlier version made it, or somebody else: call fenced.guard again'
        WHEN p.proowner <> c.relowner THEN 'its function does not belong to the owner of the table'
        WHEN fenced.digest(p.oid) <> convert_from(substr(t.tgargs, 1, 32), 'SQL_ASCII') THEN 'its function was changed'
        -- Guards of version 5 name no installation.
        WHEN substring(p.prosrc FROM '\n  installation_ CONSTANT text := ''([0-9a-f-]{36})'';') <> fenced.installation()
          THEN 'it was made for the ratchets of another installation, so tokens may be missing: present the latest ones, and call fenced.guard again'
        WHEN w.digest IS NULL
          THEN 'an earlier version made it, or the table has another name since: call fenced.guard again, which checks that its expression depends on the row alone'
        WHEN fenced.digest_of(w.functions) <> w.digest THEN 'a function in its expression was changed: call fenced.guard again' END,
      CASE WHEN t.oid IS NOT NULL THEN holes.rows END, holes.truncates,
      'other roles may create triggers: ' || fenced.trigger_revokes(c.oid),
      CASE WHEN NOT has_function_privilege(c.relowner, 'fenced.advance(text, bigint)', 'EXECUTE')
        THEN 'the owner of the table may not present tokens' END), '') END
    FROM (SELECT oid, relowner FROM pg_class WHERE relkind IN ('r', 'p')) c
    FULL JOIN fenced.guarded w ON to_regclass(format('%I.%I', w.schema_name, w.table_name)) = c.oid
    LEFT JOIN pg_trigger t ON t.tgrelid = c.oid AND t.tgname = 'fenced_guard' AND t.tgparentid = 0
    LEFT JOIN pg_proc p ON p.oid = t.tgfoid
    LEFT JOIN LATERAL fenced.holes(c.oid) holes ON c.oid IS NOT NULL AND (t.oid IS NOT NULL OR w.digest IS NOT NULL)
    WHERE t.oid IS NOT NULL OR w.digest IS NOT NULL
      OR EXISTS (SELECT FROM pg_proc o WHERE o.proname = 'fenced_guard_' || c.oid AND o.proowner = c.relowner)
    ORDER BY 1, 2
$$;

-- For an event trigger of a superuser: refuses each command that leaves a table without the guard
-- that it should have.
--
--   CREATE EVENT TRIGGER fenced_guards ON ddl_command_end
--     EXECUTE FUNCTION fenced.refuse_unguarded();
CREATE OR REPLACE FUNCTION fenced.refuse_unguarded() RETURNS event_trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET row_security = on AS $$
DECLARE
  bare record;
BEGIN
  SELECT c.oid::regclass AS target, h.rows INTO bare
    FROM fenced.guarded w
    JOIN pg_class c ON c.oid = to_regclass(format('%I.%I', w.schema_name, w.table_name)), fenced.holes(c.oid) h
    WHERE h.rows IS NOT NULL LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'the command would leave % without its guard: %', bare.target, bare.rows
      USING ERRCODE = 'UF006',
        HINT = format('To give the guard up: SELECT fenced.unguard(%L). A copy gets its guard before it gets the name.', bare.target);
  END IF;
END
$$;

-- Removes the guard, if there is one.
CREATE OR REPLACE FUNCTION fenced.unguard(target regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET row_security = on AS $$
DECLARE
  -- In a restored database, the function has the name that the first database gave it.
  named CONSTANT oid := (SELECT tgfoid FROM pg_trigger WHERE tgrelid = target AND tgname = 'fenced_guard');
  routine regprocedure;
  partition regclass;
BEGIN
  -- First, because an event trigger may refuse to let a table of fenced.guarded lose its guard.
  DELETE FROM fenced.guarded w WHERE (w.schema_name, w.table_name) =
    (SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = target);
  FOR partition IN SELECT target UNION SELECT relid FROM pg_partition_tree(target) LOOP
    EXECUTE format('DROP TRIGGER IF EXISTS fenced_guard_truncate ON %s', partition);
  END LOOP;
  EXECUTE format('DROP TRIGGER IF EXISTS fenced_guard ON %s', target);
  -- Only by its own name: another role's trigger may have taken the guard's name.
  FOR routine IN SELECT p.oid FROM pg_proc p JOIN pg_class c ON c.oid = target JOIN pg_roles r ON r.oid = p.proowner
      WHERE p.pronargs = 0 AND (p.proname = 'fenced_guard_' || target::oid OR p.oid = named AND p.proname ~ '^fenced_guard_[0-9]+$')
        AND (r.oid = c.relowner OR r.rolsuper) LOOP
    EXECUTE format('DROP FUNCTION %s', routine);
  END LOOP;
END
$$;

-- Names a version of a document: its number, and the id of the write that made it. The number alone
-- names none. If a crash or a failover loses a commit, the next write gets the same number.
CREATE OR REPLACE FUNCTION fenced.version_of(number bigint, write_id uuid) RETURNS text
LANGUAGE sql STABLE AS $$ SELECT concat(number, '-', write_id) $$;

-- Writes a document, or deletes it if the body is NULL. `expected` is the version to be replaced,
-- 'none' for no document, NULL for any. Gives the new version; NULL if another one is there.
--
-- Invariant: the write replaces the version that its caller read, or none. No two writes make the
-- same version, because their ids differ. That holds as long as nobody gives two writes one id.
CREATE OR REPLACE FUNCTION fenced.put_record(collection text, id text, body jsonb, token bigint,
  write_id uuid, expected text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  written text;
BEGIN
  INSERT INTO fenced.record AS r (collection, id, body, token, version, write_id)
    SELECT put_record.collection, put_record.id, put_record.body, put_record.token, 1,
      coalesce(put_record.write_id, gen_random_uuid())
    -- Rows are never deleted. So without a row, no version was ever there that could be expected.
    WHERE coalesce(expected, 'none') COLLATE "C" = 'none' OR EXISTS (SELECT FROM fenced.record r
      WHERE r.collection = put_record.collection COLLATE "C" AND r.id = put_record.id COLLATE "C")
    ON CONFLICT ON CONSTRAINT record_pkey DO UPDATE
      SET body = EXCLUDED.body, token = EXCLUDED.token, version = r.version + 1,
        write_id = EXCLUDED.write_id
      WHERE r.token <= EXCLUDED.token AND (expected IS NULL OR expected COLLATE "C" =
        CASE WHEN r.body IS NULL THEN 'none' ELSE fenced.version_of(r.version, r.write_id) END)
    RETURNING fenced.version_of(r.version, r.write_id) INTO written;
  IF NOT FOUND THEN
    PERFORM fenced.refuse(r.collection || '/' || r.id, put_record.token, r.token)
      FROM fenced.record r WHERE r.collection = put_record.collection COLLATE "C"
        AND r.id = put_record.id COLLATE "C" AND r.token > put_record.token;
  END IF;
  RETURN written;
END
$$;

-- Raises the ratchet of a document, and returns the document. From now on, no lower token can
-- change it. The body is NULL if the document was deleted, or never written. A document without a
-- row gets one, whose version has the number 0.
CREATE OR REPLACE FUNCTION fenced.claim_record(collection text, id text, claimed bigint)
RETURNS TABLE (body text, token bigint, version text, write_id uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN QUERY INSERT INTO fenced.record AS r (collection, id, token, version)
    VALUES (claim_record.collection, claim_record.id, claimed, 0)
    ON CONFLICT ON CONSTRAINT record_pkey
    DO UPDATE SET token = EXCLUDED.token WHERE r.token <= EXCLUDED.token
    RETURNING r.body::text, r.token, fenced.version_of(r.version, r.write_id), r.write_id;
  IF NOT FOUND THEN
    PERFORM fenced.refuse(r.collection || '/' || r.id, claimed, r.token) FROM fenced.record r
      WHERE r.collection = claim_record.collection COLLATE "C"
        AND r.id = claim_record.id COLLATE "C" AND r.token > claimed;
  END IF;
END
$$;

-- A document. The body is NULL if it was deleted, or only claimed.
CREATE OR REPLACE FUNCTION fenced.get_record(collection text, id text)
RETURNS TABLE (body text, token bigint, version text, write_id uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT r.body::text, r.token, fenced.version_of(r.version, r.write_id), r.write_id
  FROM fenced.record r
  WHERE r.collection = get_record.collection COLLATE "C" AND r.id = get_record.id COLLATE "C" $$;

-- The functions that a role needs to write with tokens.
CREATE OR REPLACE FUNCTION fenced.writer_functions() RETURNS text
LANGUAGE sql IMMUTABLE AS $$ SELECT 'fenced.advance(text, bigint), fenced.present(text, bigint),
  fenced.present(text[], bigint, integer, uuid, boolean), fenced.highest(text),
  fenced.settle(uuid, integer), fenced.put_record(text, text, jsonb, bigint, uuid, text),
  fenced.claim_record(text, text, bigint), fenced.get_record(text, text)' $$;

-- Lets a role present tokens, and so raise ratchets, but neither lower nor delete them. 'public' is
-- every role.
CREATE OR REPLACE FUNCTION fenced.allow(role_name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  grantee CONSTANT text := CASE role_name COLLATE "C"
    WHEN 'public' THEN 'PUBLIC' ELSE quote_ident(role_name) END;
BEGIN
  EXECUTE format('GRANT USAGE ON SCHEMA fenced TO %s', grantee);
  EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', fenced.writer_functions(), grantee);
END
$$;

CREATE OR REPLACE FUNCTION fenced.disallow(role_name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM %s', fenced.writer_functions(),
    CASE role_name COLLATE "C" WHEN 'public' THEN 'PUBLIC' ELSE quote_ident(role_name) END);
END
$$;

-- At first only the owner may do anything that touches a table. Earlier grants and revokes stay. A
-- role that could present tokens to version 5 can do so to this one.
DO $$
DECLARE
  routine regprocedure;
  role_name text;
BEGIN
  IF (SELECT nspacl IS NULL FROM pg_namespace WHERE nspname = 'fenced') THEN
    GRANT USAGE ON SCHEMA fenced TO PUBLIC;
  END IF;
  FOR routine IN SELECT oid FROM pg_proc
      WHERE pronamespace = 'fenced'::regnamespace AND proacl IS NULL
        AND (prosecdef OR proname IN ('allow', 'disallow')) LOOP
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', routine);
  END LOOP;
  FOR role_name IN SELECT coalesce(r.rolname, 'public')
      FROM pg_proc p, aclexplode(p.proacl) a LEFT JOIN pg_roles r ON r.oid = a.grantee
      WHERE p.oid = 'fenced.advance(text, bigint)'::regprocedure AND a.grantee <> p.proowner LOOP
    PERFORM fenced.allow(role_name);
  END LOOP;
END
$$;

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('fenced.search_path'), false);
