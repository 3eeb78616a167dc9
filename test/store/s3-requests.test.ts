import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { Readable } from 'node:stream';
import { S3Client } from '@aws-sdk/client-s3';
import { InvalidArgumentError } from '@fenced/store';
import { FencedS3, type FencedS3Options } from '@fenced/store/s3';
import { expect, test } from 'vitest';
import { type Answer, type Asked, inMemory, ScriptedServer } from './harness/s3-servers.js';

const docs = readFileSync(new URL('../../docs/s3-servers.md', import.meta.url), 'utf8');
const credentials = { accessKeyId: 'key', secretAccessKey: 'secret' };
const MIB5 = 5 * 2 ** 20;
const OWNER = '111122223333';
const RETAIN_UNTIL_MS = 4_102_444_800_000;

/** Starts a server like `inMemory`, which also has listings, and tags on each object. */
async function start({ tags = true } = {}): Promise<ScriptedServer> {
  const objects = inMemory({});
  return ScriptedServer.start(async (asked: Asked): Promise<Answer> => {
    const { method, path, headers } = asked;
    if (method === 'GET' && path.includes('list-type=2'))
      return {
        status: 200,
        body: '<ListBucketResult><Contents><Key>k</Key></Contents></ListBucketResult>',
      };
    if (method === 'GET' && path.includes('?tagging'))
      return {
        status: 200,
        body: '<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>',
      };
    const answer = await objects(asked);
    const isRead = (method === 'GET' || method === 'HEAD') && answer.status === 200;
    if (!tags || !isRead || headers.range !== undefined) return answer;
    return { ...answer, headers: { ...answer.headers, 'x-amz-tagging-count': '1' } };
  });
}

function storeOf(server: ScriptedServer, options: Partial<FencedS3Options>): FencedS3 {
  const { endpoint } = server;
  const client = new S3Client({ endpoint, region: 'us-east-1', credentials, forcePathStyle: true });
  return new FencedS3({ client, bucket: 'bucket', partBytes: MIB5, ...options });
}

/** Calls that send every kind of request. */
async function everyCall(store: FencedS3): Promise<void> {
  await store.probe();
  const objectLock = {
    ...({ mode: 'COMPLIANCE', legalHold: true, retainUntilMs: RETAIN_UNTIL_MS } as const),
  };
  await store.put('k', 'value', { token: 1, objectLock });
  await store.put('large', Readable.from([randomBytes(3 * MIB5)]), { token: 1, objectLock });
  await store.update('k', { token: 2 }, () => 'next');
  await store.claim('k', { token: 3 });
  await store.claimAndGet('k', { token: 4 });
  await store.get('k');
  await store.stat('k');
  await store.highest('k');
  await Array.fromAsync(store.list());
  const failing = Readable.from(
    (async function* () {
      yield randomBytes(2 * MIB5);
      throw new Error('the source failed');
    })(),
  );
  await expect(store.put('large', failing, { token: 2 })).rejects.toThrow('the source failed');
  await store.delete('k', { token: 5 });
}

/** Names the kinds of requests as the S3 API does. */
function operationOf({ method, path }: Asked): string {
  const { searchParams } = new URL(path, 'http://here');
  if (searchParams.has('uploads')) return 'CreateMultipartUpload';
  if (searchParams.has('partNumber')) return 'UploadPart';
  if (searchParams.has('uploadId'))
    return method === 'POST' ? 'CompleteMultipartUpload' : 'AbortMultipartUpload';
  if (searchParams.has('list-type')) return 'ListObjectsV2';
  if (searchParams.has('tagging')) return 'GetObjectTagging';
  if (searchParams.has('acl')) return 'GetObjectAcl';
  return `${method[0]}${method.slice(1).toLowerCase()}Object`;
}

const OPERATIONS = [
  ...['AbortMultipartUpload', 'CompleteMultipartUpload', 'CreateMultipartUpload', 'DeleteObject'],
  ...['GetObject', 'GetObjectAcl', 'GetObjectTagging', 'HeadObject', 'ListObjectsV2', 'PutObject'],
  'UploadPart',
];
const BEGINS_AN_OBJECT = ['CreateMultipartUpload', 'PutObject'];

/** The values of a header by kind of request; null if it was not sent. */
function sent(asked: readonly Asked[], name: string): Record<string, readonly unknown[]> {
  const found: Record<string, Set<unknown>> = {};
  for (const one of asked) {
    const operation = operationOf(one);
    found[operation] ??= new Set();
    found[operation].add(one.headers[name] ?? null);
  }
  return Object.fromEntries(Object.entries(found).map(([name, values]) => [name, [...values]]));
}

const everywhere = (value: unknown) =>
  Object.fromEntries(OPERATIONS.map((operation) => [operation, [value]]));
const whereItBegins = (value: unknown) =>
  Object.fromEntries(
    OPERATIONS.map((operation) => [
      operation,
      [BEGINS_AN_OBJECT.includes(operation) ? value : null],
    ]),
  );

test('without options, no request contains owner, payer or encryption', async () => {
  await using server = await start();
  await everyCall(storeOf(server, {}));
  for (const name of [
    ...['x-amz-expected-bucket-owner', 'x-amz-request-payer', 'x-amz-server-side-encryption'],
    ...['x-amz-server-side-encryption-aws-kms-key-id', 'x-amz-server-side-encryption-customer-key'],
  ])
    expect(sent(server.asked, name)).toEqual(everywhere(null));
});

test('owner and payer are sent with each request, also of the probe', async () => {
  await using server = await start();
  await everyCall(storeOf(server, { expectedBucketOwner: OWNER, requesterPays: true }));
  expect(sent(server.asked, 'x-amz-expected-bucket-owner')).toEqual(everywhere(OWNER));
  expect(sent(server.asked, 'x-amz-request-payer')).toEqual(everywhere('requester'));
});

