import { S3Client } from '@aws-sdk/client-s3';
import { EtcdLock } from '@fenced/lock/etcd';
import { PostgresLock } from '@fenced/lock/postgres';
import { S3Lock } from '@fenced/lock/s3';
import { ZooKeeperLock } from '@fenced/lock/zookeeper';
import { FencedS3 } from '@fenced/store/s3';
import pg from 'pg';
import { UsageError } from '../command.js';
import { PATIENT_CLIENT, REDIS_USAGE, type RedisValues, usable, withRedlock } from '../redis.js';
import { bucketOf, s3Config } from '../s3.js';
import { gatewayLock } from './gateway-lock.js';
import type { RunLock } from './run-lock.js';

/** The options that name another lock service than Redis, for `parseArgs`. */
export const lockOptions = {
  postgres: { type: 'string' },
  install: { type: 'boolean' },
  etcd: { type: 'string' },
  s3: { type: 'string' },
  zookeeper: { type: 'string' },
  gateway: { type: 'string' },
} as const;

interface LockValues extends RedisValues {
  readonly postgres?: string | undefined;
  readonly install?: boolean | undefined;
  readonly etcd?: string | undefined;
  readonly s3?: string | undefined;
  readonly zookeeper?: string | undefined;
  readonly gateway?: string | undefined;
}

export const LOCK_USAGE: string = `${REDIS_USAGE}
  --postgres URL     the lock of one Postgres database in place of Redis.
                     Without it: FENCED_POSTGRES
  --install          creates the schema of that lock if it is missing; needs
                     CREATE on the database
  --etcd URLS        the lock of an etcd cluster in place of Redis: the client
                     URLs of its members, with commas between. Without it:
                     FENCED_ETCD
  --s3 s3://BUCKET   the lock of one bucket in place of Redis, with a prefix if
                     you like. Without it: FENCED_S3. Address, region and
                     credentials as for the AWS SDK
  --zookeeper LIST   the lock of a ZooKeeper ensemble in place of Redis: the
                     addresses of its servers, with commas between. Without it:
                     FENCED_ZOOKEEPER
  --gateway URL      the lock of a gateway in place of Redis. Without it:
                     FENCED_URL. The environment variable FENCED_API_KEY has the
                     API key or JSON Web Token`;

const CONNECT_MS = 5_000;

type Routine<Result> = (lock: RunLock) => Promise<Result>;

/** The other services: their options, and their variables in the order in which they are tried. */
const VARIABLES = [
  ['postgres', 'FENCED_POSTGRES'],
  ['etcd', 'FENCED_ETCD'],
  ['s3', 'FENCED_S3'],
  ['zookeeper', 'FENCED_ZOOKEEPER'],
  ['gateway', 'FENCED_URL'],
] as const;

/**
 * Calls `routine` with the lock service of the options, or else of the environment, and closes it
 * afterwards.
 *
 * @throws {UsageError} if the options name several lock services, or nothing names one
 */
export async function withLock<Result>(
  values: LockValues,
  routine: Routine<Result>,
): Promise<Result> {
  const options = (['redis', ...VARIABLES.map(([name]) => name)] as const).filter(
    (name) => values[name],
  );
  if (options.length > 1)
    throw new UsageError(`name one lock service: --${options.join(' or --')}`);
  const ofEnvironment = process.env.FENCED_REDIS
    ? undefined
    : VARIABLES.find(([, variable]) => process.env[variable]);
  const [name, variable] =
    options.length === 0
      ? (ofEnvironment ?? [])
      : (VARIABLES.find(([name]) => name === options[0]) ?? []);
  const where = (name && values[name]) ?? (variable && process.env[variable]) ?? '';
  if (values.install && name !== 'postgres')
    throw new UsageError('--install is for a lock in Postgres');
  switch (name) {
    case 'postgres':
      return withPostgres(where, values.install ?? false, routine);
    case 'etcd':
      return withEtcd(where, routine);
    case 's3':
      return withS3(where, routine);
    case 'zookeeper':
      return withZooKeeper(where, routine);
    case 'gateway':
      return routine(gatewayLock(where));
    default:
      return withRedlock(values, routine, PATIENT_CLIENT);
  }
}

async function withPostgres<Result>(
  connectionString: string,
  install: boolean,
  routine: Routine<Result>,
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

async function withEtcd<Result>(urls: string, routine: Routine<Result>): Promise<Result> {
  await using lock = usable(() => new EtcdLock({ endpoints: urls.split(',') }));
  return await routine(lock);
}

async function withZooKeeper<Result>(servers: string, routine: Routine<Result>): Promise<Result> {
  await using lock = usable(() => new ZooKeeperLock({ servers }));
  return await routine(lock);
}

async function withS3<Result>(target: string, routine: Routine<Result>): Promise<Result> {
  const { bucket, prefix } = bucketOf(target);
  const client = new S3Client(s3Config({}));
  try {
    const objects = new FencedS3({ client, bucket, prefix });
    // Tests an unknown bucket now, because the test takes longer than an acquisition may.
    await objects.probe();
    await using lock = new S3Lock({ objects });
    return await routine(lock);
  } finally {
    client.destroy();
  }
}
