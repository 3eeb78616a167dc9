import { randomBytes } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { Readable } from 'node:stream';
import { gzipSync } from 'node:zlib';
import { DeleteObjectCommand, PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import {
  CorruptObjectError,
  InvalidArgumentError,
  InvalidTokenError,
  OutcomeUnknownError,
  StaleTokenError,
  StoreSetupError,
  StoreUnavailableError,
  UnsafeStoreError,
  UnsupportedByStoreError,
} from '@fenced/store';
import {
  FencedS3,
  type FencedS3Options,
  type Runtime,
  type S3Body,
  type S3Calls,
} from '@fenced/store/s3';
import { type S3Service, startS3 } from '@fenced/testbed';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  type Answer,
  type Asked,
  type Betrayal,
  inMemory,
  ScriptedServer,
} from './harness/s3-servers.js';

const credentials = { accessKeyId: 'key', secretAccessKey: 'secret' };
const clientOf = (endpoint: string): S3Client =>
  new S3Client({ endpoint, region: 'us-east-1', credentials, forcePathStyle: true });
const storeOf = (
  endpoint: string,
  options: Partial<FencedS3Options> = {},
  runtime?: Runtime,
): FencedS3 => new FencedS3({ client: clientOf(endpoint), bucket: 'bucket', ...options }, runtime);
const aclGrant = (permission: string, grantee: string): string =>
  `<Grant><Grantee>${grantee}</Grantee><Permission>${permission}</Permission></Grant>`;
const aclWith = (grants: readonly string[]): Answer => ({
  status: 200,
  body: `<AccessControlPolicy><Owner><ID>me</ID></Owner><AccessControlList>${grants.join('')}</AccessControlList></AccessControlPolicy>`,
});
const aclOf = (permission: string, grantee: string): Answer =>
  aclWith([aclGrant(permission, grantee)]);
const MIB5 = 5 * 2 ** 20;
const runtime: Runtime = {
  random: Math.random,
  wallClockMs: Date.now,
  nowMs: () => performance.now(),
  writeId: () => randomBytes(16).toString('hex'),
  sleep: async () => undefined,
};

/** Returns true at each fifth call. */
const everyFifth = (): (() => boolean) => {
  let calls = 0;
  return () => ++calls % 5 === 0;
};

