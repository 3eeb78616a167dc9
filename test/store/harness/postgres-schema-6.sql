-- schema.sql of version 6, without its comments.
SELECT pg_catalog.set_config('fenced.search_path', pg_catalog.current_setting('search_path'), false);
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);
SELECT pg_advisory_xact_lock(112585829737828);
DO $$
DECLARE
  schema CONSTANT oid := to_regnamespace('fenced');
  stranger name;
  installed integer;
  twice record;
BEGIN
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
  SELECT substring(prosrc FROM '[0-9]+')::integer INTO installed
    FROM pg_proc WHERE oid = to_regprocedure('fenced.version()');
  IF installed NOT IN (5, 6) THEN
    RAISE EXCEPTION 'the schema "fenced" has version %, this file is version 6', installed
      USING ERRCODE = 'object_not_in_prerequisite_state', HINT = CASE WHEN installed > 6
        THEN 'Use the library of that version.' ELSE 'Run the schema.sql of version 5 first.' END;
  END IF;
  IF installed = 5 THEN
    LOCK TABLE fenced.ratchet, fenced.floor, fenced.record IN ACCESS EXCLUSIVE MODE;
    DROP FUNCTION fenced.put_record(text, text, jsonb, bigint, uuid, bigint),
      fenced.get_record(text, text), fenced.claim_record(text, text, bigint);
    UPDATE fenced.record SET write_id = gen_random_uuid() WHERE version > 0 AND write_id IS NULL;
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
CREATE TABLE IF NOT EXISTS fenced.ratchet (
  resource text COLLATE "C" PRIMARY KEY CHECK (octet_length(resource) BETWEEN 1 AND 1024),
  token bigint NOT NULL CHECK (token > 0),
  advanced_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 70);
