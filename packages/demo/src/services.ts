import { randomUUID } from 'node:crypto';
import {
  CreateBucketCommand,
  DeleteBucketCommand,
  DeleteObjectCommand,
  paginateListObjectsV2,
  type S3Client,
} from '@aws-sdk/client-s3';
import { PostgresLock } from '@fenced/lock/postgres';
import { FencedPostgres } from '@fenced/store/postgres';
import { FencedS3 } from '@fenced/store/s3';
import {
  type PostgresService,
  type RedisService,
  type S3Service,
  startEtcd,
  startPostgres,
  startRedis,
  startS3,
  startZooKeeper,
} from '@fenced/testbed';
import { connect as connectPostgres, TABLE } from './documents/postgres.js';
import { connect as connectS3 } from './documents/s3.js';
import type { LockServers, LockServiceKind, StoreAddress, StoreKind } from './job.js';

export const NODE_COUNT = 5;

/** A running store. */
export interface Store extends AsyncDisposable {
  readonly kind: StoreKind;
  /** Name and version, for display. */
  readonly program: string;
  readonly host: string;
  readonly port: number;
  /** Creates a new, empty document. */
  create(name: string): Promise<StoreAddress>;
}

/** Returns the same document's address with another host and port. */
export function through(address: StoreAddress, host: string, port: number): StoreAddress {
  if (address.kind === 's3') return { ...address, endpoint: `http://${host}:${port}` };
  const url = new URL(address.url);
  url.host = `${host}:${port}`;
  return { ...address, url: url.href };
}

export function startLockNodes(): Promise<RedisService> {
  return startRedis(NODE_COUNT);
}

/** A running lock service. */
export interface LockServerGroup extends AsyncDisposable {
  readonly servers: LockServers;
  /** Name and version, for display. */
  readonly program: string;
}

export async function startLockServers(kind: LockServiceKind): Promise<LockServerGroup> {
  await using parts = new AsyncDisposableStack();
  const started = async (): Promise<Omit<LockServerGroup, typeof Symbol.asyncDispose>> => {
    switch (kind) {
      case 'redis': {
        const { nodes, program } = parts.use(await startLockNodes());
        return { servers: nodes, program: `${nodes.length} × ${program}` };
      }
      case 'postgres': {
        const { url, program } = parts.use(await startPostgres());
        const pool = connectPostgres(url);
        parts.defer(() => pool.end());
        await new PostgresLock({ pool }).install();
        return { servers: { kind, url }, program };
      }
      case 'etcd': {
        const { nodes, program } = parts.use(await startEtcd());
        const endpoints = nodes.map((node) => node.url);
        return { servers: { kind, endpoints }, program: `${nodes.length} × ${program}` };
      }
      case 'zookeeper': {
        const { addresses, servers, program } = parts.use(await startZooKeeper(3));
        return { servers: { kind, servers: addresses }, program: `${servers.length} × ${program}` };
      }
      case 's3': {
        const store = parts.use(await startStore('s3'));
        const address = await store.create('lock');
        if (address.kind !== kind) throw new Error(`the store is ${address.kind}`);
        const client = connectS3(address);
        parts.defer(() => client.destroy());
        await new FencedS3({ client, bucket: address.bucket }).probe();
        return { servers: address, program: store.program };
      }
    }
  };
  const group = await started();
  const all = parts.move();
  return { ...group, [Symbol.asyncDispose]: () => all.disposeAsync() };
}

export async function startStore(kind: StoreKind): Promise<Store> {
  return kind === 's3' ? openS3(await startS3()) : openPostgres(await startPostgres());
}

async function openS3(service: S3Service): Promise<Store> {
  const { endpoint, region, accessKeyId, secretAccessKey, program } = service;
  const client = connectS3({ endpoint, region, accessKeyId, secretAccessKey });
  const bucket = `fenced-demo-${randomUUID()}`;
  await client.send(new CreateBucketCommand({ Bucket: bucket }));
  const { hostname, port } = new URL(endpoint);
  return {
    kind: 's3',
    program,
    host: hostname,
    port: Number(port),
    create: async (name) => {
      const key = `${name}-${randomUUID()}`;
      return { kind: 's3', endpoint, region, accessKeyId, secretAccessKey, bucket, key };
    },
    async [Symbol.asyncDispose]() {
      await deleteBucket(client, bucket);
      client.destroy();
      await service.stop();
    },
  };
}

async function deleteBucket(client: S3Client, bucket: string): Promise<void> {
  for await (const page of paginateListObjectsV2({ client }, { Bucket: bucket })) {
    for (const { Key } of page.Contents ?? []) {
      await client.send(new DeleteObjectCommand({ Bucket: bucket, Key }));
    }
  }
  await client.send(new DeleteBucketCommand({ Bucket: bucket }));
}

async function openPostgres(service: PostgresService): Promise<Store> {
  const { url, program } = service;
  const pool = connectPostgres(url);
  await new FencedPostgres({ pool }).install();
  await pool.query(TABLE);
  const { hostname, port } = new URL(url);
  const run = randomUUID();
  return {
    kind: 'postgres',
    program,
    host: hostname,
    port: Number(port),
    async create(name) {
      const id = `${run}/${name}-${randomUUID()}`;
      await pool.query('INSERT INTO demo.document (id) VALUES ($1)', [id]);
      return { kind: 'postgres', url, id };
    },
    async [Symbol.asyncDispose]() {
      await pool.query("DELETE FROM demo.document WHERE id LIKE $1 || '/%'", [run]);
      await pool.end();
      await service.stop();
    },
  };
}
