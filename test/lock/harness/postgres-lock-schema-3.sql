-- Leases of @fenced/lock, for PostgreSQL 14 and later.
--
-- Install it by `psql --single-transaction -f schema.sql`, or by install() of PostgresLock. A
-- second run changes nothing. Version 2 is upgraded; other versions are refused.

-- The search path has no schema but PostgreSQL's, so no function, operator or type of another role
-- takes part. The last statement of this file restores the path.
SELECT pg_catalog.set_config('fenced.search_path', pg_catalog.current_setting('search_path'), false);
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);

-- Serializes installations until the transaction ends. The number is "lease" in ASCII.
SELECT pg_advisory_xact_lock(465541559141);

DO $$
DECLARE
  schema CONSTANT oid := to_regnamespace('fenced_lock');
  stranger name;
  installed integer;
BEGIN
  -- The owner of an object can later replace it by one that harms the role that runs this file.
  SELECT r.rolname INTO stranger FROM pg_roles r
    WHERE NOT r.rolsuper AND r.rolname <> current_user AND r.oid IN (
      SELECT nspowner FROM pg_namespace WHERE oid = schema
      UNION SELECT proowner FROM pg_proc WHERE pronamespace = schema
      UNION SELECT relowner FROM pg_class WHERE relnamespace = schema);
  IF FOUND THEN
    RAISE EXCEPTION 'the schema "fenced_lock", or a part of it, belongs to the role %',
        quote_ident(stranger)
      USING ERRCODE = 'insufficient_privilege',
        HINT = format('Install as that role: SET ROLE %I', stranger);
  END IF;
  -- Reads the number in the function's source, without calling the function.
  SELECT substring(prosrc FROM '[0-9]+')::integer INTO installed
    FROM pg_proc WHERE oid = to_regprocedure('fenced_lock.version()');
  IF installed NOT IN (2, 3) THEN
    RAISE EXCEPTION 'the schema "fenced_lock" has version %, this file is version 3', installed
      USING HINT = CASE WHEN installed > 3 THEN 'Use the library of that version.'
        ELSE 'Wait until its leases are over, then DROP SCHEMA fenced_lock CASCADE.' END;
  END IF;
  IF installed = 2 THEN
    DROP FUNCTION fenced_lock.acquire(text[], text, integer, bigint),
      fenced_lock.acquire_or_await(text[], text, integer, bigint);
  END IF;
END
$$;

CREATE SCHEMA IF NOT EXISTS fenced_lock;

CREATE OR REPLACE FUNCTION fenced_lock.version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 3';

-- One row for each resource that was locked, until it is forgotten.
CREATE TABLE IF NOT EXISTS fenced_lock.lease (
  resource text PRIMARY KEY CHECK (octet_length(resource) BETWEEN 1 AND 4096),
  token bigint NOT NULL,
  -- The acquisition that holds the lease, or held it last. NULL after its release.
  owner text,
  ends_at timestamptz NOT NULL,
  -- Until then, a release is notified, because a client waits.
  awaited_until timestamptz
) WITH (fillfactor = 70);

-- One row. Invariant: no forgotten resource ever had a token above this one.
CREATE TABLE IF NOT EXISTS fenced_lock.floor (
  single boolean PRIMARY KEY DEFAULT true CHECK (single),
  token bigint NOT NULL,
  -- The start of the last round of forgetting.
  raised_at timestamptz NOT NULL
);
INSERT INTO fenced_lock.floor (token, raised_at) VALUES (0, clock_timestamp()) ON CONFLICT DO NOTHING;

-- Acquires all resources or none. Gives the token, or NULL and the milliseconds until the last
-- lease in the way ends. If the caller waits, the releases of these leases are notified for 10
-- seconds.
--
-- Invariant: the token is above all earlier ones of each resource, also if it was forgotten.
-- Without a first token, it is at least the clock in microseconds. So it also grows over a failover
-- to an asynchronous replica, which lacks the last rows.
--
-- clock_timestamp() is read after the wait for the rows. now() would be a time before that wait.
CREATE OR REPLACE FUNCTION fenced_lock.acquire(resources text[], owner text, ttl_ms integer,
  first_token bigint DEFAULT NULL, waits boolean DEFAULT false)
