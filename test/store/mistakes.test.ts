import { S3Client } from '@aws-sdk/client-s3';
import { FencedPostgres } from '@fenced/store/postgres';
import { FencedS3 } from '@fenced/store/s3';
import { MemoryRecords, MemoryS3 } from '@fenced/store/testing';
import { expect, test } from 'vitest';

/** A client and a pool that fail the test if they are used: nothing may be sent. */
const client = Object.assign(new S3Client({ region: 'eu-central-1' }), {
  send: () => expect.unreachable(),
});
const pool = { connect: () => expect.unreachable() };
const s3 = new FencedS3({ client, bucket: 'b' });
const postgres = new FencedPostgres({ pool });
const records = postgres.records('invoices');
const token = 33;
/** A caller without a type checker. */
// biome-ignore lint/suspicious/noExplicitAny: that is the mistake
type Any = any;

const MISTAKES: readonly [string, () => unknown, string][] = [
  ['no options', () => s3.put('k', '', undefined as Any), '{ token: lease.token }'],
  ['the token itself', () => records.put('k', 1, token as Any), '{ token: lease.token }'],
  [
    'the lease itself',
    () =>
      s3.put(
        'k',
        '',
        new (class Lease {
          resources = [];
        })() as Any,
      ),
    '{ token: lease.token } value=a Lease',
  ],
  ['a lease as the token', () => s3.put('k', '', { token: {} as Any }), 'lease.token is a whole'],
  ['no token', () => records.claim('k', {} as Any), 'and await acquire() has the lease'],
  [
    'the condition of another library',
    () => s3.put('k', '', { token, ifMatch: '"etag"' } as Any),
    'unknown field ifMatch in the options: the field is called expected',
  ],
  [
    'a misspelt condition',
    () => records.put('k', 1, { token, expectd: 1n } as Any),
    'unknown field expectd in the options',
  ],
  [
    'a misspelt resource',
    () => postgres.transaction({ resources: ['a'], token } as Any, async () => {}),
    'the field is called resource',
  ],
  ['no fence', () => postgres.query('SELECT 1' as Any, ''), 'options must be an object such as'],
  ['a value for a body', () => s3.put('k', { a: 1 } as Any, { token }), 'JSON.stringify'],
  [
    'the client itself',
    () => new FencedS3(client as Any),
    '{ client: new S3Client({}), bucket: … }',
  ],
  ['the pool itself', () => new FencedPostgres(pool as Any), '{ pool: new pg.Pool() }'],
  [
    'a misspelt owner of the bucket',
    () => new FencedS3({ client, bucket: 'b', expectedOwner: '1' } as Any),
    'unknown field expectedOwner in the options',
  ],
];

test.each(MISTAKES)(
  '%s is refused before anything is sent, and the message says what to do',
  async (_, call, message) => {
    const called = (async () => call())();
    await expect(called).rejects.toMatchObject({
      code: expect.stringMatching(/^invalid-(argument|token)$/),
      message: expect.stringContaining(message),
    });
  },
);

test('an update whose function returns no body writes nothing, and says what to return', async () => {
  await using memory = await MemoryS3.start();
  const objects = new FencedS3({ client: new S3Client(memory.clientConfig), bucket: 'b' });
  const bodyless = 'or an object with a body such as { body, contentType }';
  for (const [next, message] of [
    [undefined, 'edit must return the new value, and returned nothing'],
    [{ a: 1 }, bodyless],
    [null, bodyless],
  ] as const) {
    await expect(objects.update('k', { token }, () => next as Any)).rejects.toMatchObject({
      code: 'invalid-argument',
      message: expect.stringContaining(message),
    });
  }
  expect(await objects.get('k')).toBeNull();
});

test('an update of a record whose function returns nothing writes nothing, and says so', async () => {
  const memory = new MemoryRecords().records('invoices');
  const update = memory.update('k', { token }, () => undefined as Any);
  await expect(update).rejects.toThrow('edit must return the new value, and returned nothing');
  expect(await memory.get('k')).toBeNull();
});
