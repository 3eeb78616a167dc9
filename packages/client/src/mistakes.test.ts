import { expect, test } from 'vitest';
import { FencedGateway } from './index.js';

/** A caller without a type checker. */
// biome-ignore lint/suspicious/noExplicitAny: that is the mistake
type Any = any;

const fetcher = (): never => expect.unreachable();
const gateway = new FencedGateway({ url: 'http://gateway.invalid', fetch: fetcher });

/** A gateway that has nothing, and takes no write. */
const missing = new FencedGateway({
  url: 'http://gateway.invalid',
  fetch: async (_, { method = 'GET' } = {}) => {
    expect(method).toBe('GET');
    const headers = { 'Content-Type': 'application/problem+json' };
    return new Response('{"type":"urn:fenced:problem:not-found"}', { status: 404, headers });
  },
});

const MISTAKES: readonly [string, () => unknown, string][] = [
  [
    'an address alone',
    () => new FencedGateway('http://x' as Any),
    "an object such as { url: 'https://gateway.example' }",
  ],
  [
    'no address',
    () => new FencedGateway({} as Any),
    'url must be the address of a gateway, http:// or https://',
  ],
  [
    'an address under another name',
    () => new FencedGateway({ host: 'x' } as Any),
    'the field is called url',
  ],
  [
    'an address without its protocol',
    () => new FencedGateway({ url: 'gateway:8080' }),
    'http:// or https://',
  ],
  [
    'a key under another name',
    () => new FencedGateway({ url: 'http://x', apiKey: 'k' } as Any),
    'the field is called key',
  ],
  [
    'a key as a header',
    () => new FencedGateway({ url: 'http://x', key: 'Bearer abc' }),
    'without Bearer before it',
  ],
  ['a TTL alone', () => gateway.acquire('x', 1_000 as Any), 'an object such as { ttlMs: 10_000 }'],
  [
    'a TTL under another name',
    () => gateway.acquire('x', { ttl: 1_000 } as Any),
    'the field is called ttlMs',
  ],
  [
    'a timeout',
    () => gateway.acquire('x', { ttlMs: 1_000, timeout: 3 } as Any),
    'the field is called waitMs',
  ],
  [
    'a wait of tryAcquire',
    () => gateway.tryAcquire('x', { ttlMs: 1_000, waitMs: 3 } as Any),
    'unknown field waitMs in the options',
  ],
  [
    'an empty name',
    () => gateway.acquire('', { ttlMs: 1_000 }),
    'a name must be a non-empty string',
  ],
  [
    'a name with dots',
    () => gateway.acquire('../x', { ttlMs: 1_000 }),
    'a segment of a name may not be empty, . or ..',
  ],
  [
    'no names',
    () => gateway.acquire([], { ttlMs: 1_000 }),
    'resource must be a name, or an array of names',
  ],
  ['a name twice', () => gateway.acquire(['a', 'a'], { ttlMs: 1_000 }), 'resource is named twice'],
  [
    'a controller',
    () => gateway.acquire('x', { ttlMs: 1_000, signal: new AbortController() as Any }),
    'signal must be an AbortSignal',
  ],
  [
    'no routine',
    () => gateway.using('x', { ttlMs: 1_000 }, undefined as Any),
    'routine must be a function',
  ],
  [
    'an unknown limit',
    () => gateway.using('x', { ttlMs: 1_000, maxHold: 1 } as Any, () => 0),
    'unknown field maxHold',
  ],
  [
    'a limit below the TTL',
    () => gateway.using('x', { ttlMs: 1_000, maxHoldMs: 1 }, () => 0),
    'maxHoldMs must be a whole number of milliseconds from 1000',
  ],
  [
    'the release of a name',
    () => gateway.release('x' as Any),
    '{ resource: lease.resources, owner: lease.owner }',
  ],
  [
    'a release without an owner',
    () => gateway.release({ resource: 'x' } as Any),
    'owner must be the owner of a lease',
  ],
  [
    'a write without options',
    () => gateway.objects.put('k', 'v', undefined as Any),
    '{ token: lease.token }',
  ],
  [
    'a write without a token',
    () => gateway.objects.put('k', 'v', {} as Any),
    'lease.token is a whole number',
  ],
  [
    'the condition of another library',
    () => gateway.objects.put('k', 'v', { token: 1n, ifMatch: 'e' } as Any),
    'the field is called expected',
  ],
  [
    'a token for a read',
    () => gateway.objects.get('k', { token: 1n } as Any),
    'call claimAndGet, which claims the resource and reads it',
  ],
  ['a path for a collection', () => gateway.records('a/b'), 'a non-empty string without slashes'],
  [
    'no document',
    () => gateway.records('a').put('x', undefined as Any, { token: 1n }),
    'body must be JSON',
  ],
];

test.each(MISTAKES)('%s is refused, and the message says what to do', async (_, call, message) => {
  const called = (async () => call())();
  await expect(called).rejects.toMatchObject({
    code: expect.stringMatching(/^invalid-(argument|token)$/),
    message: expect.stringContaining(message),
  });
});

test.each([
  ['an object', () => missing.objects.update('k', { token: 1n }, () => undefined as Any)],
  ['a record', () => missing.records('a').update('k', { token: 1n }, () => undefined as Any)],
])(
  'an update of %s whose function returns nothing sends no write, and says what to do',
  async (_, call) => {
    await expect(call()).rejects.toMatchObject({
      code: 'invalid-argument',
      message: expect.stringContaining('edit must return the new value, and returned nothing'),
    });
  },
);
