-- schema.sql of version 2, without its comments.
SELECT pg_catalog.set_config('fenced.search_path', pg_catalog.current_setting('search_path'), false);
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);
SELECT pg_advisory_xact_lock(465541559141);
DO $$
DECLARE
  schema CONSTANT oid := to_regnamespace('fenced_lock');
  stranger name;
BEGIN
  SELECT r.rolname INTO stranger FROM pg_roles r WHERE NOT r.rolsuper AND r.rolname <> current_user AND r.oid IN (
    SELECT nspowner FROM pg_namespace WHERE oid = schema
    UNION SELECT proowner FROM pg_proc WHERE pronamespace = schema
    UNION SELECT relowner FROM pg_class WHERE relnamespace = schema);
  IF FOUND THEN
    RAISE EXCEPTION 'the schema "fenced_lock", or a part of it, belongs to the role %', quote_ident(stranger)
      USING ERRCODE = 'insufficient_privilege', HINT = format('Install as that role: SET ROLE %I', stranger);
  END IF;
END
$$;
DO $$
BEGIN
  IF to_regprocedure('fenced_lock.version()') IS NOT NULL THEN
    IF fenced_lock.version() > 2 THEN
      RAISE EXCEPTION 'the schema "fenced_lock" has version %, this file is version 2', fenced_lock.version();
    END IF;
  END IF;
END
$$;
CREATE SCHEMA IF NOT EXISTS fenced_lock;
CREATE OR REPLACE FUNCTION fenced_lock.version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 2';
CREATE TABLE IF NOT EXISTS fenced_lock.lease (
  resource text PRIMARY KEY CHECK (octet_length(resource) BETWEEN 1 AND 4096),
  token bigint NOT NULL,
  owner text,
  ends_at timestamptz NOT NULL
) WITH (fillfactor = 70);
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'fenced_lock.lease'::regclass AND attname = 'awaited_until') THEN
    ALTER TABLE fenced_lock.lease ADD COLUMN awaited_until timestamptz;
  END IF;