RETURNS TABLE (token bigint, held_ms bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  inserted bigint;
  locked bigint;
  highest bigint;
  busy_until timestamptz;
BEGIN
  INSERT INTO fenced_lock.lease AS l (resource, token, ends_at)
    SELECT r COLLATE "C", 0, '-infinity' FROM unnest(resources) r ORDER BY 1 ON CONFLICT DO NOTHING;
  GET DIAGNOSTICS inserted = ROW_COUNT;
  -- In one order for all, so that sets which share some resources cannot deadlock over them.
  PERFORM FROM fenced_lock.lease l
    WHERE l.resource = ANY (resources) ORDER BY l.resource COLLATE "C" FOR UPDATE;
  GET DIAGNOSTICS locked = ROW_COUNT;
  IF locked < (SELECT count(DISTINCT r) FROM unnest(resources) r) THEN
    -- Inserting the missing row now, while the other rows are locked, could deadlock.
    RAISE EXCEPTION 'a resource was forgotten during the wait for it: try again'
      USING ERRCODE = 'serialization_failure';
  END IF;
  -- The floor was raised before any of these resources was forgotten, so the next statement sees
  -- it. On levels above READ COMMITTED, the transaction has one snapshot, which may be older than
  -- the floor. In that case, locking the floor's row fails.
  IF inserted > 0 AND current_setting('transaction_isolation') <> 'read committed' THEN
    PERFORM FROM fenced_lock.floor FOR SHARE;
  END IF;
  SELECT greatest(max(l.token), (SELECT f.token FROM fenced_lock.floor f)),
      max(l.ends_at) FILTER (WHERE l.owner IS NOT NULL)
    INTO highest, busy_until FROM fenced_lock.lease l WHERE l.resource = ANY (resources);
  IF busy_until > clock_timestamp() THEN
    held_ms := ceil(extract(epoch FROM busy_until - clock_timestamp()) * 1000);
    UPDATE fenced_lock.lease l SET awaited_until = clock_timestamp() + interval '10 s'
      WHERE waits AND l.resource = ANY (resources)
        AND (l.awaited_until < clock_timestamp() + interval '5 s') IS NOT FALSE;
  ELSE
    token := greatest(highest + 1,
      coalesce(first_token, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint));
    UPDATE fenced_lock.lease l SET token = acquire.token, owner = acquire.owner,
        ends_at = clock_timestamp() + ttl_ms * interval '1 ms'
      WHERE l.resource = ANY (resources);
  END IF;
  RETURN NEXT;
END
$$;

-- Locks the rows. Returns whether the owner still holds all of them.
CREATE OR REPLACE FUNCTION fenced_lock.lock_held(resources text[], owner text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM FROM fenced_lock.lease l
    WHERE l.resource = ANY (resources) ORDER BY l.resource COLLATE "C" FOR UPDATE;
  RETURN (SELECT count(*) = cardinality(resources) FROM fenced_lock.lease l
    WHERE l.resource = ANY (resources) AND l.owner = lock_held.owner
      AND l.ends_at > clock_timestamp());
END
$$;

-- Lets a lease last at least `ttl_ms` from now on. False if the lease of one of the resources is
-- over. Then none is extended.
CREATE OR REPLACE FUNCTION fenced_lock.extend(resources text[], owner text, ttl_ms integer)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT fenced_lock.lock_held(resources, owner) THEN
    RETURN false;
  END IF;
  UPDATE fenced_lock.lease l
    SET ends_at = greatest(l.ends_at, clock_timestamp() + ttl_ms * interval '1 ms')
    WHERE l.resource = ANY (resources);
  RETURN true;
END
$$;

-- Ends a lease. False if the lease of one of the resources was over before. Notifies only if a
-- client waits, because the server runs commits that notify one at a time.
CREATE OR REPLACE FUNCTION fenced_lock.release(resources text[], owner text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  was_held CONSTANT boolean := fenced_lock.lock_held(resources, owner);
BEGIN
  UPDATE fenced_lock.lease l SET owner = NULL, ends_at = least(l.ends_at, clock_timestamp())
    WHERE l.resource = ANY (resources) AND l.owner = release.owner;
  IF FOUND THEN
    PERFORM pg_notify('fenced_lock', l.resource) FROM fenced_lock.lease l
      WHERE l.resource = ANY (resources) AND l.awaited_until > clock_timestamp();
  END IF;
  RETURN was_held;
END
$$;

-- Begins a round of forgetting: raises the floor to the highest token of all resources. False if
-- the last round began less than `every_ms` ago. So of many processes, one forgets.
CREATE OR REPLACE FUNCTION fenced_lock.raise_floor(every_ms bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  UPDATE fenced_lock.floor f SET raised_at = clock_timestamp(),
      token = greatest(f.token, (SELECT max(l.token) FROM fenced_lock.lease l))
    -- A time in the future comes from a clock that was set back.
    WHERE f.raised_at NOT BETWEEN clock_timestamp() - every_ms * interval '1 ms' AND clock_timestamp();
  RETURN FOUND;
END
$$;

-- Forgets resources in these pages of the table. Their leases ended more than `older_than_ms` ago,
-- and their tokens are not above the floor. A resource in use is passed over. Gives the number of
-- forgotten ones, and the next page; NULL after the last.
CREATE OR REPLACE FUNCTION fenced_lock.forget(older_than_ms bigint, page bigint, pages integer)
RETURNS TABLE (forgotten bigint, next_page bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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

-- At first only the owner may lock. To let a role lock: GRANT USAGE ON SCHEMA fenced_lock TO app;
-- GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA fenced_lock TO app. Earlier rights stay. A role that may
-- release may also run the functions that an upgrade adds.
DO $$
DECLARE
  routine regprocedure;
  role text;
BEGIN
  FOR routine IN SELECT oid FROM pg_proc
      WHERE pronamespace = 'fenced_lock'::regnamespace AND proacl IS NULL LOOP
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', routine);
    FOR role IN
      SELECT CASE granted.grantee WHEN 0 THEN 'PUBLIC' ELSE granted.grantee::regrole::text END
        FROM pg_proc p, aclexplode(p.proacl) granted
        WHERE p.oid = 'fenced_lock.release(text[], text)'::regprocedure
          AND granted.grantee <> p.proowner
    LOOP
      EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', routine, role);
    END LOOP;
  END LOOP;
END
$$;

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('fenced.search_path'), false);
