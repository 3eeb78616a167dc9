import { execFile } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import { PutObjectCommand } from '@aws-sdk/client-s3';
import { FencedGateway, LeaseError } from '@fenced/client';
import { createRateLimit, createTokenSigner } from '@fenced/gateway';
import { openCredentials } from '@fenced/gateway/credentials';
import {
  InvalidArgumentError,
  OutcomeUnknownError,
  StaleTokenError,
  StoreSetupError,
  StoreUnavailableError,
} from '@fenced/store';
import { TcpProxy } from '@fenced/testbed';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Front, GatewayWorld } from '../gateway/harness/world.js';

const run = promisify(execFile);
const key = 'key-of-the-reports';
const guest = 'key-of-the-guest';
const hash = (text: string): string => createHash('sha256').update(text).digest('hex');

let world: GatewayWorld;
let one: Front;
let two: Front;
const gateway = (front: Front, apiKey: string = key): FencedGateway =>
  new FencedGateway({ url: front.url, key: apiKey });

beforeAll(async () => {
  world = await GatewayWorld.start();
  const secret = randomBytes(32);
  const open = (): Promise<Front> =>
    world.open({
      signer: createTokenSigner([{ id: 'k1', secret }], () => Date.now()),
      bindings: [{ keys: 'objects/reports/years/{year}/*', lease: 'reports/{year}' }],
      credentials: openCredentials({
        keys: [
          {
            name: 'reports',
            sha256: hash(key),
            verbs: ['lease', 'read', 'write', 'claim', 'ratchet'],
            prefixes: ['leases/reports', 'objects/reports', 'records/reports', 'ratchets'],
          },
          {
            name: 'guest',
            sha256: hash(guest),
            verbs: ['read'],
            prefixes: ['objects/reports/open'],
          },
        ],
      }),
      rate: {
        perKey: createRateLimit({ perSecond: 10_000, burst: 10_000 }, () => performance.now()),
        perAddress: createRateLimit({ perSecond: 1, burst: 20 }, () => performance.now()),
      },
    });
  one = await open();
  two = await open();
});

afterAll(async () => {
  await one?.[Symbol.asyncDispose]();
  await two?.[Symbol.asyncDispose]();
  await world?.[Symbol.asyncDispose]();
});