describe('servers that do not enforce conditions', () => {
  const betrayals: readonly (readonly [Betrayal, string])[] = [
    [{ ignoresNoneMatch: true }, 'create-again'],
    [{ ignoresMatch: true }, 'update-with-old-etag'],
    [{ ignoresNoneMatch: true, ignoresMatch: true }, 'create-again'],
    [{ createsUponMatch: true }, 'update-of-nothing'],
    [{ checksBeforeItWrites: true }, 'race-of-creates'],
    [{ server: 'Werkzeug/3.1.8 Python/3.11.7' }, 'race-of-creates'],
    [{ checksHeadersOnly: true }, 'race-of-creates'],
    [{ checksHeadersOnly: true, looksLate: true }, 'race-of-creates'],
    [{ ignoresEvery: 20 }, 'race-of-updates'],
    // Every fifth race has two winners, also those of which a loser is applied in silence.
    [{ letsTwoWin: everyFifth() }, 'races-of-two'],
    [{ etags: 'clock-4ms' }, 'etags-of-bodies'],
    [{ keepsLosers: true }, 'create-again'],
    [{ losesWrites: true }, 'update-with-current-etag'],
    [{ readsAreLate: true }, 'create'],
    [{ dropsMetadata: true }, 'create'],
    [{ etags: 'length' }, 'update-with-current-etag'],
    [{ etags: 'clock' }, 'races-of-two'],
    [{ etags: 'tail' }, 'etags-of-bodies'],
    [{ etags: 'none' }, 'etag'],
    [{ putsHaveNoEtag: true }, 'create'],
  ];
  test.each(betrayals)('%j: nothing of the caller is written', async (betrayal, check) => {
    await using server = await ScriptedServer.start(inMemory(betrayal));
    const store = storeOf(server.endpoint);
    for (const call of [
      () => store.put('k', 'x', { token: 1 }),
      () => store.put('k', Readable.from(['x']), { token: 1 }),
      () => store.update('k', { token: 1 }, () => 'x'),
      () => store.claim('k', { token: 1 }),
      () => store.delete('k', { token: 1 }),
      () => store.claimAndGet('k', { token: 1 }),
      () => store.claimAndGetStream('k', { token: 1 }),
      () => store.probe(),
    ])
      await expect(call()).rejects.toMatchObject({ name: 'UnsafeStoreError', check });
    expect(server.asked.filter(({ path }) => !path.startsWith('/bucket/.fenced-probe/'))).toEqual(
      [],
    );
  });

  test.each([
    { ignoresOnComplete: 'all' },
    { ignoresOnComplete: 'match' },
    { completesForAll: true },
  ] as const)(
    '%j: uploads are never completed, and small and large writes succeed',
    async (betrayal) => {
      await using server = await ScriptedServer.start(inMemory(betrayal));
      const store = storeOf(server.endpoint, { partBytes: MIB5, storedBytesMax: 3 * MIB5 });
      expect(await store.probe({ renew: true })).toMatchObject({ conditionalComplete: false });
      const completes = server.count('POST');
      await store.put('k', 'x', { token: 1 });
      const body = randomBytes(2 * MIB5);
      await store.put('k', Readable.from([body]), { token: 1 });
      expect(Buffer.compare((await store.get('k'))?.body ?? body.subarray(1), body)).toBe(0);
      const tooLarge = store.put('k', Readable.from([body, body]), { token: 1 });
      await expect(tooLarge).rejects.toThrow(UnsupportedByStoreError);
      expect(Buffer.compare((await store.get('k'))?.body ?? body.subarray(1), body)).toBe(0);
      expect(server.count('POST')).toBe(completes);
    },
  );

  test('the probe repeats its race if the overtaken write got no reply, because that proves nothing', async () => {
    const honest = inMemory({});
    let cuts = Number.POSITIVE_INFINITY;
    await using server = await ScriptedServer.start((asked) => {
      const isOvertaken = asked.path.includes('/race?') && asked.body.length > 10_000;
      return isOvertaken && cuts-- > 0 ? null : honest(asked);
    });
    const store = storeOf(server.endpoint);
    await expect(store.put('k', 'x', { token: 1 })).rejects.toThrow(StoreUnavailableError);
    cuts = 1;
    await store.put('k', 'x', { token: 1 });
    const { report } = await store.probe();
    expect(report.filter(({ answered }) => answered.includes('no reply'))).toEqual([]);
  });

  test('a server that refuses a large write early, and cuts its connection, is safe', async () => {
    const honest = inMemory({});
    let cuts = 3;
    await using server = await ScriptedServer.start((asked) => {
      const isLarge = asked.path.includes('/conditions') && asked.body.length > 10_000;
      return isLarge && cuts-- > 0 ? null : honest(asked);
    });
    await storeOf(server.endpoint).put('k', 'x', { token: 1 });
    // The probe did not repeat this race.
    const races = new Set(server.asked.flatMap(({ path }) => /[^/]+\/race/.exec(path) ?? []));
    expect(races.size).toBe(1);
  });

  test.each([
    ['large-put', () => LARGE],
    ['file-put', () => stream()],
  ] as const)(
    'a server that cuts each refused large write without an answer (MinIO) takes a %s',
    async (path, body) => {
      const honest = inMemory({ ignoresOnComplete: 'all' });
      let cuts = 0;
      await using server = await ScriptedServer.start(async (asked) => {
        const answer = await honest(asked);
        const isLate = answer.status === 412 && asked.body.length > MIB5;
        return isLate && asked.path.includes(`/${path}`) && ++cuts ? null : answer;
      });
      const store = storeOf(server.endpoint, { partBytes: MIB5 });
      await store.put('k', body(), { token: 1 });
      expect(cuts).toBeGreaterThan(0);
      expect(await store.get('k')).toMatchObject({ token: 1n });
    },
  );

  test('a check of uploads that gets no answers does not fail a stream, and is made again', async () => {
    const honest = inMemory({});
    let isDown = true;
    await using server = await ScriptedServer.start((asked) =>
      isDown && asked.path.includes('.fenced-probe') && asked.method === 'POST'
        ? null
        : honest(asked),
    );
    const store = storeOf(server.endpoint, { partBytes: MIB5 });
    await store.put('k', stream(), { token: 1 });
    expect(await store.get('k')).toMatchObject({ token: 1n });
    const ours = () =>
      server.asked.filter(({ method, path }) => method === 'POST' && /^.bucket.k/.test(path));
    expect(ours()).toEqual([]);
    isDown = false;
    await store.put('k', stream(), { token: 1 });
    expect(ours()).toHaveLength(2);
  });

  const LARGE = randomBytes(2 * 2 ** 20);
  const HUGE = randomBytes(2 * MIB5);
  const stream = () => Readable.from([HUGE]);
  const paths: readonly (readonly [Betrayal, string, S3Body | (() => S3Body)])[] = [
    [{ ignoresOn: 'large' }, 'large-put', LARGE],
    [{ ignoresOn: 'expect' }, 'large-put', LARGE],
    [{ ignoresOn: 'large', ignoresOnComplete: 'all' }, 'file-put', stream],
    [{ ignoresOn: 'expect', ignoresOnComplete: 'all' }, 'file-put', stream],
    [{ ignoresOn: 'unsigned', ignoresOnComplete: 'all' }, 'file-put', stream],
  ];
  test.each(paths)(
    '%j: no write of the kind %s is sent, and small writes succeed',
    async (betrayal, path, body) => {
      await using server = await ScriptedServer.start(inMemory(betrayal));
      const store = storeOf(server.endpoint, { partBytes: MIB5 });
      await store.put('k', 'x', { token: 1 });
      const asked = server.asked.length;
      const given = () => (typeof body === 'function' ? body() : body);
      for (const again of [false, true]) {
        if (again) await store.claim('k', { token: 2 });
        const put = store.put('k', given(), { token: 2 });
        await expect(put).rejects.toThrow(UnsupportedByStoreError);
        await expect(put).rejects.toThrow(`path=${path}`);
        await expect(put).rejects.toMatchObject({ cause: { code: 'unsafe-store' } });
      }
      const ours = server.asked.slice(asked).filter(({ path }) => path.startsWith('/bucket/k'));
      expect(ours.filter(({ body }) => body.length > 1_000)).toEqual([]);
      expect(await store.get('k')).toMatchObject({ body: Buffer.from('x'), token: 2n });
      await store.update('k', { token: 3 }, () => 'y');
      await store.put('k', Readable.from(['z']), { token: 3 });
      await expect(store.put('k', 'late', { token: 2 })).rejects.toThrow(StaleTokenError);
    },
  );

  test.each([{ ignoresOn: 'parts' }, { checksBeforeAssembly: true }] as const)(
    '%j: large streams go through a temporary file, and late ones are refused',
    async (betrayal) => {
      await using server = await ScriptedServer.start(inMemory(betrayal));
      const store = storeOf(server.endpoint, { partBytes: MIB5 });
      expect(await store.probe({ renew: true })).toMatchObject({ conditionalComplete: true });
      await store.put('k', 'x', { token: 1 });
      await store.put('k', stream(), { token: 1 });
      expect(Buffer.compare((await store.get('k'))?.body ?? Buffer.alloc(0), HUGE)).toBe(0);
      await store.put('k', LARGE, { token: 2 });
      await expect(store.put('k', stream(), { token: 1 })).rejects.toThrow(StaleTokenError);
      const ours = server.asked.filter(({ path }) => path.startsWith('/bucket/k'));
      expect(ours.filter(({ method }) => method === 'POST')).toEqual([]);
    },
  );

  /** The requests of the probe that check a kind of large write. */
  const checksOf = (server: ScriptedServer) =>
    server.asked.filter(
      ({ method, path }) => method === 'PUT' && /\/(large-put|file-put|upload)\?/.test(path),
    );

  test('a kind of large write is checked once, for many writers and for the next process', async () => {
    await using server = await ScriptedServer.start(inMemory({}));
    const store = storeOf(server.endpoint, { partBytes: MIB5 });
    await store.put('k', 'x', { token: 1 });
    expect(checksOf(server)).toEqual([]);
    const write = (by: FencedS3, i: number) => [
      by.put(`a${i}`, LARGE, { token: 1 }),
      by.put(`b${i}`, stream(), { token: 1 }),
    ];
    await Promise.all([1, 2, 3].flatMap((i) => write(store, i)));
    // Each run of a check has its own keys, so the keys count the runs.
    const runs = () => new Set(checksOf(server).map(({ path }) => path.split('?')[0])).size;
    expect(runs()).toBe(2);
    await Promise.all(write(store, 4));
    const next = storeOf(server.endpoint, { partBytes: MIB5 });
    await Promise.all(write(next, 5));
    expect(runs()).toBe(2);
    await next.probe({ renew: true });
    await Promise.all(write(next, 6));
    expect(runs()).toBe(4);
  });

  test('a caller that gives up does not end a check that other callers wait for', async () => {
    await using server = await ScriptedServer.start(inMemory({}));
    const store = storeOf(server.endpoint, { partBytes: MIB5 });
    await store.probe();
    const abort = new AbortController();
    const given = [LARGE, stream()].map((body, i) =>
      store.put(`a${i}`, body, { token: 1, signal: abort.signal }),
    );
    const kept = [LARGE, stream()].map((body, i) => store.put(`b${i}`, body, { token: 1 }));
    await expect.poll(() => checksOf(server).length).toBeGreaterThan(0);
    abort.abort(new Error('enough'));
    for (const put of given) await expect(put).rejects.toThrow('enough');
    for (const put of kept) await expect(put).resolves.toMatchObject({ token: 1n });
  });

  test.each([
    ['cuts the connection', null],
    ['answers 500', { status: 500 }],
  ] as const)(
    'a server that %s: nothing is learnt of a path, and the next call asks again',
    async (...row) => {
      const [, answer] = row;
      const honest = inMemory({});
      let failures = 0;
      const isCheck = ({ method, path }: Asked) =>
        method !== 'HEAD' && /\/(large-put|file-put|upload)\?/.test(path);
      await using server = await ScriptedServer.start((asked) =>
        isCheck(asked) && failures > 0 && failures-- ? answer : honest(asked),
      );
      const store = storeOf(server.endpoint, { partBytes: MIB5 });
      await store.probe();
      for (const [key, body] of [
        ['large', () => LARGE],
        ['stream', stream],
      ] as const) {
        failures = Number.POSITIVE_INFINITY;
        await expect(store.put(key, body(), { token: 1 })).rejects.toThrow(StoreUnavailableError);
        expect(await store.get(key)).toBeNull();
        failures = 1;
        await store.put(key, body(), { token: 1 });
        expect(await store.get(key)).toMatchObject({ token: 1n });
      }
    },
  );

  test.each([
    ['case', 'Report', 'report'],
    ['unicode', 'caf\u00e9', 'cafe\u0301'],
    ['plus', 'a+b', 'a b'],
    ['length', `${'x'.repeat(250)}/1`, `${'x'.repeat(250)}/2`],
  ] as const)(
    'keys folded by %s: no write or token goes to another key',
    async (folds, mine, other) => {
      await using server = await ScriptedServer.start(inMemory({ folds }));
      const store = storeOf(server.endpoint);
      await store.put(mine, 'mine', { token: 9 });
      for (const call of [
        () => store.put(other, 'x', { token: 10 }),
        () => store.put(other, Readable.from(['x']), { token: 1 }),
        () => store.update(other, { token: 10 }, () => 'x'),
        () => store.claim(other, { token: 10 }),
        () => store.delete(other, { token: 10 }),
        () => store.claimAndGet(other, { token: 10 }),
        () => store.get(other),
        () => store.getStream(other),
        () => store.highest(other),
      ]) {
        await expect(call()).rejects.toThrow(CorruptObjectError);
        await expect(call()).rejects.toThrow('written under another key');
      }
      expect(await store.get(mine)).toMatchObject({ body: Buffer.from('mine'), token: 9n });
      await store.put(mine, 'again', { token: 9 });
      await store.delete(mine, { token: 9 });
      // A deleted object still belongs to its key.
      await expect(store.put(other, 'x', { token: 10 })).rejects.toThrow(CorruptObjectError);
    },
  );

  test('of two creators of keys that the server folds, only one writes', async () => {
    await using server = await ScriptedServer.start(inMemory({ folds: 'case' }));
    const store = storeOf(server.endpoint);
    await store.probe();
    const keys = ['k', 'K'];
    const tried = await Promise.allSettled(keys.map((key) => store.put(key, key, { token: 1 })));
    const [won = ''] = keys.filter((_, i) => tried[i]?.status === 'fulfilled');
    expect(tried.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected']);
    expect(await store.get(won)).toMatchObject({ body: Buffer.from(won) });
  });

  test('the layout plain is refused if two writes of the same bytes have one ETag', async () => {
    await using server = await ScriptedServer.start(inMemory({}));
    const store = storeOf(server.endpoint, { layout: 'plain' });
    await expect(store.put('k', 'x', { token: 1 })).rejects.toThrow(UnsupportedByStoreError);
    await using distinct = await ScriptedServer.start(inMemory({ etags: 'new' }));
    const plain = storeOf(distinct.endpoint, { layout: 'plain' });
    await plain.put('k', 'x', { token: 1 });
    const put = distinct.asked.findLast(({ method }) => method === 'PUT');
    expect(put).toMatchObject({ body: Buffer.from('x') });
    await plain.claim('k', { token: 2 });
    expect(await plain.get('k')).toMatchObject({ body: Buffer.from('x'), token: 2n });
    await expect(plain.put('k', 'late', { token: 1 })).rejects.toThrow(StaleTokenError);
    await plain.delete('k', { token: 2 });
    expect(await plain.get('k')).toBeNull();
  });

  test('a stream in a temporary file is not sent again if the server has stopped enforcing its conditions', async () => {
    const betrayal = { ignoresOnComplete: 'all' } as const;
    const [before, after] = [inMemory(betrayal), inMemory({ ...betrayal, ignoresOn: 'unsigned' })];
    let state: 'before' | 'refuses' | 'after' = 'before';
    await using server = await ScriptedServer.start((asked) => {
      const isOurs = asked.method === 'PUT' && asked.path.startsWith('/bucket/k');
      if (isOurs && state === 'before') state = 'refuses';
      if (!asked.path.startsWith('/bucket/k') && state === 'refuses') state = 'after';
      if (isOurs && state === 'refuses')
        return { status: 412, body: '<Error><Code>PreconditionFailed</Code></Error>' };
      return state === 'after' ? after(asked) : before(asked);
    });
    const store = storeOf(server.endpoint, { partBytes: MIB5 });
    const put = store.put('k', stream(), { token: 1 });
    // A copy of it may be on its way.
    await expect(put).rejects.toMatchObject({
      code: 'outcome-unknown',
      cause: { message: expect.stringContaining('path=file-put') },
    });
    expect(state).toBe('after');
    expect(await store.get('k')).toBeNull();
  });

  /** A stale write that begins before the claim of token 7, and is sent after it. */
  const overtakenUpdate = (by: FencedS3, claimant: FencedS3) =>
    by.update('k', { token: 5, attemptsMax: 1 }, async () => {
      await claimant.claim('k', { token: 7 });
      return 'stale';
    });

  test.each([6 * 2 ** 20, 4 * MIB5 + 1])(
    'uploads of the same bytes have one ETag: a claim of %d bytes goes by PUT, and no stale write passes',
    { timeout: 60_000 },
    async (bytes) => {
      await using server = await ScriptedServer.start(
        inMemory({ etags: 'new', digests: 'uploads' }),
      );
      const make = () => storeOf(server.endpoint, { partBytes: MIB5, storedBytesMax: 8 * MIB5 });
      const [store, other] = [make(), make()];
      const body = randomBytes(bytes);
      const foreign = { Bucket: 'bucket', Key: 'k', Body: body };
      await clientOf(server.endpoint).send(new PutObjectCommand(foreign));
      await store.claim('k', { token: 5 });
      await expect(overtakenUpdate(store, other)).rejects.toThrow(StaleTokenError);
      const read = await make().get('k');
      expect(read?.token).toBe(7n);
      expect(Buffer.compare(read?.body ?? Buffer.alloc(0), body)).toBe(0);
      const plain = storeOf(server.endpoint, { layout: 'plain', partBytes: MIB5 });
      await plain.put('p', Readable.from([body]), { token: 1 });
      const ours = () => server.asked.filter(({ path }) => /^\/bucket\/[kp]/.test(path));
      expect(ours().filter(({ method }) => method === 'POST')).toEqual([]);
      // An object of this store has the token in its bytes. So ETags differ, and an upload is safe.
      await store.put('k', Readable.from([body]), { token: 7 });
      await store.claim('k', { token: 8 });
      expect(ours().filter(({ method }) => method === 'POST')).toHaveLength(4);
      await expect(overtakenUpdate(make(), other)).rejects.toThrow(StaleTokenError);
    },
  );

  test('large writes of the same bytes have one ETag: they are not kept without a token', async () => {
    await using server = await ScriptedServer.start(inMemory({ etags: 'new', digests: 'large' }));
    const store = storeOf(server.endpoint, { partBytes: MIB5 });
    const plain = storeOf(server.endpoint, { partBytes: MIB5, layout: 'plain' });
    expect(await store.probe()).toMatchObject({ distinctEtags: true });
    for (const bytes of [2 ** 21 + 1, 6 * 2 ** 20, 4 * MIB5 + 1]) {
      const foreign = { Bucket: 'bucket', Key: `${bytes}`, Body: randomBytes(bytes) };
      await clientOf(server.endpoint).send(new PutObjectCommand(foreign));
      const body = randomBytes(bytes);
      for (const call of [
        () => store.claim(foreign.Key, { token: 1 }),
        () => store.claimAndGet(foreign.Key, { token: 1 }),
        () => plain.put(foreign.Key, body, { token: 1 }),
        () => plain.put(foreign.Key, Readable.from([body]), { token: 1 }),
      ]) {
        await expect(call()).rejects.toThrow(UnsupportedByStoreError);
        await expect(call()).rejects.toThrow('the token must be in the bytes');
      }
      expect(await store.highest(foreign.Key)).toBe(0n);
      await store.update(foreign.Key, { token: 1 }, (current) => current?.body ?? '');
      await store.claim(foreign.Key, { token: 2 });
      expect(await plain.get(foreign.Key)).toMatchObject({ token: 2n });
    }
    await plain.put('small', 'x', { token: 1 });
    await plain.claim('small', { token: 2 });
  });

  test.each([
    ['foreign', 1_000],
    ['foreign', 3 * 2 ** 20],
    ['foreign', 6 * 2 ** 20],
    ['foreign', 4 * MIB5 + 1],
    ['ours', 1_000],
    ['ours', 3 * 2 ** 20],
    ['ours', 6 * 2 ** 20],
  ] as const)(
    'a reply without a length that ends early is an error: %s, %d bytes',
    { timeout: 60_000 },
    async (kind, bytes) => {
      const objects = inMemory({ etags: 'new' });
      let isShort = false;
      await using server = await ScriptedServer.start(async (asked) => {
        const answer = await objects(asked);
        const { headers, body = '' } = answer;
        const isRead = asked.method === 'GET' && asked.path.startsWith('/bucket/k?x-id');
        if (!isShort || !isRead) return answer;
        return {
          status: 200,
          headers: { ...headers, 'transfer-encoding': 'chunked' },
          body: body.slice(0, body.length >> 1),
        };
      });
      const store = storeOf(server.endpoint, { partBytes: MIB5 });
      const body = randomBytes(bytes);
      if (kind === 'ours') await store.put('k', body, { token: 1 });
      else {
        const foreign = { Bucket: 'bucket', Key: 'k', Body: body };
        await clientOf(server.endpoint).send(new PutObjectCommand(foreign));
      }
      isShort = true;
      for (const call of [
        () => store.claim('k', { token: 2 }),
        () => store.claimAndGet('k', { token: 2 }),
        () => store.get('k'),
        async () => Array.fromAsync((await store.getStream('k'))?.body ?? []),
        () => store.update('k', { token: 2 }, (current) => current?.body ?? ''),
      ]) {
        const error = await call().then(
          () => null,
          (thrown: unknown) => thrown,
        );
        expect(error).toBeInstanceOf(StoreUnavailableError);
      }
      isShort = false;
      const read = await store.get('k');
      expect(read?.token).toBe(kind === 'ours' ? 1n : 0n);
      expect(Buffer.compare(read?.body ?? Buffer.alloc(0), body)).toBe(0);
    },
  );

  test("a claim of another program's object keeps bytes, headers, encryption and lock", async () => {
    await using server = await ScriptedServer.start(inMemory({ etags: 'new' }));
    const client = clientOf(server.endpoint);
    const [parquet, until] = [randomBytes(3_000), new Date(Date.now() + 86_400_000)];
    const text = gzipSync('text');
    const common = { Bucket: 'bucket', ContentType: 'application/vnd.apache.parquet' };
    await client.send(
      new PutObjectCommand({
        ...common,
        Key: 'plain',
        Body: parquet,
        Metadata: { a_b: 'c' },
        ServerSideEncryption: 'aws:kms',
        SSEKMSKeyId: 'arn:aws:kms:key/1',
        ObjectLockMode: 'GOVERNANCE',
        ObjectLockRetainUntilDate: until,
        WebsiteRedirectLocation: '/other',
        Expires: new Date(0),
      }),
    );
    const zipped = { ...common, Key: 'gzip', Body: text, ContentEncoding: 'gzip' };
    await client.send(new PutObjectCommand(zipped));
    await client.send(new PutObjectCommand({ ...common, Key: 'br', ContentEncoding: 'br' }));
    const headersOf = async (key: string) =>
      (await fetch(`${server.endpoint}/bucket/${key}`, { method: 'HEAD' })).headers;
    expect([...(await headersOf('plain')).keys()]).toEqual(
      expect.arrayContaining([
        ...['x-amz-server-side-encryption-aws-kms-key-id', 'x-amz-object-lock-mode', 'expires'],
        ...['x-amz-object-lock-retain-until-date', 'x-amz-website-redirect-location'],
      ]),
    );
    const store = storeOf(server.endpoint);
    for (const [key, bytes, body] of [
      ['plain', parquet, parquet],
      ['gzip', text, Buffer.from('text')],
      ['br', Buffer.alloc(0), null],
    ] as const) {
      const before = await headersOf(key);
      await store.claim(key, { token: 2 });
      const after = await headersOf(key);
      expect(after.get('x-amz-meta-fencing-token')).toBe('2');
      for (const [name, value] of before)
        if (!/^(date|etag)$/.test(name)) expect([name, after.get(name)]).toEqual([name, value]);
      expect(server.asked.findLast(({ method }) => method === 'PUT')?.body).toEqual(bytes);
      await expect(store.put(key, 'late', { token: 1 })).rejects.toThrow(StaleTokenError);
      if (body === null) continue;
      expect(await store.get(key)).toMatchObject({ body, token: 2n });
      expect(await store.claimAndGet(key, { token: 3 })).toMatchObject({ body, token: 3n });
      const stream = await storeOf(server.endpoint).claimAndGetStream(key, { token: 4 });
      expect(Buffer.concat(await Array.fromAsync(stream?.body ?? []))).toEqual(body);
    }
  });

  test.each([
    ['its bytes', {}, {}, 'a claim may not change its bytes'],
    // Under AES256 the ETag is a digest of the bytes, so equal bytes have one ETag.
    ['its bytes by AES256', { etags: 'new' }, { 'x-amz-server-side-encryption': 'AES256' }, 'ETag'],
    [
      'SSE-C',
      { etags: 'new' },
      { 'x-amz-server-side-encryption-customer-algorithm': 'AES256' },
      'SSE-C',
    ],
    ['metadata without header', { etags: 'new' }, { 'x-amz-missing-meta': '1' }, '1 metadata'],
    [
      'text that is not ASCII',
      { etags: 'new' },
      { 'x-amz-meta-a': 'caf\u00e9' },
      'a, which is not',
    ],
    ['much metadata', { etags: 'new' }, { 'x-amz-meta-a': 'a'.repeat(1_300) }, 'more than 1300'],
  ] as const)('a claim refuses what it cannot keep: %s', async (_, betrayal, headers, told) => {
    const objects = inMemory(betrayal);
    let isForeign = false;
    await using server = await ScriptedServer.start(async (asked) => {
      const answer = await objects(asked);
      const isRead = asked.path.startsWith('/bucket/k') && asked.method !== 'PUT';
      return isForeign && isRead && answer.status === 200
        ? { ...answer, headers: { ...answer.headers, ...headers } }
        : answer;
    });
    const store = storeOf(server.endpoint);
    await store.probe();
    const foreign = { Bucket: 'bucket', Key: 'k', Body: 'text' };
    await clientOf(server.endpoint).send(new PutObjectCommand(foreign));
    isForeign = true;
    const puts = server.count('PUT');
    for (const call of [
      () => store.claim('k', { token: 1 }),
      () => store.claimAndGet('k', { token: 1 }),
      () => store.claimAndGetStream('k', { token: 1 }),
    ]) {
      await expect(call()).rejects.toThrow(UnsupportedByStoreError);
      await expect(call()).rejects.toThrow(told);
    }
    expect(server.count('PUT')).toBe(puts);
    await store.put('k', 'ours', { token: 1 });
    expect(server.count('PUT')).toBe(puts + 1);
  });

  test.each([
    [{ status: 501, body: '<Error><Code>NotImplemented</Code></Error>' }, null],
    [{ status: 405, body: '<Error><Code>MethodNotAllowed</Code></Error>' }, null],
    [{ status: 403, body: '<Error><Code>AccessDenied</Code></Error>' }, 'allow GetObjectAcl'],
    [aclOf('WRITE', '<ID>other</ID>'), 'a grant of its ACL (WRITE to other)'],
  ] as const)('a claim, if GetObjectAcl is answered %j', async (acl, told) => {
    await using server = await ScriptedServer.start(inMemory({ acl }));
    const store = storeOf(server.endpoint);
    await store.put('k', 'x', { token: 1 });
    const claim = store.claim('k', { token: 2 });
    if (told === null) await claim;
    else await expect(claim).rejects.toThrow(told);
    expect(await store.highest('k')).toBe(told === null ? 2n : 1n);
  });

  test('a claim sends every grant of the ACL again', async () => {
    const grants = [
      aclGrant('FULL_CONTROL', '<ID>me</ID>'),
      aclGrant('READ', '<URI>http://acs.amazonaws.com/groups/global/AllUsers</URI>'),
      aclGrant('READ', '<ID>you</ID>'),
      aclGrant('WRITE_ACP', '<ID>you</ID>'),
    ];
    await using server = await ScriptedServer.start(inMemory({ acl: aclWith(grants) }));
    const store = storeOf(server.endpoint);
    await store.put('k', 'x', { token: 1 });
    await store.claim('k', { token: 2 });
    expect(server.asked.findLast(({ method }) => method === 'PUT')?.headers).toMatchObject({
      'x-amz-grant-full-control': 'id="me"',
      'x-amz-grant-read': 'uri="http://acs.amazonaws.com/groups/global/AllUsers", id="you"',
      'x-amz-grant-write-acp': 'id="you"',
    });
  });

  test.each([
    [{}, 4],
    [{ copies: 'never' }, 0],
    [{ copies: 'too much' }, 0],
    [{ ignoresOnComplete: 'all' }, 0],
  ] as const)(
    'a claim of a large object, %j: the server copies %d parts',
    async (betrayal, wanted) => {
      await using server = await ScriptedServer.start(inMemory(betrayal));
      const store = storeOf(server.endpoint, { partBytes: MIB5 });
      const body = randomBytes(4 * MIB5 - 100);
      await store.put('k', Readable.from([body]), { token: 1 });
      const copied = () =>
        server.asked.filter(
          ({ path, headers }) => path.startsWith('/bucket/k') && headers['x-amz-copy-source'],
        ).length;
      for (const token of [2, 3]) {
        const before = copied();
        await store.claim('k', { token });
        expect(copied() - before).toBe(wanted);
        const read = await storeOf(server.endpoint).get('k');
        expect(read?.token).toBe(BigInt(token));
        expect(Buffer.compare(read?.body ?? Buffer.alloc(0), body)).toBe(0);
        await expect(store.put('k', 'late', { token: 1 })).rejects.toThrow(StaleTokenError);
      }
    },
  );

  test('a claim starts again or is stale if its source is replaced while the server copies it', async () => {
    const objects = inMemory({});
    let replace: (() => Promise<unknown>) | null = null;
    await using server = await ScriptedServer.start(async (asked) => {
      const now = replace;
      if (now && asked.path.startsWith('/bucket/k') && asked.headers['x-amz-copy-source']) {
        replace = null;
        await now();
      }
      return objects(asked);
    });
    const store = storeOf(server.endpoint, { partBytes: MIB5 });
    const other = storeOf(server.endpoint);
    const body = randomBytes(4 * MIB5);
    for (const replaced of ['short', Buffer.from(body).reverse()]) {
      await store.put('k', Readable.from([body]), { token: 9 });
      await store.claim('k', { token: 9 });
      replace = () => other.put('k', replaced, { token: 10 });
      await store.claim('k', { token: 10 });
      expect(Buffer.compare((await store.get('k'))?.body ?? body, Buffer.from(replaced))).toBe(0);
      store.forget('k');
      await clientOf(server.endpoint).send(new DeleteObjectCommand({ Bucket: 'bucket', Key: 'k' }));
      other.forget('k');
      await store.put('k', Readable.from([body]), { token: 8 });
      replace = () => other.put('k', replaced, { token: 10 });
      await expect(store.claim('k', { token: 9 })).rejects.toThrow(StaleTokenError);
      expect(Buffer.compare((await other.get('k'))?.body ?? body, Buffer.from(replaced))).toBe(0);
      await other.delete('k', { token: 10 });
      await clientOf(server.endpoint).send(new DeleteObjectCommand({ Bucket: 'bucket', Key: 'k' }));
      for (const one of [store, other]) one.forget('k');
    }
  });

  test('a server that answers before it has read a temporary file does not end the process', async () => {
    let isEarly = false;
    const answer = Object.assign(inMemory({ ignoresOnComplete: 'all' }), {
      early: (path: string, headers: IncomingHttpHeaders) =>
        isEarly && path.startsWith('/bucket/k') && headers['if-none-match']
          ? { status: 403, body: '<Error><Code>AccessDenied</Code></Error>' }
          : undefined,
    });
    await using server = await ScriptedServer.start(answer);
    const store = storeOf(server.endpoint, { partBytes: MIB5 });
    const body = () => Readable.from([randomBytes(2 * MIB5)]);
    await store.put('other', body, { token: 1 });
    isEarly = true;
    for (let i = 0; i < 5; i++)
      await expect(store.put('k', body, { token: 1 })).rejects.toThrow(StoreSetupError);
    isEarly = false;
    await store.put('k', body, { token: 1 });
  });

  test("a write upon another program's object stays unknown until the object is rewritten", async () => {
    const objects = inMemory({});
    let isDown = false;
    await using server = await ScriptedServer.start((asked) =>
      isDown && asked.method === 'PUT' ? null : objects(asked),
    );
    const foreign = { Bucket: 'bucket', Key: 'k', Body: 'text' };
    await clientOf(server.endpoint).send(new PutObjectCommand(foreign));
    const store = storeOf(server.endpoint, {}, runtime);
    await store.probe();
    isDown = true;
    const lost = await store.put('k', 'x', { token: 1 }).catch((error: unknown) => error);
    expect(lost).toBeInstanceOf(OutcomeUnknownError);
    isDown = false;
    const { writeId } = lost as OutcomeUnknownError;
    expect(await store.settle(writeId)).toBe('unknown');
    expect(Buffer.from((await store.get('k'))?.body ?? []).toString()).toBe('text');
    await store.put('k', 'y', { token: 1 });
    expect(await store.settle(writeId)).toBe('not-applied');
  });

  test('a client that builds its own commands is named in the error, and nothing is written', async () => {
    await using server = await ScriptedServer.start(inMemory({}));
    const client = clientOf(server.endpoint);
    type Rebuilt = new (input: unknown) => never;
    const wrapper = {
      send: (command: { readonly input: unknown }, options: object) =>
        client.send(new (command.constructor as Rebuilt)(command.input), options),
    } as unknown as S3Calls;
    const store = new FencedS3({ client: wrapper, bucket: 'bucket' });
    for (const isCertified of [false, true]) {
      if (isCertified) await storeOf(server.endpoint).probe();
      const puts = server.count('PUT');
      for (const call of [() => store.put('k', 'x', { token: 1 }), () => store.get('k')]) {
        await expect(call()).rejects.toThrow(StoreSetupError);
        await expect(call()).rejects.toThrow('does not run the commands that it is given');
      }
      expect(server.count('PUT')).toBe(puts);
    }
  });

  test('a proxy that decompresses is named in the error, with and without a checksum of the SDK', async () => {
    for (const keepsChecksums of [false, true]) {
      await using server = await ScriptedServer.start(inMemory({ unzips: true, keepsChecksums }));
      const put = storeOf(server.endpoint).put('k', 'x', { token: 1 });
      await expect(put).rejects.toThrow(StoreSetupError);
      await expect(put).rejects.toThrow('NodeHttpHandler');
    }
  });

  test("a change of the caller's arguments during a write has no effect", async () => {
    await using server = await ScriptedServer.start(inMemory({}));
    const store = storeOf(server.endpoint);
    const metadata = { author: 'ada' };
    const put = store.put('k', 'x', { token: 1, metadata });
    Object.assign(metadata, { author: 'eve', 'fencing-zzz': '1' });
    await put;
    expect(await store.get('k')).toMatchObject({ metadata: { author: 'ada' } });
  });

  test('an honest server is probed once for many writers, and the next process sends one GET', async () => {
    await using server = await ScriptedServer.start(inMemory({}));
    const store = storeOf(server.endpoint);
    const writes = Array.from({ length: 5 }, (_, i) => store.put(`k${i}`, 'x', { token: 1 }));
    await Promise.all(writes);
    const asked = server.asked.length;
    const learnt = await store.probe();
    expect(learnt).toMatchObject({ distinctEtags: false });
    expect(learnt.conditionalComplete).toBeUndefined();
    expect(server.asked).toHaveLength(asked);
    const next = storeOf(server.endpoint);
    await next.put('k', 'x', { token: 1 });
    expect(server.asked.slice(asked).map(({ method, path }) => `${method} ${path}`)).toEqual([
      'GET /bucket/.fenced-probe/certificate.json?x-id=GetObject',
      'HEAD /bucket/k',
      'PUT /bucket/k?x-id=PutObject',
    ]);
    expect(await next.probe()).toEqual(learnt);
  });

  test('a certificate that is foreign, old, damaged or of another endpoint is not believed', async () => {
    const honest = inMemory({});
    await using server = await ScriptedServer.start(honest);
    await using proxy = await ScriptedServer.start(honest);
    await storeOf(server.endpoint).probe();
    const probes = (): number =>
      server.asked.concat(proxy.asked).filter(({ path }) => path.includes('/race?')).length;
    const asked = async (store: FencedS3): Promise<number> => {
      const before = probes();
      await store.probe();
      return probes() - before;
    };
    const once = probes();
    expect(await asked(storeOf(server.endpoint))).toBe(0);
    expect(await asked(storeOf(proxy.endpoint))).toBe(once);
    // Both are certified now.
    expect(await asked(storeOf(server.endpoint))).toBe(0);
    expect(await asked(storeOf(proxy.endpoint))).toBe(0);
    expect(await asked(storeOf(server.endpoint, { certificateMaxAgeDays: 0 }))).toBe(once);
    const weekLater = { ...runtime, wallClockMs: () => Date.now() + 8 * 86_400_000 };
    const options = { client: clientOf(server.endpoint), bucket: 'bucket' };
    expect(await asked(new FencedS3(options, weekLater))).toBe(once);
    for (const text of [' ', '[]', '{"a":1}', 'x'.repeat(1_000)]) {
      const Key = '.fenced-probe/certificate.json';
      await clientOf(server.endpoint).send(
        new PutObjectCommand({ Bucket: 'bucket', Key, Body: text }),
      );
      expect(await asked(storeOf(server.endpoint))).toBe(once);
    }
  });

  test('a server that has become unsafe is detected by probe, and its certificate removed', async () => {
    const betrayal = { ignoresMatch: false };
    await using server = await ScriptedServer.start(inMemory(betrayal));
    const store = storeOf(server.endpoint);
    await store.put('k', 'x', { token: 1 });
    betrayal.ignoresMatch = true;
    await expect(store.probe({ renew: true })).rejects.toThrow(UnsafeStoreError);
    await expect(store.put('k', 'y', { token: 1 })).rejects.toThrow(UnsafeStoreError);
    await expect(storeOf(server.endpoint).put('k', 'y', { token: 1 })).rejects.toThrow(
      UnsafeStoreError,
    );
  });

  test('a caller that gives up does not end a probe that other callers wait for', async () => {
    await using server = await ScriptedServer.start(inMemory({}));
    const store = storeOf(server.endpoint);
    const abort = new AbortController();
    const given = store.put('a', 'x', { token: 1, signal: abort.signal });
    const kept = store.put('b', 'x', { token: 1 });
    abort.abort(new Error('enough'));
    await expect(given).rejects.toThrow('enough');
    await expect(kept).resolves.toMatchObject({ token: 1n });
  });

  test('a caller that has given up starts no probe', async () => {
    await using server = await ScriptedServer.start(() => null);
    const signal = AbortSignal.abort(new Error('enough'));
    await expect(storeOf(server.endpoint).put('k', 'x', { token: 1, signal })).rejects.toThrow(
      'enough',
    );
    expect(server.asked).toEqual([]);
  });

  test('a server that was down during the first probe is asked again', async () => {
    const honest = inMemory({});
    let down = true;
    await using server = await ScriptedServer.start((asked) => (down ? null : honest(asked)));
    const store = storeOf(server.endpoint);
    await expect(store.put('k', 'x', { token: 1 })).rejects.toThrow(StoreUnavailableError);
    down = false;
    await expect(store.put('k', 'x', { token: 1 })).resolves.toMatchObject({ token: 1n });
  });
});

describe('one attempt is one request', () => {
  const replies: readonly (readonly [string, Answer | null])[] = [
    ['500', { status: 500, body: '<Error><Code>InternalError</Code></Error>' }],
    ['503', { status: 503, body: '<Error><Code>SlowDown</Code></Error>' }],
    ['an error in a 200', { status: 200, body: '<Error><Code>InternalError</Code></Error>' }],
    ['a cut connection', null],
  ];
  test.each(replies)('after %s the SDK does not repeat a conditional PUT', async (_, answer) => {
    const honest = inMemory({});
    const isOurs = ({ method, path }: Asked): boolean =>
      method === 'PUT' && path.startsWith('/bucket/k?');
    let failing = true;
    await using server = await ScriptedServer.start((asked) => {
      if (!isOurs(asked) || !failing) return honest(asked);
      failing = false;
      return answer;
    });
    const client = clientOf(server.endpoint);
    await new FencedS3({ client, bucket: 'bucket' }).put('k', 'x', { token: 1 });
    const ours = server.asked.filter(isOurs);
    expect(ours).toHaveLength(2);
    // The store read the object between the two PUTs: so the store sent the second, not the SDK.
    const [first, second] = ours.map((asked) => server.asked.indexOf(asked));
    expect(server.asked.slice(first, second).map(({ method }) => method)).toEqual(['PUT', 'HEAD']);
  });

  test("the caller's client keeps its own retries", async () => {
    let puts = 0;
    const honest = inMemory({});
    await using server = await ScriptedServer.start((asked) =>
      asked.path.startsWith('/bucket/plain?') && ++puts < 3 ? { status: 500 } : honest(asked),
    );
    const client = clientOf(server.endpoint);
    await new FencedS3({ client, bucket: 'bucket' }).put('k', 'x', { token: 1 });
    await client.send(new PutObjectCommand({ Bucket: 'bucket', Key: 'plain', Body: 'x' }));
    expect(puts).toBe(3);
  });
});

describe('a wrong set-up is named in the error, and nothing is written', () => {
  let service: S3Service;
  beforeAll(async () => {
    service = await startS3();
  });
  afterAll(() => service.stop());

  const calls: readonly (readonly [string, (store: FencedS3) => Promise<unknown>])[] = [
    ['put', (store) => store.put('k', 'x', { token: 1 })],
    ['update', (store) => store.update('k', { token: 1 }, () => 'x')],
    ['claim', (store) => store.claim('k', { token: 1 })],
    ['get', (store) => store.get('k')],
    ['highest', (store) => store.highest('k')],
  ];
  const real = (): S3Client =>
    new S3Client({ ...service, credentials: service, forcePathStyle: true });

  test.each(calls)('%s: a bucket that does not exist', async (_, call) => {
    const store = new FencedS3({ client: real(), bucket: 'no-such-bucket' });
    await expect(call(store)).rejects.toThrow(StoreSetupError);
    await expect(call(store)).rejects.toThrow('the bucket does not exist');
    await expect(call(store)).rejects.toThrow('bucket=no-such-bucket');
  });

  test.each(calls)('%s: keys that the server does not know, or that are wrong', async (_, call) => {
    for (const wrong of [{ accessKeyId: 'unknown' }, { secretAccessKey: 'wrong-secret' }]) {
      const client = new S3Client({
        ...service,
        credentials: { ...service, ...wrong },
        forcePathStyle: true,
      });
      const store = new FencedS3({ client, bucket: 'bucket' });
      await expect(call(store)).rejects.toThrow(StoreSetupError);
      await expect(call(store)).rejects.toThrow('the credentials are wrong');
    }
  });

  test.each(calls)('%s: a web server that is not S3', async (_, call) => {
    for (const status of [200, 302, 404, 405]) {
      const body = '<!doctype html><title>Welcome</title>';
      await using server = await ScriptedServer.start(() => ({
        status,
        headers: { 'content-type': 'text/html' },
        body,
      }));
      await expect(call(storeOf(server.endpoint))).rejects.toThrow(StoreSetupError);
    }
  });

  test.each(calls)(
    '%s: a session that has expired, which HEAD answers with 400 only',
    async (_, call) => {
      await using server = await ScriptedServer.start(({ method }) => ({
        status: 400,
        body: method === 'HEAD' ? '' : '<Error><Code>ExpiredToken</Code></Error>',
      }));
      await expect(call(storeOf(server.endpoint))).rejects.toThrow('the credentials are wrong');
      await expect(call(storeOf(server.endpoint))).rejects.toThrow('key="');
    },
  );

  test.each(calls)(
    '%s: TLS where the server speaks none, and a name without address',
    async (_, call) => {
      await using server = await ScriptedServer.start(() => null);
      const tls = storeOf(server.endpoint.replace('http:', 'https:'));
      await expect(call(tls)).rejects.toThrow(StoreSetupError);
      await expect(call(storeOf('http://absent.invalid'))).rejects.toThrow(StoreSetupError);
    },
  );

  test.each(calls)('%s: no server listens', async (_, call) => {
    const server = await ScriptedServer.start(() => null);
    const { endpoint } = server;
    await server[Symbol.asyncDispose]();
    await expect(call(storeOf(endpoint))).rejects.toThrow(StoreUnavailableError);
    await expect(call(storeOf(endpoint))).rejects.toThrow(`endpoint=${endpoint}`);
  });

  test.each(calls)('%s: a client without a region', async (_, call) => {
    const region = async (): Promise<string> => Promise.reject(new Error('Region is missing'));
    const store = new FencedS3({ client: new S3Client({ region, credentials }), bucket: 'bucket' });
    await expect(call(store)).rejects.toThrow(StoreSetupError);
    await expect(call(store)).rejects.toThrow('Region is missing');
  });
});

describe('bad input is refused before anything is sent', () => {
  const send = (): never => expect.fail('sent');
  const store = new FencedS3({ client: { send }, bucket: 'bucket' });
  const keys = ['', 'x'.repeat(1025), 'ä'.repeat(513), '\ud800', 42, null, undefined] as string[];
  test.each(keys.map((key) => [JSON.stringify(key)?.slice(0, 20), key]))(
    'the key %s',
    async (_, key) => {
      for (const call of [
        () => store.put(key as string, 'x', { token: 1 }),
        () => store.update(key as string, { token: 1 }, () => 'x'),
        () => store.claim(key as string, { token: 1 }),
        () => store.get(key as string),
        () => store.highest(key as string),
        () => store.delete(key as string, { token: 1 }),
        () => store.getStream(key as string),
        () => store.settle('0'.repeat(32), { key: key ?? '' }),
        async () => store.forget(key as string),
      ])
        await expect(call()).rejects.toThrow(InvalidArgumentError);
    },
  );

  test.each([0, -1, 1.5, '', '01', 2n ** 63n, undefined, null])('the token %s', async (token) => {
    const options = { token: token as number };
    await expect(store.put('k', 'x', options)).rejects.toThrow(InvalidTokenError);
    await expect(store.update('k', options, () => 'x')).rejects.toThrow(InvalidTokenError);
    await expect(store.claim('k', options)).rejects.toThrow(InvalidTokenError);
    await expect(store.claimAndGet('k', options)).rejects.toThrow(InvalidTokenError);
    await expect(store.claimAndGetStream('k', options)).rejects.toThrow(InvalidTokenError);
  });

  test.each([null, undefined, 42, {}, [1], new ArrayBuffer(1), '\ud800'])(
    'the body %o',
    async (body) => {
      await expect(store.put('k', body as string, { token: 1 })).rejects.toThrow(
        InvalidArgumentError,
      );
    },
  );

  test.each([
    { contentType: '' },
    { contentType: 'text/plain\r\nx: y' },
    { cacheControl: 'é' },
    { metadata: { 'fencing-token': '1' } },
    { metadata: { Author: 'ada' } },
    { metadata: { 'a b': 'c' } },
    { metadata: { a: ' b' } },
    { metadata: { a: 1 } as unknown as Record<string, string> },
    { metadata: null as unknown as Record<string, string> },
    { metadata: new Map([['a', 'b']]) as unknown as Record<string, string> },
    { metadata: ['a'] as unknown as Record<string, string> },
    { metadata: { fencing_before: '1' } },
    { metadata: { a_b: '1' } },
  ])('the headers %j', async (headers) => {
    await expect(store.put('k', 'x', { token: 1, ...headers })).rejects.toThrow(
      InvalidArgumentError,
    );
  });

  test('metadata that would not leave room for the history', async () => {
    const names = Array.from({ length: 80 }, (_, i) => [`name-${i}`, 'x']);
    for (const metadata of [{ a: 'x'.repeat(1_300 - 11) }, Object.fromEntries(names)])
      await expect(store.put('k', 'x', { token: 1, metadata })).rejects.toThrow(
        'metadata must be at most 1300 bytes',
      );
  });

  test.each([undefined, null, 7, { token: Object.create(null) }])('options %o', async (options) => {
    const given = options as never;
    for (const call of [
      () => store.put('k', 'x', given),
      () => store.update('k', given, () => 'x'),
      () => store.claim('k', given),
    ])
      await expect(call()).rejects.toMatchObject({ code: expect.stringMatching(/^invalid-/) });
    if (options === undefined) return;
    await expect(store.get('k', given)).rejects.toMatchObject({
      code: expect.stringMatching(/^invalid-/),
    });
  });

  test.each([{}, null, 'stop'])('the signal %o', async (signal) => {
    const given = { token: 1, signal } as never;
    for (const call of [
      () => store.put('k', 'x', given),
      () => store.update('k', given, () => 'x'),
      () => store.claim('k', given),
      () => store.get('k', given),
      () => store.highest('k', given),
      () => store.probe(given),
    ])
      await expect(call()).rejects.toThrow('signal must be an AbortSignal');
  });

  test('an update without a function', async () => {
    await expect(store.update('k', { token: 1 }, undefined as never)).rejects.toThrow(
      'edit must be a function',
    );
  });

  test.each([undefined, null])('no options at all: %s', (options) => {
    expect(() => new FencedS3(options as never)).toThrow(InvalidArgumentError);
  });

  test.each([
    { bucket: '' },
    { bucket: 7 },
    { bucket: 'arn:aws:s3::123456789012:accesspoint/m.mrap' },
    { client: {} },
    { client: undefined },
    { requestTimeoutMs: 0 },
    { requestTimeoutMs: Number.NaN },
    { attemptsMax: 1.5 },
    { gzipLevel: 10 },
    { storedBytesMax: 6 * 2 ** 30 },
    { probePrefix: '' },
    { prefix: 'x'.repeat(1020) },
    { layout: 'zip' },
    { partBytes: 1024 },
    { partsInFlight: 0 },
    { certificateMaxAgeDays: -1 },
  ])('the option %j', (option) => {
    const options = { client: { send }, bucket: 'bucket', ...option } as FencedS3Options;
    expect(() => new FencedS3(options)).toThrow(InvalidArgumentError);
  });

  test('a body whose stored form is too large', async () => {
    const small = new FencedS3({ client: { send }, bucket: 'bucket', storedBytesMax: 60 });
    const put = small.put('k', crypto.getRandomValues(new Uint8Array(100)), { token: 1 });
    await expect(put).rejects.toThrow(UnsupportedByStoreError);
    await expect(put).rejects.toThrow('storedBytesMax=60');
  });
});
