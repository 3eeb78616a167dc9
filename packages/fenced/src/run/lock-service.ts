import { FencedGateway } from '@fenced/client';
import { PostgresLock } from '@fenced/lock/postgres';
import pg from 'pg';
import { UsageError } from '../command.js';
import { type ClientOptions, REDIS_USAGE, type RedisValues, withRedlock } from '../redis.js';

/** A lease of any lock service. */
export interface RunLease {
  readonly token: bigint;
  /** The token as a gateway accepts it. */
  readonly signedToken?: string;
  remainingMs(): number;
  extend(ttlMs: number): Promise<void>;
  release(): Promise<'released' | 'expired' | 'unknown'>;
}

interface AcquireOptions {
  readonly ttlMs: number;
  readonly waitMs: number;
  readonly signal: AbortSignal;
}

/** Redlock, Postgres or a gateway. */
export interface RunLock {
  acquire(resource: string, options: AcquireOptions): Promise<RunLease>;
}

/** The options that name another lock service than Redis, for `parseArgs`. */
export const lockOptions = {
  postgres: { type: 'string' },
  install: { type: 'boolean' },
  gateway: { type: 'string' },
} as const;

interface LockValues extends RedisValues {
  readonly postgres?: string | undefined;
  readonly install?: boolean | undefined;
  readonly gateway?: string | undefined;
}

export const LOCK_USAGE: string = `${REDIS_USAGE}
  --postgres URL     the lock of one Postgres database in place of Redis.
                     Without it: FENCED_POSTGRES
  --install          creates the schema of that lock if it is missing; needs
                     CREATE on the database
  --gateway URL      the lock of a gateway in place of Redis. Without it:
                     FENCED_URL. The environment variable FENCED_API_KEY has the
                     API key or JSON Web Token`;

/**
 * Milliseconds for which one request to a gateway waits at most. The next one continues the wait:
 * see `limits.waitMsMax`.
 */
const GATEWAY_WAIT_MS = 5_000;
/** Codes of failures that the next request may not meet. The client pauses between its tries. */
const PASSING: ReadonlySet<unknown> = new Set([
  ...['timeout', 'held', 'no-quorum', 'unavailable'],
  ...['overloaded', 'shutting-down', 'too-many-requests'],
]);
const GATEWAY_ANSWER_MS = 15_000;
const CONNECT_MS = 5_000;
const RECONNECT_MAX_MS = 1_000;

/** For a lock that is held for long: nodes may go away and come back. */
const PATIENT_CLIENT: ClientOptions = {
  maxRetriesPerRequest: 0,
  connectTimeout: CONNECT_MS,
  retryStrategy: (times: number) => Math.min(50 * times, RECONNECT_MAX_MS),
};

/**
 * Calls `routine` with the lock service of the options, or else of the environment, and closes it
 * afterwards.
 *
 * @throws {UsageError} if they name none, or several
 */
export function withLock<Result>(
  values: LockValues,
  routine: (lock: RunLock) => Promise<Result>,
): Promise<Result> {
  const { FENCED_POSTGRES, FENCED_URL } = process.env;
  const named = (['redis', 'postgres', 'gateway'] as const).filter((name) => values[name]);
  if (named.length > 1) throw new UsageError(`name one lock service: --${named.join(' or --')}`);
  const isNamed = named.length > 0 || process.env.FENCED_REDIS;
  const postgres = values.postgres ?? (isNamed ? undefined : FENCED_POSTGRES);
  const gateway = values.gateway ?? (isNamed || postgres ? undefined : FENCED_URL);
  if (values.install && !postgres) throw new UsageError('--install is for a lock in Postgres');
  if (postgres) return withPostgres(postgres, values.install ?? false, routine);
  if (gateway) return routine(gatewayLock(gateway));
  return withRedlock(values, routine, PATIENT_CLIENT);
}

async function withPostgres<Result>(
  connectionString: string,
  install: boolean,
  routine: (lock: RunLock) => Promise<Result>,
): Promise<Result> {
  const pool = new pg.Pool({ connectionString, connectionTimeoutMillis: CONNECT_MS, max: 4 });
  pool.on('error', () => {});
  try {
    await using lock = new PostgresLock({ pool });
    if (install) await lock.install();
    return await routine(lock);
  } finally {
    await pool.end();
  }
}

function gatewayLock(url: string): RunLock {
  const { FENCED_API_KEY } = process.env;
  const gateway = new FencedGateway({
    ...{ url, ...(FENCED_API_KEY && { key: FENCED_API_KEY }) },
    fetch: (target, init = {}) => {
      const limit = AbortSignal.timeout(GATEWAY_ANSWER_MS);
      const signal = init.signal ? AbortSignal.any([init.signal, limit]) : limit;
      return fetch(target, { ...init, signal });
    },
  });
  const acquire = async (resource: string, options: AcquireOptions): Promise<RunLease> => {
    const { waitMs, ...rest } = options;
    const endMs = performance.now() + waitMs;
    for (;;) {
      const leftMs = Math.max(0, Math.round(endMs - performance.now()));
      try {
        const wait = { waitMs: Math.min(leftMs, GATEWAY_WAIT_MS) };
        return await gateway.acquire(resource, { ...rest, ...wait });
      } catch (error) {
        if (leftMs === 0 || options.signal.aborted || !PASSING.has(Object(error).code)) throw error;
      }
    }
  };
  return { acquire };
}