describe('signed tokens', () => {
  test('are presented as plain numbers, to any gateway, for the keys that their lease guards', async () => {
    const client = gateway(one);
    await using lease = await client.acquire('reports/a', { ttlMs: 10_000 });
    await client.objects.put('reports/a', 'a', { token: lease.token });
    expect(await client.objects.get('reports/a')).toMatchObject({ token: lease.token });
    await client.records('reports').put('a', 1, { token: lease.token });
    expect(await client.records('reports').highest('a')).toBe(lease.token);
    // A record with another name is guarded by the lease of that name, unless a rule says
    // otherwise.
    const other = client.records('reports').put('total', 1, { token: lease.token });
    await expect(other).rejects.toThrow(InvalidArgumentError);
    await expect(other).rejects.toThrow('the lease reports/total guards records/reports/total');
    await client.objects.put('reports/years/2026/a', 'a', { token: lease.token }).then(
      () => expect.fail('it is guarded by another lease'),
      (error) => expect(error.message).toContain('the lease reports/2026 guards '),
    );
    await using year = await client.acquire('reports/2026', { ttlMs: 10_000 });
    await client.objects.put('reports/years/2026/a', 'a', { token: year.token });
    await client.objects.update('reports/years/2026/b', { token: year.token }, () => 'b');
    expect(await client.objects.highest('reports/years/2026/b')).toBe(year.token);
    await lease.extend(20_000);
    expect(lease.remainingMs()).toBeGreaterThan(15_000);
    await client.objects.delete('reports/a', { token: lease.token });
  });

  test('a client sees the stored headers of an object, and not those that the gateway adds', async () => {
    const client = gateway(one);
    await using lease = await client.acquire('reports/headers', { ttlMs: 10_000 });
    const { token } = lease;
    const stored = async () => {
      const read = await client.objects.get('reports/headers');
      const { body } = (await client.objects.getStream('reports/headers')) ?? {};
      body?.destroy();
      const direct = await one.objects.get('reports/headers');
      const [mine, its] = [read, direct].map((one) => [one?.cacheControl, one?.contentType]);
      expect(mine).toEqual(its);
      return mine;
    };
    await client.objects.put('reports/headers', 'a', { token, cacheControl: 'no-cache' });
    expect((await stored())?.[0]).toBe('no-cache');
    // An update keeps the headers that it does not name. A put removes them.
    await client.objects.update('reports/headers', { token }, () => 'b');
    expect((await stored())?.[0]).toBe('no-cache');
    await client.objects.put('reports/headers', 'a', { token });
    expect((await stored())?.[0]).toBeUndefined();
    await client.objects.put('reports/headers', 'a', { token, contentType: 'text/plain' });
    expect(await stored()).toEqual([undefined, 'text/plain']);
  });

  test('ranges and the metadata of an object are the same as from the store', async () => {
    const client = gateway(one);
    const [sized, unsized] = ['reports/sized', 'reports/unsized'];
    await using lease = await client.acquire(sized, { ttlMs: 30_000 });
    const bytes = randomBytes(100_000);
    const metadata = { author: 'ada' };
    await client.objects.put(sized, bytes, { token: lease.token, metadata });
    // The store does not know the plain size of a gzip object that another program wrote.
    const s3 = world.s3Client(world.s3.endpoint);
    await s3.send(
      new PutObjectCommand({
        Bucket: world.bucket,
        Key: unsized,
        Metadata: metadata,
        Body: gzipSync(bytes),
        ContentEncoding: 'gzip',
      }),
    );
    s3.destroy();
    for (const name of [sized, unsized]) {
      const bodyBytes = name === sized ? bytes.length : undefined;
      const stat = await client.objects.stat(name);
      const direct = await one.objects.stat(name);
      expect(stat).toMatchObject({ bodyBytes, metadata });
      expect(stat).toEqual({ ...direct, storedBytes: undefined, lastModifiedMs: undefined });
      for (const range of [
        ...[{ start: 0 }, { start: 0, end: 0 }, { start: 70_000, end: 70_009 }],
        ...[{ start: 99_999 }, { start: 99_990, end: 200_000 }, { start: 100_000 }],
      ]) {
        const wanted = bytes.subarray(range.start, (range.end ?? bytes.length) + 1);
        const { body, ...rest } = (await client.objects.get(name, { range })) ?? {};
        expect(Buffer.compare(body ?? bytes, wanted)).toBe(0);
        expect(stat).toMatchObject(rest);
        const stream = await client.objects.getStream(name, { range });
        const streamed = Buffer.concat(await Array.fromAsync(stream?.body ?? []));
        expect(Buffer.compare(streamed, wanted)).toBe(0);
        expect(stream?.bodyBytes).toBe(bodyBytes);
      }
    }
    const range = { start: 2, end: 1 };
    await expect(client.objects.get(sized, { range })).rejects.toThrow(InvalidArgumentError);
    expect(await client.objects.stat('reports/none')).toBeNull();
    expect(await client.objects.get('reports/none', { range: { start: 1 } })).toBeNull();
    const stranger = gateway(one, guest);
    const [refused, said] = await Promise.all(
      [stranger.objects.stat(sized), stranger.objects.get(sized)].map((call) =>
        call.then(
          () => 'no error',
          (error: Error) => error.message,
        ),
      ),
    );
    expect(refused).toContain('status=403');
    expect(refused).toBe(said);
  });

  test('of another process are adopted; bare numbers and tokens of other resources are refused', async () => {
    const client = gateway(one);
    const stranger = gateway(two);
    await using lease = await client.acquire('reports/b', { ttlMs: 10_000 });
    const bare = stranger.objects.put('reports/b', 'x', { token: lease.token });
    await expect(bare).rejects.toMatchObject({ code: 'invalid-token' });
    const highest = stranger.objects.put('reports/b', 'x', { token: 2n ** 63n - 1n });
    await expect(highest).rejects.toMatchObject({ code: 'invalid-token' });
    const answer = await fetch(`${one.url}/v1/leases/reports/c`, {
      method: 'POST',
      body: '{"ttlMs":10000}',
      headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' },
    });
    const { token: signed } = (await answer.json()) as { token: string };
    const wrong = stranger.adopt('reports/b', signed);
    await expect(stranger.objects.put('reports/b', 'x', { token: wrong })).rejects.toMatchObject({
      code: 'invalid-token',
    });
    const right = gateway(two);
    const token = right.adopt('reports/c', signed);
    expect(await right.objects.put('reports/c', 'x', { token })).toMatchObject({ token });
  });

  test('a late holder is refused, and the next one goes on', async () => {
    const client = gateway(one);
    const early = await client.acquire('reports/d', { ttlMs: 10_000 });
    await early.release();
    const other = gateway(two);
    await using next = await other.acquire('reports/d', { ttlMs: 10_000, waitMs: 2_000 });
    expect(next.token).toBeGreaterThan(early.token);
    await other.objects.claim('reports/d', { token: next.token });
    const refused = client.objects.put('reports/d', 'late', { token: early.token });
    await expect(refused).rejects.toThrow(StaleTokenError);
    await expect(refused).rejects.toMatchObject({ presented: early.token, highest: next.token });
  });
});