CREATE TABLE IF NOT EXISTS fenced.floor (
  prefix text COLLATE "C" PRIMARY KEY CHECK (octet_length(prefix) <= 1024),
  token bigint NOT NULL CHECK (token >= 0),
  raised_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO fenced.floor (prefix, token) VALUES ('', 0) ON CONFLICT DO NOTHING;
CREATE OR REPLACE FUNCTION fenced.first_id(made_at timestamptz) RETURNS uuid
LANGUAGE sql IMMUTABLE AS $$ SELECT rpad(
  lpad(to_hex((extract(epoch FROM made_at) * 1000)::bigint), 12, '0'), 32, '0')::uuid $$;
CREATE TABLE IF NOT EXISTS fenced.write (
  id uuid PRIMARY KEY,
  applied boolean NOT NULL
);
CREATE TABLE IF NOT EXISTS fenced.forgotten_write (id uuid NOT NULL);
INSERT INTO fenced.forgotten_write (id)
  SELECT CASE WHEN to_regprocedure('fenced.version()') IS NULL
    THEN '00000000-0000-0000-0000-000000000000' ELSE fenced.first_id(clock_timestamp()) END
  WHERE NOT EXISTS (SELECT FROM fenced.forgotten_write);
CREATE TABLE IF NOT EXISTS fenced.reset_log (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  resource text COLLATE "C" NOT NULL,
  token_before bigint,
  token_after bigint NOT NULL,
  reason text NOT NULL CHECK (reason <> ''),
  by_role name NOT NULL DEFAULT session_user,
  at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE IF NOT EXISTS fenced.record (
  collection text COLLATE "C" NOT NULL CHECK (octet_length(collection) BETWEEN 1 AND 1024),
  id text COLLATE "C" NOT NULL CHECK (octet_length(id) BETWEEN 1 AND 1024),
  body jsonb,
  token bigint NOT NULL CHECK (token > 0),
  version bigint NOT NULL,
  write_id uuid,
  PRIMARY KEY (collection, id)
) WITH (fillfactor = 70);
CREATE OR REPLACE FUNCTION fenced.version() RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT 6';
DO $$
BEGIN
  IF to_regprocedure('fenced.installation()') IS NULL THEN
    EXECUTE format('CREATE FUNCTION fenced.installation() RETURNS text LANGUAGE sql IMMUTABLE AS %L',
      format('SELECT %L', gen_random_uuid()));
  END IF;
END
$$;
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
    EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER refuse_lower', target);
  END LOOP;
END
$$;
CREATE OR REPLACE FUNCTION fenced.floor_of(resource text) RETURNS bigint
LANGUAGE sql STABLE AS $$ SELECT coalesce(max(f.token), 0) FROM fenced.floor f
  WHERE starts_with(floor_of.resource COLLATE "C", f.prefix) $$;
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
    EXIT WHEN FOUND;
  END LOOP;
END
$$;
CREATE OR REPLACE FUNCTION fenced.presented() RETURNS jsonb
LANGUAGE sql STABLE AS $$ SELECT CASE
  WHEN split_part(current_setting('fenced.presented', true), '{', 1) = extract(epoch FROM now())::text
  THEN substr(current_setting('fenced.presented'),
    strpos(current_setting('fenced.presented'), '{'))::jsonb END $$;
CREATE OR REPLACE FUNCTION fenced.stricter(setting text, ms integer) RETURNS text
LANGUAGE sql STABLE AS $$ SELECT least(ms,
  nullif(extract(epoch FROM current_setting(setting)::interval) * 1000, 0)::integer)::text $$;
CREATE OR REPLACE FUNCTION fenced.left_ms(ends timestamptz) RETURNS integer
LANGUAGE sql
AS $$ SELECT greatest(1, ceil(extract(epoch FROM ends - clock_timestamp()) * 1000))::integer $$;
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
    own := ARRAY[coalesce(nullif(current_setting('tcp_user_timeout')::integer, 0), most),
      fenced.stricter(main, most)::integer, fenced.stricter('statement_timeout', most)::integer];
    PERFORM set_config('fenced.limits', own::text, true);
  END IF;
  PERFORM set_config('tcp_user_timeout', least(ms, own[1])::text, true);
  IF is_whole THEN
    PERFORM set_config(main, '0', true), set_config(main, least(ms, own[2])::text, true);
  ELSE
    PERFORM set_config(main, least(ms, own[2])::text, true),
      set_config('statement_timeout', least(ms, own[3])::text, true);
  END IF;
END
$$;
CREATE OR REPLACE FUNCTION fenced.present(resources text[], token bigint,
  hold_ms integer DEFAULT NULL, write_id uuid DEFAULT NULL, read_committed boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  ends CONSTANT timestamptz := clock_timestamp() + hold_ms * interval '1 ms';
  name text COLLATE "C";
BEGIN
  IF read_committed AND (current_setting('transaction_isolation') <> 'read committed'
      OR current_setting('transaction_read_only')::boolean) THEN
    RAISE EXCEPTION 'the transaction is not READ COMMITTED, READ WRITE' USING ERRCODE = 'UF004';
  END IF;
  FOR name IN SELECT DISTINCT n COLLATE "C" FROM unnest(resources) n ORDER BY 1 LOOP
    IF hold_ms IS NOT NULL THEN
      PERFORM set_config('lock_timeout',
        fenced.stricter('lock_timeout', fenced.left_ms(ends)), true);
    END IF;
    PERFORM fenced.advance(name, present.token);
  END LOOP;
  PERFORM set_config('fenced.presented', concat(extract(epoch FROM now()),
    coalesce(fenced.presented(), '{}')
      || (SELECT jsonb_object_agg(n, present.token) FROM unnest(resources) n)), true);
  IF hold_ms IS NOT NULL THEN
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
CREATE OR REPLACE FUNCTION fenced.highest(resource text) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT coalesce(
  (SELECT r.token FROM fenced.ratchet r WHERE r.resource = highest.resource COLLATE "C"),
  fenced.floor_of(highest.resource)) $$;
CREATE OR REPLACE FUNCTION fenced.confirm(started xid8) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF started IS DISTINCT FROM pg_current_xact_id() THEN
    RAISE EXCEPTION 'the transaction that presented the fencing token has ended'
      USING ERRCODE = 'UF003';
  END IF;
END
$$;
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
  PERFORM pg_logical_emit_message(true, 'fenced', '');
  RETURN CASE applied WHEN true THEN 'applied' WHEN false THEN 'not-applied' ELSE 'unknown' END;
EXCEPTION WHEN lock_not_available THEN
  RETURN 'unknown';
END
$$;
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
CREATE OR REPLACE FUNCTION fenced.prune(prefix text, older_than interval, page bigint DEFAULT 0,
  pages integer DEFAULT 4, OUT pruned bigint, OUT next_page bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  advanced_before CONSTANT timestamptz := fenced.advanced_before(prefix, older_than);
  floor CONSTANT bigint := fenced.floor_of(prefix);
  locked text[] COLLATE "C";
BEGIN
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
  DELETE FROM fenced.ratchet r
    WHERE r.resource = ANY (locked) AND r.advanced_at < advanced_before AND r.token <= floor;
  GET DIAGNOSTICS pruned = ROW_COUNT;
  next_page := page + pages;
  IF next_page * current_setting('block_size')::bigint >= pg_relation_size('fenced.ratchet') THEN
    next_page := NULL;
  END IF;
END
$$;
CREATE OR REPLACE FUNCTION fenced.require(resource text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  presented CONSTANT text := fenced.presented() ->> resource;
BEGIN
  IF presented IS NULL THEN
    RAISE EXCEPTION 'this row may be written only with a fencing token'
      USING ERRCODE = 'UF002', DETAIL = json_build_object('resource', resource),
        HINT = 'Before the statement, in its transaction: SELECT fenced.present(resource, token)';
  END IF;
  PERFORM fenced.advance(resource, presented::bigint);
END
$$;
CREATE OR REPLACE FUNCTION fenced.refuse_truncate() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION 'a guarded table may not be truncated' USING ERRCODE = 'UF002',
    HINT = 'Present the tokens of its rows and DELETE them, or call fenced.unguard first';
END
$$;
CREATE OR REPLACE FUNCTION fenced.trigger_revokes(target regclass) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT string_agg(format('REVOKE TRIGGER ON %s FROM %s', c.oid::regclass, coalesce(quote_ident(r.rolname), 'PUBLIC')), '; ')
    FROM pg_class c, aclexplode(c.relacl) a LEFT JOIN pg_roles r ON r.oid = a.grantee
    WHERE (c.oid = target OR c.oid IN (SELECT relid FROM pg_partition_tree(target)))
      AND a.privilege_type = 'TRIGGER' AND a.grantee <> c.relowner AND r.rolsuper IS NOT TRUE
$$;
CREATE OR REPLACE FUNCTION fenced.resolved(reading regclass) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
SET DateStyle = 'ISO, MDY' SET IntervalStyle = 'postgres' SET TimeZone = 'UTC' SET bytea_output = 'hex'
SET extra_float_digits = 1 SET standard_conforming_strings = on SET quote_all_identifiers = off
SET transform_null_equals = off SET array_nulls = on SET xmlbinary = 'base64' SET xmloption = 'content'
SET lc_monetary = 'C' SET lc_numeric = 'C' SET lc_time = 'C' SET default_text_search_config = 'pg_catalog.simple'
AS $$ SELECT substring(pg_get_viewdef(reading) FROM '^\s*SELECT (.*) AS fenced_resource\s+FROM ONLY ') $$;
CREATE OR REPLACE FUNCTION fenced.guard_by_path(target regclass, expression text, path text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $guard$
DECLARE
  relation record;
  routine text;
  reading text;
  resource text;
  settings text;
  part record;
  partition regclass;
BEGIN
  SELECT c.relname, c.relkind, c.relowner, n.nspname, pg_get_userbyid(c.relowner) AS owner INTO STRICT relation
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = target;
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
  reading := format(E'CREATE VIEW %s AS SELECT (%s\n)::pg_catalog.text AS fenced_resource FROM ONLY %s AS %I',
    routine, expression, target, relation.relname);
  PERFORM set_config('search_path', path, true);
  EXECUTE reading;
  PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
  FOR part IN
    WITH RECURSIVE used (classid, objid) AS (
      SELECT d.refclassid, d.refobjid FROM pg_depend d JOIN pg_rewrite v ON d.classid = 'pg_rewrite'::regclass AND d.objid = v.oid
        WHERE v.ev_class = routine::regclass AND d.deptype = 'n' AND d.refobjid NOT IN (target, v.ev_class)
      UNION SELECT d.refclassid, d.refobjid FROM used u JOIN pg_depend d USING (classid, objid)
        WHERE d.deptype = 'n' AND d.refclassid <> 'pg_namespace'::regclass)
    SELECT pg_describe_object(u.classid, u.objid, 0) AS name, r.rolname AS stranger
      FROM used u
      LEFT JOIN pg_shdepend o ON o.classid = u.classid AND o.objid = u.objid AND o.deptype = 'o'
        AND o.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
      LEFT JOIN pg_roles r ON r.oid = o.refobjid AND r.oid <> relation.relowner AND NOT r.rolsuper
      LEFT JOIN pg_proc p ON u.classid = 'pg_proc'::regclass AND p.oid = u.objid AND p.prokind = 'f' AND p.prosqlbody IS NULL
        AND p.prolang NOT IN (SELECT oid FROM pg_language WHERE lanname IN ('internal', 'c'))
        AND NOT EXISTS (SELECT FROM unnest(p.proconfig) c WHERE starts_with(c, 'search_path='))
      WHERE r.oid IS NOT NULL OR p.oid IS NOT NULL
  LOOP
    IF part.stranger IS NOT NULL THEN
      RAISE EXCEPTION 'the expression uses the % of the role %', part.name, quote_ident(part.stranger)
        USING ERRCODE = 'invalid_object_definition',
          HINT = 'Name what is meant with its schema: OPERATOR(pg_catalog.||), pg_catalog.concat(). Or give it to the table''s owner.';
    END IF;
    RAISE EXCEPTION 'the expression uses the %, which has no search_path of its own', part.name
      USING ERRCODE = 'invalid_object_definition', HINT = format('ALTER %s SET search_path = pg_catalog, pg_temp', part.name);
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
  EXECUTE format('CREATE VIEW %s AS SELECT %s FROM (SELECT r.* FROM ONLY %s AS r) AS %I', routine, resource, target, relation.relname);
  EXECUTE format('DROP VIEW %s', routine);
  settings := (SELECT string_agg(format('SET %s = %L', split_part(c, '=', 1), substr(c, strpos(c, '=') + 1)), ' ')
    FROM pg_proc, unnest(proconfig) AS c WHERE oid = 'fenced.resolved(regclass)'::regprocedure AND NOT starts_with(c, 'search_path='));
  EXECUTE format($create$
    CREATE FUNCTION %1$s() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp %3$s AS %2$L
    $create$, routine, format($body$
#variable_conflict use_column
DECLARE
  installation_ CONSTANT text := %3$L;
  resource_before_ text COLLATE "C";
  resource_after_ text COLLATE "C";
  done_ text;
BEGIN
  IF TG_OP <> 'INSERT' THEN
    resource_before_ := (SELECT %1$s FROM (SELECT OLD.*) AS %2$I);
    done_ := fenced.require(resource_before_);
  END IF;
  IF TG_OP <> 'DELETE' THEN
    resource_after_ := (SELECT %1$s FROM (SELECT NEW.*) AS %2$I);
    IF TG_OP = 'INSERT' OR resource_after_ IS DISTINCT FROM resource_before_ THEN
      done_ := fenced.require(resource_after_);
    END IF;
  END IF;
  RETURN NULL;
END
    $body$, resource, relation.relname, fenced.installation()), settings);
  EXECUTE format('REVOKE ALL ON FUNCTION %s() FROM PUBLIC', routine);
  IF relation.owner <> current_user THEN
    EXECUTE format('ALTER FUNCTION %s() OWNER TO %I', routine, relation.owner);
  END IF;
  EXECUTE format('CREATE CONSTRAINT TRIGGER fenced_guard AFTER INSERT OR UPDATE OR DELETE ON %s
    NOT DEFERRABLE FOR EACH ROW EXECUTE FUNCTION %s(%L, %L)',
    target, routine, fenced.digest(format('%s()', routine)::regprocedure), expression);
  FOR partition IN SELECT target UNION SELECT relid FROM pg_partition_tree(target) LOOP
    EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER fenced_guard', partition);
    EXECUTE format('CREATE TRIGGER fenced_guard_truncate BEFORE TRUNCATE ON %s EXECUTE FUNCTION fenced.refuse_truncate()', partition);
    EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER fenced_guard_truncate', partition);
  END LOOP;
END
$guard$;
CREATE OR REPLACE FUNCTION fenced.guard(target regclass, expression text) RETURNS void
LANGUAGE sql VOLATILE
RETURN fenced.guard_by_path(target, expression, pg_catalog.current_setting('search_path'));
CREATE OR REPLACE FUNCTION fenced.digest(routine regprocedure) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS 'SELECT md5(pg_get_functiondef(routine))';
CREATE OR REPLACE FUNCTION fenced.guards() RETURNS TABLE (target regclass, expression text, problem text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT c.oid::regclass,
    CASE WHEN t.tgnargs = 2 THEN convert_from(substr(t.tgargs, 34, length(t.tgargs) - 34), getdatabaseencoding()) END,
    nullif(concat_ws('; ',
      CASE WHEN t.oid IS NULL THEN 'its trigger is gone'
        WHEN t.tgconstraint = 0 OR t.tgnargs <> 2 THEN 'an earlier version made it, or somebody else: call fenced.guard again'
        WHEN p.proowner <> c.relowner THEN 'its function does not belong to the owner of the table'
        WHEN fenced.digest(p.oid) <> convert_from(substr(t.tgargs, 1, 32), 'SQL_ASCII') THEN 'its function was changed'
        WHEN substring(p.prosrc FROM '\n  installation_ CONSTANT text := ''([0-9a-f-]{36})'';') <> fenced.installation()
          THEN 'it was made for the ratchets of another installation, so tokens may be missing: present the latest ones, and call fenced.guard again' END,
      (SELECT 'rows are not guarded in ' || string_agg(r.oid::regclass::text, ', ')
        FROM pg_class r WHERE t.oid IS NOT NULL AND (r.oid = c.oid OR r.oid IN (SELECT relid FROM pg_partition_tree(c.oid)))
          AND NOT EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = r.oid AND g.tgname = 'fenced_guard' AND g.tgfoid = t.tgfoid
            AND g.tgenabled = 'A' AND g.tgtype = 29 AND g.tgqual IS NULL AND cardinality(g.tgattr::int2[]) = 0)),
      (SELECT 'TRUNCATE is not refused of ' || string_agg(r.oid::regclass::text, ', ')
        FROM pg_class r WHERE (r.oid = c.oid OR r.oid IN (SELECT relid FROM pg_partition_tree(c.oid)))
          AND NOT EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = r.oid AND g.tgname = 'fenced_guard_truncate'
            AND g.tgfoid = 'fenced.refuse_truncate()'::regprocedure AND g.tgenabled = 'A' AND g.tgtype = 34 AND g.tgqual IS NULL)),
      'other roles may create triggers: ' || fenced.trigger_revokes(c.oid),
      CASE WHEN NOT has_function_privilege(c.relowner, 'fenced.advance(text, bigint)', 'EXECUTE')
        THEN 'the owner of the table may not present tokens' END), '')
    FROM pg_class c
    LEFT JOIN pg_trigger t ON t.tgrelid = c.oid AND t.tgname = 'fenced_guard' AND t.tgparentid = 0
    LEFT JOIN pg_proc p ON p.oid = t.tgfoid
    WHERE c.relkind IN ('r', 'p') AND (t.oid IS NOT NULL
      OR EXISTS (SELECT FROM pg_proc o WHERE o.proname = 'fenced_guard_' || c.oid AND o.proowner = c.relowner))
    ORDER BY 1
$$;
CREATE OR REPLACE FUNCTION fenced.unguard(target regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  named CONSTANT oid := (SELECT tgfoid FROM pg_trigger WHERE tgrelid = target AND tgname = 'fenced_guard');
  routine regprocedure;
  partition regclass;
BEGIN
  FOR partition IN SELECT target UNION SELECT relid FROM pg_partition_tree(target) LOOP
    EXECUTE format('DROP TRIGGER IF EXISTS fenced_guard_truncate ON %s', partition);
  END LOOP;
  EXECUTE format('DROP TRIGGER IF EXISTS fenced_guard ON %s', target);
  FOR routine IN SELECT p.oid FROM pg_proc p JOIN pg_class c ON c.oid = target JOIN pg_roles r ON r.oid = p.proowner
      WHERE p.pronargs = 0 AND (p.proname = 'fenced_guard_' || target::oid OR p.oid = named AND p.proname ~ '^fenced_guard_[0-9]+$')
        AND (r.oid = c.relowner OR r.rolsuper) LOOP
    EXECUTE format('DROP FUNCTION %s', routine);
  END LOOP;
END
$$;
CREATE OR REPLACE FUNCTION fenced.version_of(number bigint, write_id uuid) RETURNS text
LANGUAGE sql STABLE AS $$ SELECT concat(number, '-', write_id) $$;
CREATE OR REPLACE FUNCTION fenced.put_record(collection text, id text, body jsonb, token bigint,
  write_id uuid, expected text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  written text;
BEGIN
  INSERT INTO fenced.record AS r (collection, id, body, token, version, write_id)
    SELECT put_record.collection, put_record.id, put_record.body, put_record.token, 1,
      coalesce(put_record.write_id, gen_random_uuid())
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
CREATE OR REPLACE FUNCTION fenced.get_record(collection text, id text)
RETURNS TABLE (body text, token bigint, version text, write_id uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT r.body::text, r.token, fenced.version_of(r.version, r.write_id), r.write_id
  FROM fenced.record r
  WHERE r.collection = get_record.collection COLLATE "C" AND r.id = get_record.id COLLATE "C" $$;
CREATE OR REPLACE FUNCTION fenced.writer_functions() RETURNS text
LANGUAGE sql IMMUTABLE AS $$ SELECT 'fenced.advance(text, bigint), fenced.present(text, bigint),
  fenced.present(text[], bigint, integer, uuid, boolean), fenced.highest(text),
  fenced.settle(uuid, integer), fenced.put_record(text, text, jsonb, bigint, uuid, text),
  fenced.claim_record(text, text, bigint), fenced.get_record(text, text)' $$;
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
