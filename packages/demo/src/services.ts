import { randomUUID } from 'node:crypto';
import {
  CreateBucketCommand,
  DeleteBucketCommand,
  DeleteObjectCommand,
  paginateListObjectsV2,
  type S3Client,
} from '@aws-sdk/client-s3';
import { FencedPostgres } from '@fenced/store/postgres';
import {
  type PostgresService,
  type RedisService,
  type S3Service,
  startPostgres,
  startRedis,
  startS3,
} from '@fenced/testbed';
import { connect as connectPostgres, TABLE } from './documents/postgres.js';
import { connect as connectS3 } from './documents/s3.js';
import type { StoreAddress, StoreKind } from './job.js';

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