END
$$;
CREATE TABLE IF NOT EXISTS fenced_lock.floor (
  single boolean PRIMARY KEY DEFAULT true CHECK (single),
  token bigint NOT NULL,
  raised_at timestamptz NOT NULL
);
INSERT INTO fenced_lock.floor (token, raised_at) VALUES (0, clock_timestamp()) ON CONFLICT DO NOTHING;
CREATE OR REPLACE FUNCTION fenced_lock.acquire(resources text[], owner text, ttl_ms integer, first_token bigint)
RETURNS TABLE (token bigint, held_ms bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  inserted bigint;
  locked bigint;
  highest bigint;
  busy_until timestamptz;
BEGIN
  INSERT INTO fenced_lock.lease AS l (resource, token, ends_at)
    SELECT r COLLATE "C", 0, '-infinity' FROM unnest(resources) r ORDER BY 1 ON CONFLICT DO NOTHING;
  GET DIAGNOSTICS inserted = ROW_COUNT;
  PERFORM FROM fenced_lock.lease l WHERE l.resource = ANY (resources) ORDER BY l.resource COLLATE "C" FOR UPDATE;
  GET DIAGNOSTICS locked = ROW_COUNT;
  IF locked < cardinality(resources) THEN
    IF locked < (SELECT count(DISTINCT r) FROM unnest(resources) r) THEN
      RAISE EXCEPTION 'a resource was forgotten while it was waited for: try again' USING ERRCODE = 'serialization_failure';
    END IF;
  END IF;
  IF inserted > 0 AND current_setting('transaction_isolation') <> 'read committed' THEN
    PERFORM FROM fenced_lock.floor FOR SHARE;
  END IF;
  SELECT greatest(max(l.token), (SELECT f.token FROM fenced_lock.floor f)), max(l.ends_at) FILTER (WHERE l.owner IS NOT NULL) INTO highest, busy_until
    FROM fenced_lock.lease l WHERE l.resource = ANY (resources);
  IF busy_until > clock_timestamp() THEN
    held_ms := ceil(extract(epoch FROM busy_until - clock_timestamp()) * 1000);
  ELSE
    token := greatest(highest + 1, coalesce(first_token, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint));
    UPDATE fenced_lock.lease l SET token = acquire.token, owner = acquire.owner, ends_at = clock_timestamp() + ttl_ms * interval '1 ms'
      WHERE l.resource = ANY (resources);
  END IF;
  RETURN NEXT;
END
$$;
CREATE OR REPLACE FUNCTION fenced_lock.acquire_or_await(resources text[], owner text, ttl_ms integer, first_token bigint)
RETURNS TABLE (token bigint, held_ms bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  SELECT a.token, a.held_ms INTO token, held_ms
    FROM fenced_lock.acquire(resources, acquire_or_await.owner, ttl_ms, first_token) a;
  IF token IS NULL THEN
    UPDATE fenced_lock.lease l SET awaited_until = clock_timestamp() + interval '10 s'
      WHERE l.resource = ANY (resources) AND (l.awaited_until < clock_timestamp() + interval '5 s') IS NOT FALSE;
  END IF;
  RETURN NEXT;
END
$$;
CREATE OR REPLACE FUNCTION fenced_lock.extend(resources text[], owner text, ttl_ms integer) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  held bigint;
BEGIN
  PERFORM FROM fenced_lock.lease l WHERE l.resource = ANY (resources) ORDER BY l.resource COLLATE "C" FOR UPDATE;
  SELECT count(*) INTO held FROM fenced_lock.lease l
    WHERE l.resource = ANY (resources) AND l.owner = extend.owner AND l.ends_at > clock_timestamp();
  IF held < cardinality(resources) THEN
    RETURN false;
  END IF;
  UPDATE fenced_lock.lease l SET ends_at = greatest(l.ends_at, clock_timestamp() + ttl_ms * interval '1 ms')
    WHERE l.resource = ANY (resources);
  RETURN true;
END
$$;
CREATE OR REPLACE FUNCTION fenced_lock.release(resources text[], owner text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  held bigint;
BEGIN
  PERFORM FROM fenced_lock.lease l WHERE l.resource = ANY (resources) ORDER BY l.resource COLLATE "C" FOR UPDATE;
  SELECT count(*) INTO held FROM fenced_lock.lease l
    WHERE l.resource = ANY (resources) AND l.owner = release.owner AND l.ends_at > clock_timestamp();
  UPDATE fenced_lock.lease l SET owner = NULL, ends_at = least(l.ends_at, clock_timestamp()) WHERE l.resource = ANY (resources) AND l.owner = release.owner;
  IF FOUND THEN
    PERFORM pg_notify('fenced_lock', l.resource) FROM fenced_lock.lease l
      WHERE l.resource = ANY (resources) AND l.awaited_until > clock_timestamp();
  END IF;
  RETURN held = cardinality(resources);
END
$$;
CREATE OR REPLACE FUNCTION fenced_lock.raise_floor(every_ms bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  UPDATE fenced_lock.floor f
    SET token = greatest(f.token, (SELECT max(l.token) FROM fenced_lock.lease l)), raised_at = clock_timestamp()
    WHERE f.raised_at NOT BETWEEN clock_timestamp() - every_ms * interval '1 ms' AND clock_timestamp();
  RETURN FOUND;
END
$$;
CREATE OR REPLACE FUNCTION fenced_lock.forget(older_than_ms bigint, page bigint, pages integer)
RETURNS TABLE (forgotten bigint, next_page bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  IF older_than_ms < 0 OR page < 0 OR pages < 1 THEN
    RAISE EXCEPTION 'out of range' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  DELETE FROM fenced_lock.lease gone USING (
    SELECT l.ctid FROM fenced_lock.lease l
      WHERE l.ctid >= format('(%s,0)', page)::tid AND l.ctid < format('(%s,0)', page + pages)::tid
        AND l.ends_at < clock_timestamp() - older_than_ms * interval '1 ms'
        AND l.token <= (SELECT f.token FROM fenced_lock.floor f)
      FOR UPDATE SKIP LOCKED) old
    WHERE gone.ctid = old.ctid;
  GET DIAGNOSTICS forgotten = ROW_COUNT;
  next_page := page + pages;
  IF next_page * current_setting('block_size')::bigint >= pg_relation_size('fenced_lock.lease') THEN
    next_page := NULL;
  END IF;
  RETURN NEXT;
END
$$;
DO $$
DECLARE
  routine regprocedure;
  role text;
BEGIN
  FOR routine IN SELECT oid FROM pg_proc WHERE pronamespace = 'fenced_lock'::regnamespace AND proacl IS NULL LOOP
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', routine);
    FOR role IN
      SELECT CASE granted.grantee WHEN 0 THEN 'PUBLIC' ELSE granted.grantee::regrole::text END
        FROM pg_proc p, aclexplode(p.proacl) granted
        WHERE p.oid = 'fenced_lock.acquire(text[], text, integer, bigint)'::regprocedure AND granted.grantee <> p.proowner
    LOOP
      EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', routine, role);
    END LOOP;
  END LOOP;
END
$$;
SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('fenced.search_path'), false);
