import { execFileSync } from 'node:child_process';
import {
  CreateBucketCommand,
  GetObjectCommand,
  ListObjectsV2Command,
  PutBucketPolicyCommand,
  PutObjectCommand,
  S3Client,
} from '@aws-sdk/client-s3';
import { ConflictError, CorruptObjectError, StaleTokenError } from '@fenced/store';
import { type Current, FencedS3, type Written } from '@fenced/store/s3';
import { type S3Service, startS3 } from '@fenced/testbed';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';

const bucket = `fenced-${Date.now()}`;
let service: S3Service;
let client: S3Client;
let holder33: FencedS3;
let holder34: FencedS3;
let keys = 0;
const newKey = (): string => `object ${++keys}/ä?&.txt`;
const text = (current: Current | null): string | null =>
  current && Buffer.from(current.body).toString();

beforeAll(async () => {
  service = await startS3();
  client = new S3Client({ ...service, credentials: service, forcePathStyle: true });
  await client.send(new CreateBucketCommand({ Bucket: bucket }));
  holder33 = new FencedS3({ client, bucket });
  holder34 = new FencedS3({ client, bucket });
});

afterAll(() => service.stop());

async function raw(key: string) {
  const { Body, ETag, Metadata } = await client.send(
    new GetObjectCommand({ Bucket: bucket, Key: key }),
  );
  return { bytes: (await Body?.transformToByteArray()) ?? new Uint8Array(), ETag, Metadata };
}

test('the server enforces what the store needs, and nothing of the probe is left behind', async () => {
  const { etagForm, checks } = await holder33.probe();
  expect(['quoted', 'bare']).toContain(etagForm);
  expect(checks).toContain('race-of-updates');
  const left = await client.send(
    new ListObjectsV2Command({ Bucket: bucket, Prefix: '.fenced-probe/' }),
  );
  expect(left.KeyCount).toBe(0);
});

test("a paused holder's write arrives after the next holder's, and is refused", async () => {
  const key = newKey();
  await holder33.put(key, 'from 33', { token: 33 });
  await holder34.put(key, 'from 34', { token: 34 });
  const before = await raw(key);
  for (const late of [
    () => holder33.put(key, 'late', { token: 33 }),
    () => holder33.update(key, { token: 33 }, () => 'late'),
    () => holder33.claim(key, { token: 33 }),
    () => holder33.get(key, { token: 33 }),
  ])
    await expect(late()).rejects.toMatchObject({
      code: 'stale-token',
      resource: key,
      presented: 33n,
      highest: 34n,
    });
  expect(await raw(key)).toEqual(before);
});

test('a holder that is paused between reading and writing is refused', async () => {
  const key = newKey();
  await holder33.put(key, 'first', { token: 33 });
  let edits = 0;
  const late = holder33.update(key, { token: 33 }, async (current) => {
    edits++;
    await holder34.put(key, 'from 34', { token: 34 });
    return `${text(current)} and late`;
  });
  await expect(late).rejects.toThrow(StaleTokenError);
  expect(edits).toBe(1);
  expect(text(await holder34.get(key))).toBe('from 34');
});

test('a holder that is stale already does not get to compute anything', async () => {
  const key = newKey();
  await holder34.put(key, 'from 34', { token: 34 });
  const edit = () => expect.fail('called');
  await expect(holder33.update(key, { token: 33 }, edit)).rejects.toThrow(StaleTokenError);
});

test('the same bytes written again are another version (ABA)', async () => {
  const key = newKey();
  const versions = [(await holder33.put(key, 'A', { token: 33 })).version];
  const late = holder33.update(key, { token: 33 }, async () => {
    versions.push((await holder34.put(key, 'B', { token: 34 })).version);
    versions.push((await holder34.put(key, 'A', { token: 35 })).version);
    versions.push((await holder34.put(key, 'A', { token: 35 })).version);
    return 'late';
  });
  await expect(late).rejects.toMatchObject({ code: 'stale-token', highest: 35n });
  expect(new Set(versions).size).toBe(4);
  expect(await holder33.get(key)).toMatchObject({ token: 35n, version: versions[3] });
});

