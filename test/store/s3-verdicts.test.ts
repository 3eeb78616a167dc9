import { randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import { S3Client } from '@aws-sdk/client-s3';
import { UnsafeStoreError } from '@fenced/store';
import { FencedS3, type FencedS3Options, type Runtime } from '@fenced/store/s3';
import { expect, test } from 'vitest';
import { type Asked, type Betrayal, inMemory, ScriptedServer } from './harness/s3-servers.js';

const MIB5 = 5 * 2 ** 20;
const credentials = { accessKeyId: 'key', secretAccessKey: 'secret' };

/** A new process, as far as the server can tell. */
function processOf(
  { endpoint }: ScriptedServer,
  options: Partial<FencedS3Options> = {},
  runtime?: Runtime,
): FencedS3 {
  const client = new S3Client({ endpoint, region: 'us-east-1', credentials, forcePathStyle: true });
  return new FencedS3({ client, bucket: 'bucket', partBytes: MIB5, ...options }, runtime);
}

const isOurs = ({ method, path }: Asked): boolean =>
  method !== 'GET' && method !== 'HEAD' && path.startsWith('/bucket/k');
const isProbe = ({ path }: Asked): boolean => path.includes('/race?');

test('a failure is kept for every process, whatever a lucky probe would say', async () => {
  let isLucky = false;
  const server = inMemory({ letsTwoWin: () => !isLucky });
  await using scripted = await ScriptedServer.start(server);
  await expect(processOf(scripted).put('k', 'x', { token: 1 })).rejects.toThrow(UnsafeStoreError);
  isLucky = true;
  const asked = scripted.asked.length;
  for (let i = 0; i < 3; i++) {
    const put = processOf(scripted).put('k', 'x', { token: 1 });
    await expect(put).rejects.toMatchObject({ code: 'unsafe-store', check: 'race-of-creates' });
    await expect(put).rejects.toThrow('probe({ renew: true })');
  }
  expect(scripted.asked.slice(asked).filter(isProbe)).toEqual([]);
  expect(scripted.asked.filter(isOurs)).toEqual([]);
  // Only a probe that is asked for withdraws it, for the next process, too.
  await processOf(scripted).probe({ renew: true });
  await processOf(scripted).put('k', 'x', { token: 1 });
});

test('a way of writing that failed once is not used again, by any process', async () => {
  // SeaweedFS: two completions of one version succeed in some races only.
  const betrayal = { completesForAll: true };
  await using server = await ScriptedServer.start(inMemory(betrayal));
  const put = (token: number) =>
    processOf(server).put('k', Readable.from([randomBytes(2 * MIB5)]), { token });
  await put(1);
  betrayal.completesForAll = false;
  const posts = () => server.asked.filter(({ method }) => method === 'POST').length;
  const before = posts();
  expect(before).toBeGreaterThan(0);
  await put(2);
  expect(posts()).toBe(before);
  await processOf(server).probe({ renew: true });
  await put(3);
  expect(server.asked.filter((asked) => asked.method === 'POST' && isOurs(asked))).toHaveLength(2);
});

test('a bucket that keeps versions now is known by the certificate itself, before any write', async () => {
  const betrayal: { -readonly [Name in keyof Betrayal]: Betrayal[Name] } = {};
  const objects = inMemory(betrayal);
  let isVersioned = false;
  await using server = await ScriptedServer.start(async (asked) => {
    const { headers, ...answer } = await objects(asked);
    const isObject = asked.method !== 'DELETE' && answer.status === 200;
    return {
      ...answer,
      headers: { ...headers, ...(isVersioned && isObject && { 'x-amz-version-id': 'null' }) },
    };
  });
  await processOf(server).probe();
  // Ceph 16 ignores If-None-Match from then on.
  betrayal.ignoresNoneMatch = true;
  isVersioned = true;
  await expect(processOf(server).put('k', 'x', { token: 1 })).rejects.toThrow(UnsafeStoreError);
  expect(server.asked.filter(isOurs)).toEqual([]);
});

test('a process that runs learns within a minute that another one saw the server fail', async () => {
  let isLucky = true;
  await using server = await ScriptedServer.start(inMemory({ letsTwoWin: () => !isLucky }));
  let laterMs = 0;
  const runtime: Runtime = {
    random: Math.random,
    wallClockMs: Date.now,
    nowMs: () => performance.now() + laterMs,
    writeId: () => randomBytes(16).toString('hex'),
    sleep: async () => undefined,
  };
  const running = processOf(server, {}, runtime);
  await running.put('k', 'x', { token: 1 });
  isLucky = false;
  await expect(processOf(server).probe({ renew: true })).rejects.toThrow(UnsafeStoreError);
  laterMs = 61_000;
  const puts = server.asked.filter(isOurs).length;
  await expect(running.put('k', 'y', { token: 1 })).rejects.toThrow(UnsafeStoreError);
  expect(server.asked.filter(isOurs)).toHaveLength(puts);
  isLucky = true;
  await processOf(server).probe({ renew: true });
  laterMs += 61_000;
  await running.put('k', 'y', { token: 1 });
});

test('a server that takes one write of a key each second is accepted', async () => {
  const objects = inMemory({});
  let clockMs = 0;
  const wroteAtMs = new Map<string, number>();
  // Cloudflare R2.
  await using server = await ScriptedServer.start((asked) => {
    const key = asked.path.replace(/\?.*/, '');
    if (asked.method !== 'PUT') return objects(asked);
    if (clockMs - (wroteAtMs.get(key) ?? Number.NEGATIVE_INFINITY) < 1_000)
      return { status: 429, body: '<Error><Code>TooManyRequests</Code></Error>' };
    wroteAtMs.set(key, clockMs);
    return objects(asked);
  });
  const runtime: Runtime = {
    random: Math.random,
    wallClockMs: Date.now,
    nowMs: () => clockMs,
    writeId: () => randomBytes(16).toString('hex'),
    sleep: async (durationMs, signal) => {
      // The limits of a wait have a signal. They are not reached here.
      if (signal) return new Promise(() => undefined);
      clockMs += durationMs;
    },
  };
  const store = processOf(server, {}, runtime);
  await store.put('k', 'x', { token: 1 });
  const probed = server.asked.filter(({ path }) => path.includes('.fenced-probe'));
  expect(probed.length).toBeLessThan(62);
  expect(clockMs).toBeLessThan(15_000);
  // Later writes wait for the server, too.
  await store.put('k', 'y', { token: 1 });
  await store.put('k', 'z', { token: 1 });
  expect(await store.get('k')).toMatchObject({ body: Buffer.from('z') });
});

test('the first write costs at most 62 requests', async () => {
  await using server = await ScriptedServer.start(inMemory({}));
  await processOf(server).put('k', 'x', { token: 1 });
  // HEAD and PUT of the caller's object included.
  expect(server.asked.length).toBeLessThanOrEqual(62);
});

test('two successes upon one version withdraw the certificate for everybody', async () => {
  const objects = inMemory({ etags: 'new' });
  let isLying = false;
  await using server = await ScriptedServer.start(async (asked) => {
    const answer = await objects(asked);
    if (!isLying || !isOurs(asked) || answer.status !== 412) return answer;
    isLying = false;
    return { status: 200, headers: { etag: '"never"' } };
  });
  const [one, other] = [processOf(server), processOf(server)];
  await one.put('k', '1', { token: 1 });
  await other.put('k', '2', { token: 1 });
  isLying = true;
  const before = server.asked.length;
  // It still names the first version.
  await one.put('k', '3', { token: 1 });
  expect(server.asked.slice(before).some(isProbe)).toBe(true);
  expect(await one.get('k')).toMatchObject({ body: Buffer.from('3') });
  // The note makes the next process probe, too.
  const asked = server.asked.length;
  await processOf(server).probe();
  expect(server.asked.slice(asked).some(isProbe)).toBe(true);
});
