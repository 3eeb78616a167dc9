import { createHash } from 'node:crypto';
import { openCredentials } from '@fenced/gateway/credentials';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { requestOf, send, typeOf } from './harness/raw.js';
import { type Front, GatewayWorld } from './harness/world.js';

let world: GatewayWorld;
let front: Front;

beforeAll(async () => {
  world = await GatewayWorld.start();
  front = await world.open();
});

afterAll(async () => {
  await front?.[Symbol.asyncDispose]();
  await world?.[Symbol.asyncDispose]();
});

const RECORD = '/v1/records/requests/1';
const OBJECT = '/v1/objects/requests/1';
const JSON_TYPE = ['Content-Type', 'application/json'] as const;

async function put(body: string | Buffer, path: string = RECORD): Promise<[string, string]> {
  const headers = [JSON_TYPE, ['Fencing-Token', '1']] as const;
  const [reply] = await send(front.url, requestOf('PUT', path, headers, body));
  return [reply?.status === 200 ? 'written' : typeOf(reply), reply?.body ?? ''];
}

describe('a document is stored as it was sent, or refused with the reason', () => {
  test.each([
    ['a whole number of 400 digits', '9'.repeat(400), 'a number'],
    ['a negative one, in a list', `[-${'9'.repeat(400)}]`, 'a number'],
    ['a number above the largest double', '1e400', 'a number'],
    ['a number below the smallest double', '{"a":1e-400}', 'a number'],
    ['half a surrogate pair', '"\\ud800"', 'surrogate'],
    ['half a surrogate pair in a name', '{"a\\udc00":1}', 'surrogate'],
    ['NUL', '["\\u0000"]', 'NUL'],
    ['a byte order mark before the document', '\ufeff{"a":1}', 'U+FEFF'],
  ])('%s is refused', async (_, body, reason) => {
    const [outcome, text] = await put(body);
    expect([outcome, text]).toEqual(['invalid-request', expect.stringContaining(reason)]);
  });

  test.each(['"\ufeffa"', '{"\ufeff":"\ud83d\ude00"}', '[0,0.0,1e-300,12345678901234567890e3]'])(
    '%j comes back',
    async (body) => {
      expect(await put(body)).toEqual(['written', expect.any(String)]);
      const read = await (await fetch(front.url + RECORD)).arrayBuffer();
      expect(JSON.parse(Buffer.from(read).toString())).toEqual(JSON.parse(body));
    },
  );
});

describe('a header that the gateway could only ignore is refused', () => {
  test.each([
    ['If-Unmodified-Since', 'Sat, 29 Oct 1994 19:43:31 GMT', 'If-Match'],
    ['Idempotency-Key', '"8e03978e"', 'token'],
    ['Content-Range', 'bytes 0-0/5', 'whole'],
  ])('%s', async (name, value, hint) => {
    for (const path of [RECORD, OBJECT]) {
      const headers = [JSON_TYPE, ['Fencing-Token', '9'], [name, value]] as const;
      const [reply] = await send(front.url, requestOf('PUT', path, headers, '"lost"'));
      expect([path, typeOf(reply)]).toEqual([path, 'invalid-request']);
      expect(reply?.body).toContain(hint);
    }
    const [lease] = await send(
      front.url,
      requestOf('POST', '/v1/leases/requests/1', [JSON_TYPE, [name, value]], '{"ttlMs":1000}'),
    );
    expect(typeOf(lease)).toBe('invalid-request');
  });

  test('a read may have an Idempotency-Key, because a read can be repeated', async () => {
    const [reply] = await send(
      front.url,
      requestOf('GET', '/v1/objects/requests/none', [['Idempotency-Key', 'a']]),
    );
    expect(typeOf(reply)).toBe('not-found');
  });
});

test('the outcome of a write is told only to callers who may write that record', async () => {
  const sha256 = createHash('sha256').update('key').digest('hex');
  const key = { name: 'key', sha256, verbs: ['write'] as const, prefixes: ['records/open/a/b'] };
  await using own = await world.open({ credentials: openCredentials({ keys: [key] }) });
  const ask = async (name: string, secret?: string): Promise<string> => {
    const headers = secret === undefined ? [] : [['Authorization', `Bearer ${secret}`] as const];
    const id = '0123456789abcdef0123456789abcdef';
    const writeId = `records.${id}.${Buffer.from(name).toString('base64url')}`;
    const target = `/v1/writes/${name === '' ? 'malformed' : writeId}`;
    const [reply] = await send(own.url, requestOf('GET', target, headers));
    return typeOf(reply);
  };
  expect(await ask('')).toBe('unauthenticated');
  expect(await ask('open/a')).toBe('unauthenticated');
  expect(await ask('', 'key')).toBe('invalid-request');
  expect(await ask('open/a', 'key')).toBe('forbidden');
  // No record has this name. Its first two segments are the record `open/a`, which is closed.
  expect(await ask('open/a/b', 'key')).toBe('invalid-request');
});

test('a flood from one address does not hold up the health checks from there', async () => {
  const seen = new Set<string>();
  const perAddress = {
    take: (name: string) => {
      if (seen.has(name)) return { ok: false, retryAfterMs: 600_000 } as const;
      seen.add(name);
      return { ok: true } as const;
    },
  };
  const perKey = { take: () => ({ ok: true }) as const };
  const credentials = { authenticate: async () => null };
  await using own = await world.open({ rate: { perAddress, perKey }, credentials });
  expect((await fetch(`${own.url}/v1/objects/guess`)).status).toBe(401);
  const probe = await fetch(`${own.url}/livez`, { signal: AbortSignal.timeout(5_000) });
  expect([probe.status, probe.headers.get('connection')]).toEqual([200, 'keep-alive']);
});