test('a holder may write again and again with its token, and the next one goes on from there', async () => {
  const key = newKey();
  for (const token of [33, '33', 33n, 33, 40]) await holder33.put(key, `${token}`, { token });
  expect(await holder33.highest(key)).toBe(40n);
  expect(text(await holder34.get(key))).toBe('40');
});

test('increments by several workers at once are all there in the end', async () => {
  const key = newKey();
  const workers = Array.from(
    { length: 6 },
    () => new FencedS3({ client, bucket, attemptsMax: 200 }),
  );
  const increment = (current: Current | null): string => String(Number(text(current) ?? 0) + 1);
  const written: Written[] = [];
  await Promise.all(
    workers.map(async (worker) => {
      for (let i = 0; i < 5; i++) written.push(await worker.update(key, { token: 7 }, increment));
    }),
  );
  expect(text(await holder33.get(key))).toBe('30');
  expect(new Set(written.map(({ writeId }) => writeId)).size).toBe(30);
});

test('an update that keeps losing gives up with a conflict, and its value is nowhere', async () => {
  const key = newKey();
  const losing = holder33.update(key, { token: 5, attemptsMax: 3 }, async () => {
    await holder34.put(key, 'other', { token: 5 });
    return 'losing';
  });
  await expect(losing).rejects.toThrow(ConflictError);
  await expect(losing).rejects.toMatchObject({ attempts: 3 });
  expect(text(await holder34.get(key))).toBe('other');
});

test('what the computation throws is passed on, and nothing is written', async () => {
  const key = newKey();
  const { version } = await holder33.put(key, 'kept', { token: 1 });
  const own = new Error('no');
  await expect(holder33.update(key, { token: 2 }, () => Promise.reject(own))).rejects.toBe(own);
  expect(await holder33.get(key)).toMatchObject({ version, token: 1n });
});

test('a claim keeps the value and refuses lower tokens from then on', async () => {
  const key = newKey();
  const kept = { contentType: 'text/plain', cacheControl: 'no-store', metadata: { author: 'ada' } };
  await holder33.put(key, 'value', { token: 33, ...kept });
  await holder34.claim(key, { token: 34 });
  const claimed = await holder34.get(key);
  expect(claimed).toMatchObject({ token: 34n, ...kept });
  expect(text(claimed)).toBe('value');
  await expect(holder33.put(key, 'late', { token: 33 })).rejects.toThrow(StaleTokenError);
  await holder34.claim(key, { token: 34 });
  expect(await holder34.get(key)).toEqual(claimed);
});

test('a fenced read tells the value and refuses lower tokens from then on', async () => {
  const key = newKey();
  await holder33.put(key, 'value', { token: 33 });
  const read = await holder34.get(key, { token: 34 });
  expect(text(read)).toBe('value');
  expect(read).toEqual(await holder34.get(key));
  await expect(holder33.put(key, 'late', { token: 33 })).rejects.toThrow(StaleTokenError);
});

test('a claim of what does not exist refuses lower tokens, and there is still no value', async () => {
  const key = newKey();
  expect(await holder34.highest(key)).toBe(0n);
  expect(await holder34.get(key, { token: 34 })).toBeNull();
  expect(await holder34.highest(key)).toBe(34n);
  await expect(holder33.put(key, 'late', { token: 33 })).rejects.toThrow(StaleTokenError);
  await holder34.claim(key, { token: 35 });
  await holder34.update(key, { token: 35 }, (current) => `${current}`);
  expect(text(await holder34.get(key))).toBe('null');
});

test('metadata that fits the first write fits every later one', async () => {
  const metadata = Object.fromEntries(
    Array.from({ length: 52 }, (_, i) => [`name-${i + 10}`, '7 bytes']),
  );
  const key = newKey();
  for (let i = 0; i < 20; i++) await holder33.put(key, `${i}`, { token: 1, metadata });
  await holder34.claim(key, { token: 2n ** 63n - 1n });
  expect(await holder34.get(key)).toMatchObject({ metadata });
});

test('headers that an update does not give stay as they were', async () => {
  const key = newKey();
  await holder33.put(key, 'a', {
    token: 1,
    contentType: 'text/plain',
    metadata: { author: 'ada' },
  });
  await holder33.update(key, { token: 1 }, () => ({ body: 'b', contentType: 'text/html' }));
  expect(await holder33.get(key)).toMatchObject({
    contentType: 'text/html',
    metadata: { author: 'ada' },
  });
});

