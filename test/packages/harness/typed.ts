// A user's program for the type checker: every entry point, beside the libraries that it works
// with.
import { S3Client } from '@aws-sdk/client-s3';
import { FencedGateway } from '@fenced/client';
import { createGateway } from '@fenced/gateway';
import { readConfig } from '@fenced/gateway/config';
import { openCredentials } from '@fenced/gateway/credentials';
import { createLog } from '@fenced/gateway/log';
import { createMetrics } from '@fenced/gateway/metrics';
import { type Lease, type Lock, LockError, Redlock } from '@fenced/lock';
import { Elector, type Leadership } from '@fenced/lock/election';
import { EtcdLock } from '@fenced/lock/etcd';
import { PostgresLock } from '@fenced/lock/postgres';
import { S3Lock } from '@fenced/lock/s3';
import { MemoryLock } from '@fenced/lock/testing';
import { ZooKeeperLock } from '@fenced/lock/zookeeper';
import { StaleTokenError } from '@fenced/store';
import { FencedPostgres } from '@fenced/store/postgres';
import { FencedS3 } from '@fenced/store/s3';
import { MemoryRecords, MemoryS3 } from '@fenced/store/testing';
import { Redis } from 'ioredis';
import pg from 'pg';

const redlock = new Redlock({ nodes: [{ name: 'a', client: new Redis({ lazyConnect: true }) }] });
const pool = new pg.Pool();
const lock = new PostgresLock({ pool });
const records = new FencedPostgres({ pool });
const objects = new FencedS3({ client: new S3Client({}), bucket: 'documents' });
const gateway = new FencedGateway({ url: 'http://127.0.0.1:8080' });
export const locks: readonly Lock[] = [
  ...[redlock, lock, new MemoryLock(), gateway, new S3Lock({ objects })],
  new EtcdLock({ endpoints: ['http://127.0.0.1:2379'] }),
  new ZooKeeperLock({ servers: '127.0.0.1:2181' }),
];
const electors = locks.map((each) => new Elector({ lock: each, resource: 'x' }));
export const app = createGateway({ lock: redlock, objects, records });
export const errors = [LockError, StaleTokenError];
export const parts = [readConfig, openCredentials, createLog, createMetrics];
export const fakes = [MemoryS3, MemoryRecords];

/** A fake lease without a class: the public type needs no private member. */
const fakeLease: Lease = {
  resources: ['x'],
  token: 1n,
  owner: 'me',
  signal: new AbortController().signal,
  remainingMs: () => 1_000,
  extensionError: null,
  ensure: () => undefined,
  extend: async () => undefined,
  release: async () => 'released',
  toJSON: () => ({}),
  [Symbol.asyncDispose]: async () => undefined,
};
export const fake: Pick<Lock, 'using'> = {
  using: async (_resource, _options, routine) => routine(fakeLease),
};

export async function write(key: string): Promise<bigint> {
  const lease: Lease = await redlock.acquire(key, { ttlMs: 10_000 });
  const terms: Leadership[] = await Promise.all(electors.map((elector) => elector.campaign()));
  await objects.put(key, 'text', { token: lease.token });
  return terms.reduce((sum, { token }) => sum + token, 0n);
}
