import { S3Client } from '@aws-sdk/client-s3';
import { StoreSetupError, StoreUnavailableError, UnsupportedByStoreError } from '@fenced/store';
import { FencedS3 } from '@fenced/store/s3';
import { expect, test } from 'vitest';
import { type Answer, type Asked, inMemory, ScriptedServer } from './harness/s3-servers.js';

const credentials = { accessKeyId: 'key', secretAccessKey: 'secret' };
const failure = (status: number, code: string): Answer => ({
  status,
  body: `<Error><Code>${code}</Code></Error>`,
});
const isOurPut = ({ method, path }: Asked): boolean =>
  method === 'PUT' && path.startsWith('/bucket/k');

function storeOf({ endpoint }: ScriptedServer, options = {}): FencedS3 {
  const client = new S3Client({
    endpoint,
    region: 'us-east-1',
    credentials,
    forcePathStyle: true,
    ...options,
  });
  return new FencedS3({ client, bucket: 'bucket' });
}

test('a server that refuses the checksums of the SDK is not called unsafe, and the cure works', async () => {
  for (const answer of [failure(501, 'NotImplemented'), failure(400, 'InvalidArgument')]) {
    const objects = inMemory({});
    await using server = await ScriptedServer.start((asked) =>
      asked.method === 'PUT' && 'x-amz-checksum-crc32' in asked.headers ? answer : objects(asked),
    );
    const put = storeOf(server).put('k', 'x', { token: 1 });
    await expect(put).rejects.toThrow(StoreSetupError);
    await expect(put).rejects.toThrow("requestChecksumCalculation: 'WHEN_REQUIRED'");
    const cured = storeOf(server, { requestChecksumCalculation: 'WHEN_REQUIRED' });
    await cured.put('k', 'x', { token: 1 });
  }
});

test.each([
  [403, 'RequestTimeTooSkewed', StoreSetupError, 'the clock'],
  [400, 'XAmzContentSHA256Mismatch', StoreSetupError, 'not the one that was signed'],
  [400, 'ExpiredToken', StoreSetupError, 'the session has expired'],
  [307, 'TemporaryRedirect', StoreUnavailableError, 'TemporaryRedirect'],
] as const)('%d %s once is nothing, and always is a refusal for certain', async (...row) => {
  const [status, code, kind, reason] = row;
  const objects = inMemory({});
  let refusals = 0;
  await using server = await ScriptedServer.start((asked) =>
    isOurPut(asked) && refusals-- > 0 ? failure(status, code) : objects(asked),
  );
  const store = storeOf(server);
  await store.put('k', '1', { token: 1 });
  refusals = 1;
  await store.put('k', '2', { token: 1 });
  refusals = Number.POSITIVE_INFINITY;
  const puts = server.asked.filter(isOurPut).length;
  const put = store.put('k', '3', { token: 1 });
  await expect(put).rejects.toThrow(kind);
  await expect(put).rejects.toThrow(reason);
  expect(server.asked.filter(isOurPut).length - puts).toBe(6);
  expect(await store.get('k')).toMatchObject({ body: Buffer.from('2') });
});

test('a server that always answers 409 is asked twelve times', async () => {
  const objects = inMemory({});
  let isBusy = false;
  await using server = await ScriptedServer.start((asked) =>
    isBusy && isOurPut(asked) ? failure(409, 'OperationAborted') : objects(asked),
  );
  const store = storeOf(server);
  await store.put('k', '1', { token: 1 });
  isBusy = true;
  const puts = server.asked.filter(isOurPut).length;
  await expect(store.put('k', '2', { token: 1 })).rejects.toMatchObject({
    code: 'outcome-unknown',
    cause: { message: expect.stringContaining('OperationAborted') },
  });
  expect(server.asked.filter(isOurPut).length - puts).toBe(12);
});

test.each([
  ['the object itself', { status: 200, body: Buffer.from('1f8b08<', 'latin1') }],
  ['a page', { status: 200, body: '<html><p>Welcome</html>' }],
  ['a code of its own', failure(404, 'NoSuchSubresource')],
] as const)('a claim names GetObjectAcl if its answer is %s', async (_, acl) => {
  await using server = await ScriptedServer.start(inMemory({ acl }));
  const store = storeOf(server);
  await store.put('k', 'x', { token: 1 });
  const claim = store.claim('k', { token: 2 });
  await expect(claim).rejects.toThrow(UnsupportedByStoreError);
  await expect(claim).rejects.toThrow('GetObjectAcl');
  expect(await store.highest('k')).toBe(1n);
  await store.update('k', { token: 2 }, () => 'y');
});
