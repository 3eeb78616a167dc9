import { S3Client } from '@aws-sdk/client-s3';
import { StaleTokenError, UnsafeStoreError, UnsupportedByStoreError } from '@fenced/store';
import { FencedS3, type FencedS3Options } from '@fenced/store/s3';
import { expect, test } from 'vitest';
import { type Answer, type Betrayal, inMemory, ScriptedServer } from './harness/s3-servers.js';

const credentials = { accessKeyId: 'key', secretAccessKey: 'secret' };
const storeOf = (
  { endpoint }: ScriptedServer,
  options: Partial<FencedS3Options> = {},
): FencedS3 => {
  const client = new S3Client({ endpoint, region: 'us-east-1', credentials, forcePathStyle: true });
  return new FencedS3({ client, bucket: 'bucket', ...options });
};

// `servers.test.ts` has the same for real servers, whose ETags are digests.
test('without digests as ETags, too, a stale write that gets the reply to a newer one stays stale', async () => {
  const objects = inMemory({ etags: 'new' });
  let isShifted = false;
  let latest: Answer | undefined;
  await using server = await ScriptedServer.start(async (asked) => {
    const answer = await objects(asked);
    if (asked.method !== 'PUT' || !asked.path.startsWith('/bucket/k')) return answer;
    if (isShifted && latest) return latest;
    latest = answer;
    return answer;
  });
  const [stale, newer] = [storeOf(server), storeOf(server)];
  await stale.put('k', 'first', { token: 5 });
  await newer.put('k', 'newer', { token: 7 });
  isShifted = true;
  for (const _ of [1, 2])
    await expect(stale.put('k', 'stale', { token: 5 })).rejects.toThrow(StaleTokenError);
  expect(await newer.get('k')).toMatchObject({ token: 7n, body: Buffer.from('newer') });
});

test('in the layout plain, a change of the default encryption lets no stale write in', async () => {
  const betrayal: { encryption: 'aws:kms' | 'AES256' } = { encryption: 'aws:kms' };
  await using server = await ScriptedServer.start(inMemory(betrayal));
  const make = () => storeOf(server, { layout: 'plain' });
  expect(await make().probe()).toMatchObject({ distinctEtags: true });
  betrayal.encryption = 'AES256';
  const [stale, newer] = [make(), make()];
  await stale.put('k', 'same', { token: 5 });
  await newer.put('k', 'same', { token: 7 });
  await expect(stale.put('k', 'same', { token: 5 })).rejects.toThrow(StaleTokenError);
  await newer.claim('k', { token: 8 });
  await expect(newer.put('k', 'same', { token: 7 })).rejects.toThrow(StaleTokenError);
  expect(await make().get('k')).toMatchObject({ token: 8n, body: Buffer.from('same') });
});

test('in the layout plain, a server whose ETags change withdraws its certificate for everybody', async () => {
  const betrayal: { -readonly [Fault in keyof Betrayal]: Betrayal[Fault] } = { etags: 'new' };
  await using server = await ScriptedServer.start(inMemory(betrayal));
  const make = () => storeOf(server, { layout: 'plain' });
  const store = make();
  await store.put('k', 'same', { token: 5 });
  // Nothing that a write could send keeps the ETags of this server different.
  delete betrayal.etags;
  betrayal.encryption = 'AES256';
  await store.put('k', 'next', { token: 5 });
  for (const by of [store, make()])
    await expect(by.put('k', 'same', { token: 6 })).rejects.toThrow(UnsupportedByStoreError);
});

test('a write that was sent twice is applied if the second copy meets a fault, and only then', async () => {
  const objects = inMemory({});
  let copies = 1;
  let fault: Answer | undefined;
  await using server = await ScriptedServer.start(async (asked) => {
    const isOurs = asked.method === 'PUT' && asked.path.startsWith('/bucket/k');
    if (!isOurs || !fault) return objects(asked);
    if (copies === 2) await objects(asked);
    return fault;
  });
  const store = storeOf(server);
  await store.put('k', '1', { token: 1 });
  for (const status of [302, 400, 403, 404, 405, 413, 501]) {
    fault = { status, body: '<Error><Code>Refused</Code></Error>' };
    copies = 2;
    const { writeId } = await store.update('k', { token: 1 }, (old) => `${old?.body}2`);
    expect(await store.get('k')).toMatchObject({ writeId });
    copies = 1;
    await expect(store.put('k', 'x', { token: 1 })).rejects.toMatchObject({
      code: expect.stringMatching(/^(store-setup|unsupported)$/),
    });
    expect(await store.get('k')).toMatchObject({ writeId });
  }
});

test('a failed probe counts for all, until somebody asks for another probe', async () => {
  const betrayal = { ignoresMatch: false };
  await using server = await ScriptedServer.start(inMemory(betrayal));
  /** A new process. Returns true if it probed the server. */
  const probes = async (options: { readonly renew?: boolean } = {}): Promise<boolean> => {
    const before = server.asked.length;
    await storeOf(server).probe(options);
    return server.asked.slice(before).some(({ path }) => path.includes('/race?'));
  };
  await storeOf(server).put('k', 'x', { token: 1 });
  expect(await probes()).toBe(false);
  betrayal.ignoresMatch = true;
  await expect(storeOf(server).probe({ renew: true })).rejects.toThrow(UnsafeStoreError);
  // A lucky probe would pass now.
  betrayal.ignoresMatch = false;
  await expect(probes()).rejects.toThrow(UnsafeStoreError);
  expect(await probes({ renew: true })).toBe(true);
  expect(await probes()).toBe(false);
});
