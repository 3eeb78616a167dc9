import {
  CreateBucketCommand,
  DeleteBucketCommand,
  ListBucketsCommand,
  S3Client,
} from '@aws-sdk/client-s3';
import type { S3Program } from './programs.js';
import type { Service } from './service.js';

const CONNECTION_LIMIT_MS = 1_000;
const REQUEST_LIMIT_MS = 10_000;

/** A client's settings for an S3 server. Path style, because buckets have no host names here. */
export interface S3Address {
  readonly endpoint: string;
  readonly region: string;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
}

export type S3Keys = Omit<S3Address, 'endpoint'>;

export interface S3Service extends Service, S3Address {
  /** `unknown` for a server of the environment. */
  readonly server: S3Program | 'unknown';
  /**
   * Kills the server with SIGKILL, and restarts it with its data. Undefined if the server keeps no
   * data, or was not started by the testbed.
   */
  readonly crash?: () => Promise<void>;
}

export type CrashableS3 = S3Address & Pick<Required<S3Service>, 'crash'>;

/** Sends a signed request that changes nothing. @throws if the server does not answer as S3 does */
export async function askS3(address: S3Address): Promise<void> {
  await withClient(address, async (client) => {
    const { Buckets } = await client.send(new ListBucketsCommand({}));
    // The client accepts any reply with status 200 as an empty list.
    if (Buckets === undefined) throw new Error('its answer is not an S3 answer');
  });
}

/**
 * Makes and removes a bucket. This needs the whole server: for the first bucket, radosgw makes its
 * pools.
 */
export async function makeAndRemoveBucket(address: S3Address): Promise<void> {
  const bucket = { Bucket: 'fenced-first-request' };
  await withClient(address, async (client) => {
    await client.send(new CreateBucketCommand(bucket));
    await client.send(new DeleteBucketCommand(bucket));
  });
}

export async function makeBucket(address: S3Address, name: string): Promise<void> {
  await withClient(address, (client) => client.send(new CreateBucketCommand({ Bucket: name })));
}

async function withClient(
  { endpoint, region, accessKeyId, secretAccessKey }: S3Address,
  use: (client: S3Client) => Promise<unknown>,
): Promise<void> {
  const client = new S3Client({
    endpoint,
    region,
    credentials: { accessKeyId, secretAccessKey },
    forcePathStyle: true,
    maxAttempts: 1,
    requestHandler: {
      connectionTimeout: CONNECTION_LIMIT_MS,
      requestTimeout: REQUEST_LIMIT_MS,
      throwOnRequestTimeout: true,
    },
  });
  try {
    await use(client);
  } finally {
    client.destroy();
  }
}