test('every HTTP client and gunzip read the exact bytes', async () => {
  const key = 'public.txt';
  const body = 'Schrödinger\n'.repeat(1000);
  await holder33.put(key, body, { token: 33, contentType: 'text/plain' });
  const { bytes } = await raw(key);
  expect(execFileSync('gunzip', ['-c'], { input: bytes }).toString()).toBe(body);
  const Statement = [
    {
      Effect: 'Allow',
      Principal: '*',
      Action: 's3:GetObject',
      Resource: `arn:aws:s3:::${bucket}/${key}`,
    },
  ];
  const Policy = JSON.stringify({ Version: '2012-10-17', Statement });
  await client.send(new PutBucketPolicyCommand({ Bucket: bucket, Policy }));
  const response = await fetch(`${service.endpoint}/${bucket}/${key}`);
  expect(response.headers.get('content-encoding')).toBe('gzip');
  expect(await response.text()).toBe(body);
});

test('what others wrote is neither read nor overwritten', async () => {
  const key = newKey();
  const foreign = { Bucket: bucket, Key: key, Body: 'plain' };
  await client.send(new PutObjectCommand(foreign));
  for (const call of [
    () => holder33.get(key),
    () => holder33.highest(key),
    () => holder33.put(key, 'x', { token: 1 }),
    () => holder33.claim(key, { token: 1 }),
    () => holder33.update(key, { token: 1 }, () => 'x'),
  ])
    await expect(call()).rejects.toThrow(CorruptObjectError);
  expect(Buffer.from((await raw(key)).bytes).toString()).toBe('plain');
});

test('an object whose bytes and metadata are of different writes is corrupt', async () => {
  const [one, two] = [newKey(), newKey()];
  await holder33.put(one, 'one', { token: 1 });
  await holder33.put(two, 'two', { token: 1 });
  const [{ bytes }, { Metadata }] = [await raw(one), await raw(two)];
  await client.send(new PutObjectCommand({ Bucket: bucket, Key: one, Body: bytes, Metadata }));
  await expect(holder33.get(one)).rejects.toThrow('different writes');
});

type Step = readonly [holder: number, kind: 'put' | 'update' | 'claim', token: bigint];
const steps = fc.array(
  fc.tuple(fc.nat(2), fc.constantFrom('put', 'update', 'claim'), fc.bigInt({ min: 1n, max: 5n })),
  { minLength: 1, maxLength: 12 },
);

test('whatever the interleaving: accepted tokens never go down, and every call tells the truth', async () => {
  const holders = [holder33, holder34, new FencedS3({ client, bucket })];
  await fc.assert(
    fc.asyncProperty(fc.array(steps, { minLength: 1, maxLength: 2 }), async (batches) => {
      const key = newKey();
      const accepted = new Map<string, bigint>();
      const step = async ([holder, kind, token]: Step): Promise<void> => {
        const store = holders[holder] ?? expect.fail();
        const written = await (kind === 'put'
          ? store.put(key, 'p', { token })
          : kind === 'update'
            ? store.update(key, { token }, () => 'u')
            : store.claim(key, { token }));
        if (written) accepted.set(written.writeId, written.token);
      };
      let refused = 0;
      for (const batch of batches) {
        const low = await holder33.highest(key);
        for (const result of await Promise.allSettled(batch.map(step))) {
          if (result.status === 'fulfilled') continue;
          refused++;
          expect(result.reason).toBeInstanceOf(StaleTokenError);
        }
        expect(await holder33.highest(key)).toBeGreaterThanOrEqual(low);
      }
      const { Metadata = {} } = await raw(key);
      const chain = [Metadata['fencing-write'], ...(Metadata['fencing-before'] ?? '').split('.')];
      const tokens = chain.flatMap((id) => accepted.get(id ?? '') ?? []);
      expect(tokens).toEqual(tokens.toSorted((a, b) => Number(b - a)));
      const highest = batches.flat().reduce((top, [, , token]) => (token > top ? token : top), 0n);
      expect(await holder33.highest(key)).toBe(highest);
      if (chain.length <= 16) expect(tokens).toHaveLength(accepted.size);
      expect(refused + accepted.size).toBeLessThanOrEqual(batches.flat().length);
    }),
    { numRuns: 12 },
  );
});
