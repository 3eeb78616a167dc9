import { randomUUID } from 'node:crypto';
import { CreateBucketCommand, PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import { Redlock } from '@fenced/lock';
import { EtcdLock } from '@fenced/lock/etcd';
import { PostgresLock } from '@fenced/lock/postgres';
import { S3Lock } from '@fenced/lock/s3';
import { ZooKeeperLock } from '@fenced/lock/zookeeper';
import { FencedS3 } from '@fenced/store/s3';
import { startEtcd, startPostgres, startRedis, startS3, startZooKeeper } from '@fenced/testbed';
import { Redis } from 'ioredis';
import pg from 'pg';
import { systemRuntime } from '../packages/lock/dist/runtime/runtime.js';
import {
  create,
  OPEN,
  PERSISTENT,
  setData,
} from '../packages/lock/dist/zookeeper/protocol/operations.js';
import { Session } from '../packages/lock/dist/zookeeper/protocol/session.js';
import { type BenchOptions, compare, type Row } from './measure.ts';

/** A lock service, and a plain write to the same servers, which store it as safely as a lock. */
interface Service {
  readonly name: string;
  readonly write: () => Promise<unknown>;
  readonly lock: Pick<Redlock, 'acquire'>;
}

type Start = (parts: AsyncDisposableStack) => Promise<Service>;

const TTL_MS = 10_000;

const redis =
  (n: number): Start =>
  async (parts) => {
    const service = parts.use(await startRedis(n, { persistence: 'aof' }));
    const nodes = service.nodes.map(({ name, url }) => {
      const client = new Redis(url);
      parts.defer(() => client.disconnect());
      return { name, client };
    });
    const [first] = nodes;
    const write = async () => first?.client.set('bench', 'x');
    return { name: `Redlock on ${n} Redis`, write, lock: new Redlock({ nodes }) };
  };

const postgres: Start = async (parts) => {
  const service = parts.use(await startPostgres({ fsync: true }));
  const pool = new pg.Pool({ connectionString: service.url });
  pool.on('error', () => {});
  parts.defer(() => pool.end());
  await pool.query('CREATE TABLE bench_services AS SELECT 1 AS value');
  const lock = new PostgresLock({ pool });
  await lock.install();
  const write = () => pool.query('UPDATE bench_services SET value = value + 1');
  return { name: 'PostgresLock', write, lock };
};

const etcd: Start = async (parts) => {
  const service = parts.use(await startEtcd(3));
  const endpoints = service.nodes.map(({ url }) => url);
  const body = JSON.stringify({ key: 'YmVuY2g=', value: 'eA==' });
  const write = async () =>
    (await fetch(`${endpoints[0]}/v3/kv/put`, { method: 'POST', body })).text();
  return { name: 'EtcdLock on 3 etcd', write, lock: new EtcdLock({ endpoints }) };
};

const zookeeper: Start = async (parts) => {
  const { addresses, servers } = parts.use(await startZooKeeper(3, { isDurable: true }));
  const session = new Session({ servers, credentials: [], timeoutMs: TTL_MS }, systemRuntime);
  parts.defer(() => session.close());
  const inTime = () => AbortSignal.timeout(TTL_MS);
  await session.request(create('/bench', '', PERSISTENT, OPEN), inTime());
  const write = () => session.request(setData('/bench', 'x', -1), inTime());
  const lock = new ZooKeeperLock({ servers: addresses });
  parts.use(lock);
  return { name: 'ZooKeeperLock on 3 ZooKeeper', write, lock };
};

const s3: Start = async (parts) => {
  const service = parts.use(await startS3());
  const { endpoint, region } = service;
  const client = new S3Client({ endpoint, region, credentials: service, forcePathStyle: true });
  parts.defer(() => client.destroy());
  const bucket = `bench-${randomUUID()}`;
  await client.send(new CreateBucketCommand({ Bucket: bucket }));
  const objects = new FencedS3({ client, bucket });
  await objects.probe();
  const put = { Bucket: bucket, Key: 'bench', Body: 'x' };
  const write = () => client.send(new PutObjectCommand(put));
  return { name: 'S3Lock', write, lock: new S3Lock({ objects }) };
};

/** Durations of an acquisition with its release, beside one write of the same service. */
export async function benchLockServices({ isQuick }: BenchOptions): Promise<Row[]> {
  const rows: Row[] = [];
  for (const start of [redis(1), redis(3), redis(5), postgres, etcd, zookeeper, s3]) {
    await using parts = new AsyncDisposableStack();
    const { name, write, lock } = await start(parts);
    const cycle = async () => (await lock.acquire('bench', { ttlMs: TTL_MS })).release();
    const subjects = [
      { name: `${name}: one write`, run: write },
      { name: `${name}: acquire, release`, run: cycle },
    ] as const;
    const extent = { rounds: isQuick ? 1 : 10, warmUp: isQuick ? 1 : 20 };
    rows.push(...(await compare('lock-services', subjects, isQuick ? 5 : 20, extent)));
  }
  return rows;
}