describe('leases', () => {
  test('a held lock is reported with a time for another try, and a release ends a wait', async () => {
    const client = gateway(one);
    const lease = await client.acquire('reports/l1', { ttlMs: 10_000 });
    const refused = gateway(two).acquire('reports/l1', { ttlMs: 1_000 });
    await expect(refused).rejects.toThrow(LeaseError);
    await expect(refused).rejects.toMatchObject({ code: 'held', retryAfterMs: expect.any(Number) });
    const waiting = gateway(two).acquire('reports/l1', { ttlMs: 10_000, waitMs: 10_000 });
    expect(await lease.release()).toBe('released');
    await using next = await waiting;
    // The wait at the gateway neither extends nor shortens the lease.
    expect(next.remainingMs()).toBeGreaterThan(9_000);
    expect(next.remainingMs()).toBeLessThan(10_000);
    expect(lease.signal.reason).toBeInstanceOf(LeaseError);
    await expect(lease.extend(1_000)).rejects.toMatchObject({ code: 'lease-lost' });
  });

  test('an expired lease aborts its signal, and cannot be extended', async () => {
    const lease = await gateway(one).acquire('reports/l2', { ttlMs: 500 });
    await new Promise((resolve) => lease.signal.addEventListener('abort', resolve));
    expect(lease.remainingMs()).toBe(0);
    expect(() => lease.ensure()).toThrow('its time has passed');
    await expect(lease.extend(1_000)).rejects.toThrow(LeaseError);
  });

  test('of several resources present a token for each, at any gateway', async () => {
    const client = gateway(one);
    await using set = await client.acquire(['reports/s2', 'reports/s1'], { ttlMs: 10_000 });
    expect(set.resources).toEqual(['reports/s1', 'reports/s2']);
    for (const name of set.resources) {
      await client.objects.put(name, 'x', { token: set.token });
      await client.records('reports').put(name.slice(8), 1, { token: set.token });
    }
    await set.extend(20_000);
    const other = client.objects.put('reports/s3', 'x', { token: set.token });
    await expect(other).rejects.toThrow('the key is none of them');
    await expect(other).rejects.toThrow(InvalidArgumentError);
    const elsewhere = gateway(two);
    for (const [resource, signed] of set.signedTokens) elsewhere.adopt(resource, signed);
    await elsewhere.objects.put('reports/s2', 'y', { token: set.token });
    const refused = await elsewhere.tryAcquire('reports/s2', { ttlMs: 1_000 });
    expect(refused).toMatchObject({ ok: false, reason: 'held', retryAfterMs: expect.any(Number) });
  });

  test('using keeps its lease when its connection goes silent without a sign', async () => {
    const { hostname, port } = new URL(one.url);
    await using parts = new AsyncDisposableStack();
    const proxy = await TcpProxy.start({ host: hostname, port: Number(port) });
    parts.defer(() => proxy.stop());
    const client = new FencedGateway({ url: `http://${proxy.host}:${proxy.port}`, key });
    await client.using('reports/silent', { ttlMs: 3_000 }, async (lease) => {
      proxy.forget();
      let leastMs = lease.remainingMs();
      const isExtended = (): boolean => {
        const leftMs = lease.remainingMs();
        leastMs = Math.min(leastMs, leftMs);
        return leftMs > leastMs || leftMs === 0;
      };
      await expect.poll(isExtended, { timeout: 10_000 }).toBe(true);
      lease.ensure();
    });
  });

  test('a failure that can pass is a result of tryAcquire, and no other is', async () => {
    const proxy = await TcpProxy.start({ host: '127.0.0.1', port: 1 });
    const nowhere = new FencedGateway({ url: `http://${proxy.host}:${proxy.port}` });
    await proxy.stop();
    const resource = 'reports/try';
    expect(await nowhere.tryAcquire(resource, { ttlMs: 1_000 })).toMatchObject({
      ok: false,
      reason: 'unavailable',
      retryAfterMs: 0,
      error: expect.any(StoreUnavailableError),
    });
    const held = { resource, owner: '0-0.1' };
    expect(await nowhere.release(held)).toBe('unknown');
    await expect(nowhere.extend(held, 1_000)).rejects.toThrow(StoreUnavailableError);
    for (const [client, name, code] of [
      [gateway(one, guest), resource, 'forbidden'],
      [gateway(one, 'unknown'), resource, 'unauthenticated'],
      [gateway(one), 'other', 'forbidden'],
      [gateway(one), [], 'invalid-argument'],
      [gateway(one), ['reports/a', 'reports/a'], 'invalid-argument'],
    ] as const) {
      await expect(client.tryAcquire(name, { ttlMs: 1_000 })).rejects.toMatchObject({ code });
      await expect(client.release({ resource: name, owner: '0-0.1' })).rejects.toMatchObject({
        code,
      });
    }
    await expect(gateway(one).release(held)).rejects.toMatchObject({ code: 'invalid-token' });
    for (const owner of ['', 'a/b', '../x', undefined]) {
      const named = { resource, owner: owner as string };
      await expect(nowhere.release(named)).rejects.toThrow(InvalidArgumentError);
      await expect(nowhere.extend(named, 1_000)).rejects.toThrow(InvalidArgumentError);
    }
  });
});

