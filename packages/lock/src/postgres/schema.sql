-- Leases of @fenced/lock for PostgreSQL 14 and later. Running this file again changes nothing.
-- `psql --single-transaction -f schema.sql`, or `install()` of PostgresLock, which is the same.

-- No function, operator or type of another role takes part in what follows: the path has only those
-- of PostgreSQL. The last statement of this file puts the path back.
SELECT pg_catalog.set_config('fenced.search_path', pg_catalog.current_setting('search_path'), false);
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);

-- Two processes that install at once take turns. The number is the word "lease" in ASCII.
SELECT pg_advisory_xact_lock(465541559141);

-- Whoever owns an object can replace it later by one that harms the role that runs this file.
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

CREATE SCHEMA IF NOT EXISTS fenced_lock;

-- One row for each resource that was ever locked. It is never deleted: a forgotten token could be given again.
CREATE TABLE IF NOT EXISTS fenced_lock.lease (
  resource text PRIMARY KEY CHECK (octet_length(resource) BETWEEN 1 AND 4096),
  token bigint NOT NULL,
  -- Of the attempt that holds it, or held it last; NULL once it was released.
  owner text,
  ends_at timestamptz NOT NULL
) WITH (fillfactor = 70);

-- Takes all resources or none. Gives the token, or NULL and the milliseconds until the last of those in the way ends.
-- The token is above all earlier ones of each resource; and, where no first one is given, not below the clock's microseconds, so
-- that it also grows where an asynchronous replica took over that lacks the last rows.
-- Time is read after the wait for the rows: now() would be the time when the transaction began.
CREATE OR REPLACE FUNCTION fenced_lock.acquire(resources text[], owner text, ttl_ms integer, first_token bigint)
RETURNS TABLE (token bigint, held_ms bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  highest bigint;
  busy_until timestamptz;
BEGIN
  INSERT INTO fenced_lock.lease AS l (resource, token, ends_at)
    SELECT r COLLATE "C", 0, '-infinity' FROM unnest(resources) r ORDER BY 1 ON CONFLICT DO NOTHING;
  -- In one order for all, so that sets which share some cannot deadlock over them.
  PERFORM FROM fenced_lock.lease l WHERE l.resource = ANY (resources) ORDER BY l.resource COLLATE "C" FOR UPDATE;
  SELECT max(l.token), max(l.ends_at) FILTER (WHERE l.owner IS NOT NULL) INTO highest, busy_until
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

-- Lets a lease that still holds all its resources last at least so long from now on. False where it is over: it is never taken back.
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

-- Gives up what is still held, and wakes who waits for it. False where some of it was over before.
CREATE OR REPLACE FUNCTION fenced_lock.release(resources text[], owner text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  held bigint;
BEGIN
  PERFORM FROM fenced_lock.lease l WHERE l.resource = ANY (resources) ORDER BY l.resource COLLATE "C" FOR UPDATE;
  SELECT count(*) INTO held FROM fenced_lock.lease l
    WHERE l.resource = ANY (resources) AND l.owner = release.owner AND l.ends_at > clock_timestamp();
  UPDATE fenced_lock.lease l SET owner = NULL WHERE l.resource = ANY (resources) AND l.owner = release.owner;
  IF FOUND THEN
    PERFORM pg_notify('fenced_lock', r) FROM unnest(resources) r;
  END IF;
  RETURN held = cardinality(resources);
END
$$;

-- Nobody but the owner may lock anything at first: GRANT USAGE ON SCHEMA fenced_lock TO app;
-- GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA fenced_lock TO app. Rights that were given before stay.
DO $$
DECLARE
  routine regprocedure;
BEGIN
  FOR routine IN SELECT oid FROM pg_proc WHERE pronamespace = 'fenced_lock'::regnamespace AND proacl IS NULL LOOP
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', routine);
  END LOOP;
END
$$;

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('fenced.search_path'), false);
