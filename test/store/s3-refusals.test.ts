import { S3Client } from '@aws-sdk/client-s3';
import { StoreSetupError, UnsupportedByStoreError } from '@fenced/store';
import { FencedS3 } from '@fenced/store/s3';
import { expect, test } from 'vitest';
import { type Answer, type Asked, inMemory, ScriptedServer } from './harness/s3-servers.js';

const credentials = { accessKeyId: 'key', secretAccessKey: 'secret' };

const storeOf = (endpoint: string): FencedS3 =>
  new FencedS3({
    client: new S3Client({ endpoint, region: 'us-east-1', credentials, forcePathStyle: true }),
    bucket: 'bucket',
  });

/** Starts a server that answers some requests with this error, as soon as the test wants that. */
async function refusing(isRefused: (asked: Asked) => boolean, status: number, code: string) {
  let isRefusing = false;
  const answer = inMemory({});
  const refusal: Answer = { status, body: `<Error><Code>${code}</Code></Error>` };
  const server = await ScriptedServer.start((asked) =>
    isRefusing && isRefused(asked) ? refusal : answer(asked),
  );
  const store = storeOf(server.endpoint);
  await store.put('k', 'value', { token: 1 });
  isRefusing = true;
  return { server, store };
}

test('an archived object can be overwritten, and reads ask to restore it', async () => {
  const { server, store } = await refusing(
    ({ method, path }) => method === 'GET' && path.startsWith('/bucket/k'),
    403,
    'InvalidObjectState',
  );
  await using _ = server;
  for (const read of [
    () => store.get('k'),
    () => store.getStream('k'),
    () => store.update('k', { token: 2 }, () => 'x'),
    () => store.claim('k', { token: 2 }),
  ]) {
    const error = await read().catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(UnsupportedByStoreError);
    expect(String(error)).toContain('archived: restore it');
    expect(String(error)).not.toContain('credentials');
  }
  expect(await store.highest('k')).toBe(1n);
  await store.put('k', 'anew', { token: 2 });
  expect(await store.highest('k')).toBe(2n);
});

test.each([
  ['Ceph', 403, 'QuotaExceeded'],
  ['MinIO', 400, 'XMinioAdminBucketQuotaExceeded'],
])(
  'a used-up quota of %s is named in the error, and nothing is written',
  async (_name, status, code) => {
    const { server, store } = await refusing(({ method }) => method === 'PUT', status, code);
    await using _ = server;
    for (const write of [
      () => store.put('k', 'x', { token: 2 }),
      () => store.delete('k', { token: 2 }),
      () => store.claim('k', { token: 2 }),
    ]) {
      const error = await write().catch((thrown: unknown) => thrown);
      expect(error).toBeInstanceOf(StoreSetupError);
      expect(String(error)).toContain('quota of the bucket');
      expect(String(error)).not.toContain('credentials');
    }
    expect(await store.get('k')).toMatchObject({ token: 1n, body: Buffer.from('value') });
  },
);

test.each([
  ['without tags', 501, 'NotImplemented'],
  ['that does not know the header', 400, 'InvalidArgument'],
  ['whose policy does not grant PutObjectTagging', 403, 'AccessDenied'],
])('a server %s: tombstones are written without a tag', async (_name, status, code) => {
  const tagged: string[] = [];
  const { server, store } = await refusing(
    ({ headers }) => {
      const tags = headers['x-amz-tagging'];
      if (tags !== undefined) tagged.push(String(tags));
      return tags !== undefined;
    },
    status,
    code,
  );
  await using _ = server;
  await store.delete('k', { token: 2 });
  await store.claim('new', { token: 2 });
  expect(tagged).toEqual(['fenced-tombstone=true']);
  for (const key of ['k', 'new']) {
    expect(await store.get(key)).toBeNull();
    expect(await store.highest(key)).toBe(2n);
  }
  const types = server.asked.slice(-9).map(({ headers }) => headers['content-type']);
  expect(types).toContain('application/x.fenced-tombstone');
});
