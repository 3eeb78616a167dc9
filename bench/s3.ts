import { randomBytes, randomUUID } from 'node:crypto';
import {
  CreateBucketCommand,
  GetObjectCommand,
  PutObjectCommand,
  S3Client,
} from '@aws-sdk/client-s3';
import { FencedS3 } from '@fenced/store/s3';
import { startS3 } from '@fenced/testbed';
import { compare, type Row } from './measure.ts';

/** Writes of 1 KiB that gzip cannot shorten, by one writer after the other. The raw limit is a plain `PutObject`. */
export async function benchS3(): Promise<Row[]> {
  await using service = await startS3();
  const { endpoint, region, accessKeyId, secretAccessKey } = service;
  const credentials = { accessKeyId, secretAccessKey };
  const client = new S3Client({ endpoint, region, credentials, forcePathStyle: true });
  const bucket = `fenced-bench-${randomUUID()}`;
  await client.send(new CreateBucketCommand({ Bucket: bucket }));
  const documents = new FencedS3({ client, bucket });
  const body = randomBytes(1024);
  const token = 33n;
  const rows = await compare(
    's3',
    [
      {
        name: 'PutObject',
        run: () => client.send(new PutObjectCommand({ Bucket: bucket, Key: 'raw', Body: body })),
      },
      { name: 'put, version known', run: () => documents.put('put', body, { token }) },
      {
        name: 'GetObject, then PutObject',
        run: async () => {
          const { Body } = await client.send(new GetObjectCommand({ Bucket: bucket, Key: 'raw' }));
          await Body?.transformToByteArray();
          await client.send(new PutObjectCommand({ Bucket: bucket, Key: 'raw', Body: body }));
        },
      },
      { name: 'update', run: () => documents.update('update', { token }, () => body) },
    ],
    20,
  );
  client.destroy();
  return rows;
}
