import { randomBytes, randomUUID } from 'node:crypto';
import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';
import { FencedGateway, LeaseError } from '@fenced/client';
import { createGateway, createTokenSigner, serveGateway } from '@fenced/gateway';
import {
  AcquireTimeoutError,
  LeaseLostError,
  type Lock,
  LockArgumentError,
  LockHeldError,
  Redlock,
} from '@fenced/lock';
import { EtcdLock } from '@fenced/lock/etcd';
import { PostgresLock, type PostgresLockConfig } from '@fenced/lock/postgres';
import { S3Lock } from '@fenced/lock/s3';
import { LockMemory, MemoryLock } from '@fenced/lock/testing';
import { ZooKeeperLock } from '@fenced/lock/zookeeper';
import { FencedS3 } from '@fenced/store/s3';
import { startEtcd, startPostgres, startRedis, startS3, startZooKeeper } from '@fenced/testbed';
import { Redis } from 'ioredis';
import pg from 'pg';
import postgres from 'postgres';
import { CLIENTS, type Open } from '../../lock/harness/redis-clients.js';

/** One lock service, for the contract suite. */
export interface Service {
  /** Opens another client. The clients of one name share a lock service, with its own locks. */
  open(name: string): Promise<Lock>;
  stop(): Promise<void>;
  /** The classes of the errors, by their codes. */
  readonly errors?: typeof ERRORS;
  /** True if tokens grow from any number, and by any step. Otherwise they are 33, 34, 35 … */
  readonly hasOwnTokens?: true;
}

export const ERRORS: Readonly<Record<string, new (...args: never[]) => Error>> = {
  held: LockHeldError,
  timeout: AcquireTimeoutError,
  'lease-lost': LeaseLostError,
  'invalid-argument': LockArgumentError,
};

/**
 * As `ERRORS`, for a gateway's client. Either of the two may find a bad argument, by its own class.
 */
const GATEWAY_ERRORS: typeof ERRORS = {
  held: LeaseError,
  timeout: LeaseError,
  'lease-lost': LeaseError,
  'invalid-argument': Error,
};

/** Redlock over three nodes, with clients of one kind. */
async function redis(openClient: Open): Promise<Service> {
  const service = await startRedis(3);
  const clients = await Promise.all(service.nodes.map(({ port }) => openClient(port)));
  const nodes = clients.map(({ client }, at) => ({ name: `node-${at}`, client }));
  return {
    open: async (name) => new Redlock({ nodes, keyPrefix: `{${name}}:`, firstToken: 33n }),
    stop: async () => {
      for (const client of clients) client.close();
      await service.stop();
    },
  };
}

/** A `pg.Pool`, or the `sql` of postgres.js. */
type OpenPool = (url: string) => PostgresLockConfig['pool'] & { end(): Promise<void> };

function openPg(url: string): pg.Pool {
  const pool = new pg.Pool({ connectionString: url, max: 10 });
  pool.on('error', () => undefined);
  return pool;
}

const openPostgresJs: OpenPool = (url) => postgres(url, { max: 10 });

/** PostgresLock over a server, with clients of one kind. */
async function postgresLock(open: OpenPool): Promise<Service> {
  const service = await startPostgres();
  const admin = openPg(service.url);
  const pools = new Map<string, ReturnType<OpenPool>>();
  return {
    open: async (name) => {
      let pool = pools.get(name);
      if (!pool) {
        await admin.query(`CREATE DATABASE "${name}"`);
        const url = new URL(service.url);
        url.pathname = `/${name}`;
        pool = open(url.href);
        pools.set(name, pool);
        await new PostgresLock({ pool }).install();
      }
      return new PostgresLock({ pool, firstToken: 33n });
    },
    stop: async () => {
      await Promise.all([...pools.values(), admin].map((pool) => pool.end()));
      await service.stop();
    },
  };
}

async function memory(): Promise<Service> {
  const memories = new Map<string, LockMemory>();
  return {
    open: async (name) => {
      const memory = memories.get(name) ?? new LockMemory(undefined, 33n);
      memories.set(name, memory);
      return new MemoryLock({ memory });
    },
    stop: async () => undefined,
  };
}

/** Gateways over one Redlock: each client has a gateway of its own. */
export async function gateway(): Promise<Service> {
  const parts = new AsyncDisposableStack();
  const redis = parts.use(await startRedis(3));
  const nodes = redis.nodes.map(({ port }, at) => {
    const client = new Redis({ port });
    parts.defer(() => client.disconnect());
    return { name: `node-${at}`, client };
  });
  const signer = createTokenSigner([{ id: 'k1', secret: randomBytes(32) }], () => Date.now());
  return {
    open: async (name) => {
      const redlock = new Redlock({ nodes, keyPrefix: `{${name}}:`, firstToken: 33n });
      const app = createGateway({ lock: redlock, signer });
      const server = await serveGateway(app, { port: 0 });
      parts.defer(async () => void (await server.drain()));
      return new FencedGateway({ url: server.url });
    },
    stop: () => parts.disposeAsync(),
    errors: GATEWAY_ERRORS,
  };
}

/** EtcdLock over three members. Each name is a key prefix. */
async function etcd(): Promise<Service> {
  const service = await startEtcd();
  const endpoints = service.nodes.map(({ url }) => url);
  return {
    open: async (name) => new EtcdLock({ endpoints, keyPrefix: `${name}/` }),
    stop: () => service.stop(),
    hasOwnTokens: true,
  };
}

/** The S3 server of the environment. Each name is a key prefix. */
async function s3(): Promise<Service> {
  await using parts = new AsyncDisposableStack();
  const service = parts.use(await startS3());
  const { endpoint, region } = service;
  const client = new S3Client({ endpoint, region, credentials: service, forcePathStyle: true });
  parts.defer(() => client.destroy());
  const bucket = `locks-${randomUUID()}`;
  await client.send(new CreateBucketCommand({ Bucket: bucket }));
  const all = parts.move();
  await new FencedS3({ client, bucket }).probe();
  return {
    open: async (name) =>
      new S3Lock({
        objects: new FencedS3({ client, bucket }),
        keyPrefix: `${name}/`,
        pollMs: 50,
        firstToken: 33n,
      }),
    stop: () => all.disposeAsync(),
  };
}

/** Three servers. Each name is a root. */
async function zookeeper(): Promise<Service> {
  const service = await startZooKeeper(3);
  const { addresses: servers } = service;
  const locks: Lock[] = [];
  return {
    open: async (name) => {
      const lock = new ZooKeeperLock({ servers, root: `/${name}` });
      locks.push(lock);
      return lock;
    },
    stop: async () => {
      await Promise.all(locks.map((lock) => lock.close()));
      await service.stop();
    },
    hasOwnTokens: true,
  };
}

/** Every lock service, and each kind of client. */
export const LOCK_SERVICES: readonly (readonly [string, () => Promise<Service>])[] = [
  ...CLIENTS.map(([name, open]) => [`Redlock over ${name}`, () => redis(open)] as const),
  ['PostgresLock over pg', () => postgresLock(openPg)],
  ['PostgresLock over postgres.js', () => postgresLock(openPostgresJs)],
  ['EtcdLock', etcd],
  ['S3Lock', s3],
  ['ZooKeeperLock', zookeeper],
  ['MemoryLock', memory],
  ['FencedGateway', gateway],
];