describe('errors', () => {
  test('of credentials and of missing rights are set-up errors', async () => {
    for (const client of [gateway(one, 'unknown'), new FencedGateway({ url: one.url })])
      await expect(client.objects.get('reports/open')).rejects.toThrow(StoreSetupError);
    const reader = gateway(one, guest);
    expect(await reader.objects.get('reports/open/1')).toBeNull();
    for (const call of [
      () => reader.objects.get('reports/opened'),
      () => reader.objects.put('reports/open/1', 'x', { token: 1 }),
      () => reader.objects.claimAndGet('reports/open/1', { token: 1 }),
    ])
      await expect(call()).rejects.toMatchObject({
        code: expect.stringMatching(/^(store-setup|invalid-token)$/),
      });
    await expect(reader.acquire('reports/open', { ttlMs: 1_000 })).rejects.toMatchObject({
      code: 'forbidden',
    });
  });

  test('names that no path can carry are refused before anything is sent', async () => {
    const nowhere = new FencedGateway({ url: 'http://127.0.0.1:1' });
    for (const name of [
      '',
      '..',
      'a/../b',
      'a//b',
      '/a',
      'a/',
      'a\\b',
      'a\0',
      '\ud800',
      'a\u0308',
    ]) {
      await expect(nowhere.objects.get(name)).rejects.toThrow(InvalidArgumentError);
      await expect(nowhere.records('c').get(name)).rejects.toThrow(InvalidArgumentError);
      await expect(nowhere.acquire(name, { ttlMs: 1 })).rejects.toThrow(InvalidArgumentError);
    }
    for (const url of ['', 'ftp://x', 'x'])
      expect(() => new FencedGateway({ url })).toThrow('url must be');
    expect(() => new FencedGateway({ url: one.url, key: 'a\r\nb' })).toThrow(InvalidArgumentError);
    await expect(nowhere.objects.put('a', 'x', { token: 0 })).rejects.toMatchObject({
      code: 'invalid-token',
    });
    await expect(
      nowhere.objects.put('a', 'x', { token: 1, tags: { a: 'b' } }),
    ).rejects.toMatchObject({ code: 'unsupported' });
  });

  test('of a gateway that is down: nothing was written', async () => {
    const proxy = await TcpProxy.start({ host: '127.0.0.1', port: 1 });
    const nowhere = new FencedGateway({ url: `http://${proxy.host}:${proxy.port}` });
    await proxy.stop();
    for (const call of [
      () => nowhere.objects.put('a', 'x', { token: 1 }),
      () => nowhere.records('c').put('a', 1, { token: 1 }),
      () => nowhere.objects.get('a'),
    ])
      await expect(call()).rejects.toThrow(StoreUnavailableError);
  });

  test.each<[string, (client: FencedGateway, token: bigint) => Promise<unknown>, boolean]>([
    ['a put', (client, token) => client.objects.put('reports/lost', 'x', { token }), true],
    ['a claim', (client, token) => client.objects.claim('reports/lost', { token }), true],
    ['a deletion', (client, token) => client.objects.delete('reports/lost', { token }), true],
    ['a record', (client, token) => client.records('reports').put('lost', 1, { token }), true],
    ['a read', (client) => client.objects.get('reports/lost'), false],
    ['a lease', (client) => client.acquire('reports/lost-too', { ttlMs: 1_000 }), false],
  ])('of %s whose answer was lost', async (_, call, isWrite) => {
    const { hostname, port } = new URL(one.url);
    await using parts = new AsyncDisposableStack();
    const proxy = await TcpProxy.start({ host: hostname, port: Number(port) });
    parts.defer(() => proxy.stop());
    const client = new FencedGateway({ url: `http://${proxy.host}:${proxy.port}`, key });
    await using lease = await client.acquire('reports/lost', { ttlMs: 30_000 });
    proxy.swallow('toClient');
    const outcome = call(client, lease.token).catch((error: unknown) => error);
    await proxy.untilSwallowed('toClient');
    proxy.heal();
    proxy.cut();
    expect(await outcome).toBeInstanceOf(isWrite ? OutcomeUnknownError : StoreUnavailableError);
    // After an unknown outcome, the same write may be repeated with the same token.
    if (isWrite) await call(client, lease.token);
  });

  test('of a server that is not a gateway', async () => {
    const answering = (body: string, status: number, type = 'text/html') =>
      new FencedGateway({
        url: 'http://gateway.invalid',
        fetch: async () => new Response(body, { status, headers: { 'content-type': type } }),
      });
    for (const client of [
      answering('<html>', 502),
      answering('{"type":7}', 500, 'application/problem+json'),
      answering('{"type":"urn:fen', 412, 'application/problem+json'),
    ]) {
      await expect(client.objects.put('a', 'x', { token: 1 })).rejects.toThrow(OutcomeUnknownError);
      await expect(client.objects.get('a')).rejects.toThrow(StoreUnavailableError);
      await expect(client.acquire('a', { ttlMs: 1 })).rejects.toThrow(LeaseError);
    }
  });
});

