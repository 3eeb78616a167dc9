import {
  CreateBucketCommand,
  GetObjectCommand,
  HeadObjectCommand,
  S3Client,
} from '@aws-sdk/client-s3';
import {
  type Current,
  FencedS3,
  type FencedS3Options,
  type StoreCapabilities,
} from '@fenced/store/s3';
import { MemoryS3 } from '@fenced/store/testing';
import { type S3Program, type S3Service, startS3 } from '@fenced/testbed';
import { FaultyProxy } from './faulty-proxy.js';

/** One server with a bucket, and a hostile proxy before it. */
export interface Stage<Store = FencedS3> extends AsyncDisposable {
  readonly service: S3Service;
  readonly bucket: string;
  readonly client: S3Client;
  readonly proxy: FaultyProxy;
  readonly capabilities: StoreCapabilities;
  /** A new store, as in another process. */
  store(options?: Partial<FencedS3Options>): Store;
  /** A store behind the proxy. */
  viaProxy(options?: Partial<FencedS3Options>): Store;
  /** A new key. */
  newKey(): string;
  /** The `shortId`s of the writes of an object, newest first; none if there is no object. */
  history(key: string): Promise<readonly string[]>;
}

/** The stage of the suites, which is set before their first test. */
export type Staged<Store = FencedS3> = () => Stage<Store>;

/** @param server `memory` for the one of `@fenced/store/testing` */
export async function openStage(server: S3Program | 'environment' | 'memory'): Promise<Stage> {
  await using parts = new AsyncDisposableStack();
  const service = parts.use(
    server === 'memory'
      ? await startMemoryS3()
      : await startS3(server === 'environment' ? undefined : server),
  );
  const bucket = `fenced-${Date.now()}`;
  const clientOf = (endpoint: string): S3Client => {
    const { region } = service;
    const client = new S3Client({ endpoint, region, credentials: service, forcePathStyle: true });
    parts.defer(() => client.destroy());
    return client;
  };
  const client = clientOf(service.endpoint);
  await client.send(new CreateBucketCommand({ Bucket: bucket }));
  const proxy = parts.use(await FaultyProxy.start(service.endpoint));
  const proxied = clientOf(proxy.endpoint);
  const store = (options?: Partial<FencedS3Options>): FencedS3 =>
    new FencedS3({ client, bucket, ...options });
  const viaProxy = (options?: Partial<FencedS3Options>): FencedS3 =>
    new FencedS3({ client: proxied, bucket, requestTimeoutMs: 1_000, ...options });
  const capabilities = await store().probe({ renew: true });
  await viaProxy({ requestTimeoutMs: 10_000 }).probe();
  let keys = 0;
  const all = parts.move();
  return {
    service,
    bucket,
    client,
    proxy,
    capabilities,
    store,
    viaProxy,
    newKey: () => `object ${++keys}/ä?&.txt`,
    history: async (key) => {
      const command = new HeadObjectCommand({ Bucket: bucket, Key: key });
      const found = await client.send(command).catch((error: Error) => {
        if (error.name !== 'NotFound') throw error;
      });
      const { 'fencing-write': writeId, 'fencing-before': before } = found?.Metadata ?? {};
      return writeId === undefined ? [] : [shortId(writeId), ...(before?.match(/.{12}/g) ?? [])];
    },
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
}

async function startMemoryS3(): Promise<S3Service> {
  const s3 = await MemoryS3.start();
  const { endpoint, region, credentials } = s3.clientConfig;
  const stop = (): Promise<void> => s3[Symbol.asyncDispose]();
  return {
    server: 'unknown',
    origin: 'environment',
    program: 'MemoryS3',
    endpoint,
    region,
    ...credentials,
    stop,
    [Symbol.asyncDispose]: stop,
  };
}

/** The object in the bucket, as a program without the store sees it. */
export async function storedObject(
  { client, bucket }: Pick<Stage, 'client' | 'bucket'>,
  key: string,
) {
  const { Body, ETag, Metadata, ContentEncoding } = await client.send(
    new GetObjectCommand({ Bucket: bucket, Key: key }),
  );
  const bytes = (await Body?.transformToByteArray()) ?? new Uint8Array();
  return { bytes, ETag, Metadata, ContentEncoding };
}

/** The part of a write id that the history of an object keeps. */
export function shortId(writeId: string): string {
  return writeId.slice(0, 12);
}

export function text(current: Current | null | undefined): string | null {
  return current ? Buffer.from(current.body).toString() : null;
}