test.each([
  [{ algorithm: 'AES256' }, null],
  [{ algorithm: 'aws:kms', kmsKeyId: 'key-1' }, 'key-1'],
  [{ algorithm: 'aws:kms:dsse' }, null],
] as const)(
  'encryption %j is sent with each request that begins an object',
  async (encryption, keyId) => {
    await using server = await start();
    await everyCall(storeOf(server, { encryption }));
    const name = 'x-amz-server-side-encryption';
    expect(sent(server.asked, name)).toEqual(whereItBegins(encryption.algorithm));
    expect(sent(server.asked, `${name}-aws-kms-key-id`)).toEqual(whereItBegins(keyId));
  },
);

/** Dollars for a million requests. */
function dollars(operation: string): number {
  return /^(Get|Head)/.test(operation) ? 0.4 : 5;
}

/** The table of docs/s3-servers.md that says what each call costs. */
const COSTS = [
  ...docs
    .slice(docs.indexOf('## What each call costs'))
    .matchAll(/^\| (.*) \| (\d.*) \| ([\d.]+) \$ \|$/gm),
].map(([, ...cells]) => cells);

test('each call sends the requests that docs/s3-servers.md counts', async () => {
  await using server = await start({ tags: false });
  const mebibytes = (count: number) => () => Readable.from([randomBytes(count * 2 ** 20)]);
  const prober = storeOf(server, {});
  await prober.probe();
  await prober.put('large', mebibytes(15), { token: 1 });
  const store = storeOf(server, {});
  const measured: string[][] = [];
  const count = async (name: string, call: () => Promise<unknown>): Promise<void> => {
    server.asked.length = 0;
    await call();
    const operations = Map.groupBy(server.asked.map(operationOf), (operation) => operation);
    const texts = [...operations].map(([operation, { length }]) => `${length} ${operation}`);
    const costs = [...operations].map(([operation, { length }]) => dollars(operation) * length);
    const sum = costs.reduce((left, right) => left + right);
    measured.push([name, texts.join(', '), sum.toFixed(2)]);
  };
  await count('the first write of a process', () => store.put('k', 'x', { token: 1 }));
  await count('`put` of a key that the process wrote or read', () =>
    store.put('k', 'x', { token: 1 }),
  );
  await count('`put` of another key', () => store.put('l', 'x', { token: 1 }));
  await count('`put` of a stream, stored in 4 parts', () =>
    store.put('large', mebibytes(15), { token: 1 }),
  );
  await count('`update`', () => store.update('l', { token: 1 }, () => 'y'));
  await count('`get`, `getStream`', () => store.get('k'));
  await count('`stat`, `highest`', () => store.stat('k'));
  await count('`claim` under a higher token', () => store.claim('k', { token: 2 }));
  await count('`claim` under the same token', () => store.claim('k', { token: 2 }));
  await count('`claimAndGet` under a higher token', () => store.claimAndGet('k', { token: 3 }));
  await count('`delete` of a key that the process wrote or read', () =>
    store.delete('k', { token: 3 }),
  );
  await count('`list` of one key', () => Array.fromAsync(store.list()));
  expect(measured).toEqual(COSTS);
});

test('the verdict of a probe counts for one kind of encryption, because ETags depend on it', async () => {
  await using server = await start();
  await storeOf(server, { encryption: { algorithm: 'aws:kms' } }).probe();
  const puts = server.count('PUT');
  await storeOf(server, { encryption: { algorithm: 'aws:kms' } }).probe();
  expect(server.count('PUT')).toBe(puts);
  await storeOf(server, {}).probe();
  expect(server.count('PUT')).toBeGreaterThan(puts + 10);
});

test('Object Lock is sent only with the writes that ask for it', async () => {
  await using server = await start();
  await everyCall(storeOf(server, {}));
  const locked = server.asked.filter(({ headers }) => headers['x-amz-object-lock-mode']);
  expect(locked.map((asked) => `${operationOf(asked)} ${asked.path.split('?')[0]}`)).toEqual([
    'PutObject /bucket/k',
    'CreateMultipartUpload /bucket/large',
  ]);
  for (const { headers } of locked)
    expect(headers).toMatchObject({
      'x-amz-object-lock-mode': 'COMPLIANCE',
      'x-amz-object-lock-retain-until-date': '2100-01-01T00:00:00Z',
      'x-amz-object-lock-legal-hold': 'ON',
    });
});

test.each([
  { encryption: 'AES256' },
  { encryption: { algorithm: 'aes' } },
  { encryption: { algorithm: 'AES256', kmsKeyId: 'key-1' } },
  { encryption: { algorithm: 'aws:kms', kmsKeyId: '' } },
  { expectedBucketOwner: '' },
  { expectedBucketOwner: 111122223333 },
  { requesterPays: 'requester' },
])('%j is refused before anything is sent', (options) => {
  const client = { send: () => Promise.reject(new Error('sent')) };
  const given = { client, bucket: 'bucket', ...options } as unknown as FencedS3Options;
  expect(() => new FencedS3(given)).toThrow(InvalidArgumentError);
});

test.each([
  { mode: 'GOVERNANCE' },
  { retainUntilMs: 1 },
  { mode: 'governance', retainUntilMs: 1 },
  { mode: 'GOVERNANCE', retainUntilMs: 1.5 },
  { legalHold: 'ON' },
  'COMPLIANCE',
])('the Object Lock %j is refused before anything is sent', async (objectLock) => {
  await using server = await start();
  const options = { token: 1, objectLock } as unknown as { token: number };
  await expect(storeOf(server, {}).put('k', 'x', options)).rejects.toThrow(InvalidArgumentError);
  expect(server.asked).toEqual([]);
});
