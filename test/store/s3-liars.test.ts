import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  CreateBucketCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  S3Client,
} from '@aws-sdk/client-s3';
import { UnsafeStoreError } from '@fenced/store';
import { FencedS3 } from '@fenced/store/s3';
import { WorkerProcess } from '@fenced/testbed';
import { expect, test } from 'vitest';

// Popular emulators of S3. Both ignore the conditions of writes.
test.each(['s3rver', 'fauxqs'])('%s is refused, and the bucket keeps its objects', async (name) => {
  await using parts = new AsyncDisposableStack();
  const directory = await mkdtemp(join(tmpdir(), 'lying-s3-'));
  parts.defer(() => rm(directory, { recursive: true }));
  const listening = Promise.withResolvers<string>();
  const server = parts.use(
    await WorkerProcess.start(new URL('./harness/lying-server.mjs', import.meta.url), {
      args: [name, directory],
      onLine: listening.resolve,
    }),
  );
  void server.exited.then(() => listening.reject(new Error(server.stderr)));
  const client = new S3Client({
    endpoint: await listening.promise,
    region: 'us-east-1',
    credentials: { accessKeyId: 'S3RVER', secretAccessKey: 'S3RVER' },
    forcePathStyle: true,
  });
  parts.defer(() => client.destroy());
  const bucket = 'documents';
  await client.send(new CreateBucketCommand({ Bucket: bucket }));
  await client.send(new PutObjectCommand({ Bucket: bucket, Key: 'k', Body: 'as it was' }));
  const contents = async () =>
    (await client.send(new ListObjectsV2Command({ Bucket: bucket }))).Contents;
  const before = await contents();
  const store = new FencedS3({ client, bucket });
  const asked = { check: 'create-again', sent: 'PUT If-None-Match: *' };
  for (const call of [
    () => store.put('k', 'x', { token: 1 }),
    () => store.update('k', { token: 1 }, () => 'x'),
    () => store.claim('k', { token: 1 }),
    () => store.delete('new', { token: 1 }),
    () => store.probe(),
  ]) {
    const error = await call().catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(UnsafeStoreError);
    expect(error).toMatchObject({
      code: 'unsafe-store',
      check: 'create-again',
      report: [
        { check: 'create', answered: '200', verdict: 'passed' },
        { ...asked, answered: '200', verdict: 'failed' },
      ],
    });
  }
  expect(before).toHaveLength(1);
  // The verdict stays, so that no later process is lucky.
  const certificate = { Key: '.fenced-probe/certificate.json' };
  expect(await contents()).toEqual([expect.objectContaining(certificate), ...(before ?? [])]);
});
