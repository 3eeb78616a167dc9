-- The fencing ratchet of @fenced/store for PostgreSQL 14 and later. Running this file again changes nothing.
-- `psql --single-transaction -f schema.sql`, or `install()` of FencedPostgres, which is the same.
--
-- In the transaction of every fenced write, before its own statements: SELECT fenced.advance('invoice/42', 34);
-- Under REPEATABLE READ and SERIALIZABLE also call it once in a transaction of its own before that one, as the library does.
-- A transaction whose snapshot is older than its turn would not see what the holder before it wrote last.
--
-- SQLSTATEs: UF001 the token is stale · UF003 the transaction is not the one that presented the token.
-- No generic retry loop knows class UF, and none must: the same token stays stale for ever.

-- Two processes that install at once take turns; held until the transaction ends. The number is the word "fenced" in ASCII.
SELECT pg_advisory_xact_lock(112585829737828);

CREATE SCHEMA IF NOT EXISTS fenced;

-- The highest token that ever committed for each resource. Rows are never deleted: a forgotten token lets a stale writer in.
CREATE TABLE IF NOT EXISTS fenced.ratchet (
  resource text PRIMARY KEY CHECK (octet_length(resource) BETWEEN 1 AND 1024),
  token bigint NOT NULL CHECK (token > 0),
  advanced_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Which schema is installed. A library that needs a later one says so; install() never goes back to an earlier one.
CREATE OR REPLACE FUNCTION fenced.version() RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS 'SELECT 1';

-- Presents a token: raises UF001 where a higher one was presented before, with {"resource", "presented", "highest"} as DETAIL.
-- Otherwise the transaction holds its place until it ends: beside others with the same token, never beside another token.
--
-- Safety is the lock on the row of the ratchet alone, in every isolation level: shared where the token is equal, the
-- update itself where it is higher. A row that changed after our snapshot is read again under READ COMMITTED, and is
-- error 40001 under the other levels. A plain read decides only refusals, since tokens never fall.
--
-- Fairness is the advisory lock before it. Row locks let new sharers pass a writer that waits: without the queue of
-- advisory locks an old holder with overlapping transactions kept its successor waiting as long as it liked (measured
-- on PostgreSQL 15 and 18). Two resources whose hashes collide wait for each other, and nothing worse.
CREATE OR REPLACE FUNCTION fenced.advance(resource text, token bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  turn CONSTANT bigint := hashtextextended(advance.resource, 112585829737828);
  highest bigint;
BEGIN
  IF advance.resource IS NULL OR advance.token IS NULL OR advance.token < 1 THEN
    RAISE EXCEPTION 'a fencing token needs a resource and is a whole number from 1 to 9223372036854775807'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  LOOP
    SELECT r.token INTO highest FROM fenced.ratchet r WHERE r.resource = advance.resource;
    IF highest > advance.token THEN
      RAISE EXCEPTION 'stale fencing token'
        USING ERRCODE = 'UF001', DETAIL = json_build_object(
          'resource', advance.resource, 'presented', advance.token::text, 'highest', highest::text);
    ELSIF highest = advance.token THEN
      PERFORM pg_advisory_xact_lock_shared(turn);
      PERFORM FROM fenced.ratchet r WHERE r.resource = advance.resource AND r.token = advance.token FOR SHARE;
    ELSIF highest < advance.token THEN
      PERFORM pg_advisory_xact_lock(turn);
      UPDATE fenced.ratchet r SET token = advance.token, advanced_at = clock_timestamp()
        WHERE r.resource = advance.resource AND r.token < advance.token;
    ELSE
      PERFORM pg_advisory_xact_lock(turn);
      INSERT INTO fenced.ratchet (resource, token) VALUES (advance.resource, advance.token)
        ON CONFLICT DO NOTHING;
    END IF;
    -- Not found: another token came first while this one waited, so what was read above is out of date.
    EXIT WHEN FOUND;
  END LOOP;
END
$$;

-- The highest token that committed for the resource, 0 where there was none.
CREATE OR REPLACE FUNCTION fenced.highest(resource text) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'SELECT coalesce((SELECT r.token FROM fenced.ratchet r WHERE r.resource = highest.resource), 0)';

-- Raises UF003 unless this is still the transaction `started`: sent in one message with COMMIT, so that statements
-- which ended the transaction that held the ratchet, and wrote on in another, are not reported as fenced.
CREATE OR REPLACE FUNCTION fenced.confirm(started xid8) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  IF started IS DISTINCT FROM pg_current_xact_id() THEN
    RAISE EXCEPTION 'the transaction that presented the fencing token has ended' USING ERRCODE = 'UF003';
  END IF;
END
$$;

-- Ordinary roles present tokens and read the ratchet through the functions; none can lower or delete a token.
REVOKE ALL ON fenced.ratchet FROM PUBLIC;
GRANT USAGE ON SCHEMA fenced TO PUBLIC;
GRANT EXECUTE ON FUNCTION fenced.version(), fenced.advance(text, bigint), fenced.highest(text), fenced.confirm(xid8) TO PUBLIC;
