import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import {
  CreateBucketCommand,
  GetObjectCommand,
  PutObjectCommand,
  S3Client,
} from '@aws-sdk/client-s3';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { findS3 } from './programs.js';
import { startS3 } from './s3.js';
import type { S3Address } from './s3-address.js';

afterEach(() => {
  vi.unstubAllEnvs();
});

// Without moto, which accepts any access key.
const installed = (['minio', 'radosgw'] as const).filter((server) => findS3(server) !== undefined);

test('this machine has an S3 server', () => {
  expect(installed).not.toEqual([]);
});

describe.each(installed)('%s', (server) => {
  test('stores an object, and a new start has no data', async () => {
    vi.stubEnv('FENCED_S3_SERVER', server);
    const one = await startS3();
    expect(one).toMatchObject({
      origin: 'program',
      server,
      program: expect.stringContaining(server),
    });
    expect(await roundTrip(one)).toBe('hello');
    await one.stop();
    await one.stop();
    await expect(roundTrip(one)).rejects.toThrow('ECONNREFUSED');
    await using two = await startS3();
    // `roundTrip` makes its bucket anew: that would fail if the new server still had it.
    expect(await roundTrip(two)).toBe('hello');
  });

  test('is used through the environment and left running', async () => {
    vi.stubEnv('FENCED_S3_SERVER', server);
    await using service = await startS3();
    vi.stubEnv('FENCED_S3_SERVER', '');
    vi.stubEnv('FENCED_S3_ENDPOINT', service.endpoint);
    vi.stubEnv('FENCED_S3_ACCESS_KEY_ID', service.accessKeyId);
    vi.stubEnv('FENCED_S3_SECRET_ACCESS_KEY', service.secretAccessKey);
    const found = await startS3();
    expect(found).toMatchObject({ origin: 'environment', endpoint: service.endpoint });
    await found.stop();
    expect(await roundTrip(service)).toBe('hello');

    vi.stubEnv('FENCED_S3_SECRET_ACCESS_KEY', 'wrong');
    await expect(startS3()).rejects.toThrow(/^FENCED_S3_ENDPOINT=/);
  });
});

describe('an address of the environment', () => {
  test('without keys is an error that names them', async () => {
    vi.stubEnv('FENCED_S3_ENDPOINT', 'http://127.0.0.1:1');
    await expect(startS3()).rejects.toMatchObject({
      code: 'environment',
      message: 'FENCED_S3_ENDPOINT is set, so FENCED_S3_ACCESS_KEY_ID must be set too',
    });
  });

  test.each([
    { what: 'without a server', endpoint: () => 'http://127.0.0.1:1' },
    { what: 'of another server', endpoint: (other: string) => other },
    { what: 'that is not an address', endpoint: () => 'not a url' },
  ])('$what is an error that names the variable', async ({ endpoint }) => {
    const other = createServer((_, response) => response.end('<html>hello</html>'));
    await once(other.listen(0, '127.0.0.1'), 'listening');
    vi.stubEnv(
      'FENCED_S3_ENDPOINT',
      endpoint(`http://127.0.0.1:${(other.address() as AddressInfo).port}`),
    );
    vi.stubEnv('FENCED_S3_ACCESS_KEY_ID', 'key');
    vi.stubEnv('FENCED_S3_SECRET_ACCESS_KEY', 'secret');
    try {
      await expect(startS3()).rejects.toThrow(/^FENCED_S3_ENDPOINT=/);
    } finally {
      other.closeAllConnections();
      other.close();
    }
  });
});

test('an unknown FENCED_S3_SERVER is an error', async () => {
  vi.stubEnv('FENCED_S3_SERVER', 'ceph');
  await expect(startS3()).rejects.toThrow(
    'FENCED_S3_SERVER=ceph is unknown: use minio, radosgw, moto, docker',
  );
});

async function roundTrip(address: S3Address): Promise<string | undefined> {
  const { accessKeyId, secretAccessKey, endpoint, region } = address;
  const credentials = { accessKeyId, secretAccessKey };
  const client = new S3Client({
    endpoint,
    region,
    credentials,
    forcePathStyle: true,
    maxAttempts: 1,
  });
  const object = { Bucket: 'documents', Key: 'greeting' };
  try {
    await client.send(new CreateBucketCommand({ Bucket: object.Bucket }));
    await client.send(new PutObjectCommand({ ...object, Body: 'hello' }));
    return await (await client.send(new GetObjectCommand(object))).Body?.transformToString();
  } finally {
    client.destroy();
  }
}