test('a client without a good key is slowed down after a few tries, and one with a key is not', async () => {
  const stranger = gateway(two, 'guess');
  const errors = await Promise.all(
    Array.from({ length: 40 }, () =>
      stranger.objects.get('reports/x').catch((error: Error) => error),
    ),
  );
  const codes = errors.map((error) => (error as { code?: string } | null)?.code);
  expect(codes.filter((code) => code === 'store-setup').length).toBeLessThanOrEqual(25);
  expect(codes.filter((code) => code === 'unavailable').length).toBeGreaterThanOrEqual(15);
  expect(await gateway(two).objects.get('reports/x')).toBeNull();
});

describe('the examples of the documentation', async () => {
  const page = await readFile(new URL('../../docs/gateway-clients.md', import.meta.url), 'utf8');
  const blocks = new Map(
    [...page.matchAll(/```(\w+)\n(.*?)```/gs)].map(([, language = '', text = '']) => [
      language,
      text,
    ]),
  );

  async function play(command: string, name: string, text: string | undefined, directory: string) {
    const file = join(directory, name);
    await writeFile(file, text ?? expect.fail('the page has no such example'));
    const env = { ...process.env, FENCED_GATEWAY: one.url, FENCED_API_KEY: key };
    return (await run(command, [file], { cwd: directory, env, timeout: 30_000 })).stdout;
  }

  test.each([
    ['curl', 'sh', 'example.sh', 'sh', /^line\n412\n$/],
    [
      'Python',
      'python3',
      'example.py',
      'python',
      /^10 20\nA later holder has written or claimed\n$/,
    ],
  ])('%s', async (_, command, name, language, expected) => {
    const directory = await mkdtemp(join(tmpdir(), 'fenced-example-'));
    try {
      expect(await play(command, name, blocks.get(language), directory)).toMatch(expected);
    } finally {
      await rm(directory, { recursive: true });
    }
  });

  test('TypeScript', async () => {
    // Beside this file, so that the package is found.
    const directory = await mkdtemp(join(import.meta.dirname, 'example-'));
    try {
      await play(process.execPath, 'example.ts', blocks.get('ts'), directory);
    } finally {
      await rm(directory, { recursive: true });
    }
    expect(await gateway(one).records('reports').get('ts')).toMatchObject({ body: 1 });
  });
});
