import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';
import { FencedStoreError, OutcomeUnknownError } from '@fenced/store';
import { type Current, FencedS3 } from '@fenced/store/s3';
import { s3ServersAtHand, startS3 } from '@fenced/testbed';
import { expect, test } from 'vitest';
import { type Betrayal, inMemory, ScriptedServer } from './harness/s3-servers.js';

const WRITERS = 4;
const UPDATES = 8;
/** Every n-th update makes the object large, so the store sends another kind of request. */
const LARGE_EVERY = 8;
const LARGE_BYTES = 2 ** 21;

interface History {
  readonly acknowledged: readonly string[];
  readonly unknown: readonly string[];
  /** Number of refused updates by error code. */
  readonly refused: Readonly<Record<string, number>>;
  /** The names that the object has at the end, in order. */
  readonly found: readonly string[];
  readonly count: number;
}

const textOf = (current: Current | null): string => Buffer.from(current?.body ?? []).toString();

/**
 * Lets concurrent writers append unique names to one object, and increment a counter in another.
 */
async function historyOf(storeOf: () => FencedS3): Promise<History> {
  const acknowledged: string[] = [];
  const unknown: string[] = [];
  const refused: Record<string, number> = {};
  const write = async (name: string, updated: Promise<unknown>): Promise<void> => {
    const error = await updated.then(
      () => null,
      (thrown: unknown) => thrown,
    );
    if (error === null) acknowledged.push(name);
    else if (error instanceof OutcomeUnknownError) unknown.push(name);
    else if (error instanceof FencedStoreError)
      refused[error.code] = (refused[error.code] ?? 0) + 1;
    else throw error;
  };
  const work = async (_: unknown, writer: number): Promise<void> => {
    const store = storeOf();
    for (let i = 0; i < UPDATES; i++) {
      const name = `${writer}-${i}`;
      const padding = i % LARGE_EVERY === LARGE_EVERY - 1 ? '.'.repeat(LARGE_BYTES) : '';
      const append = (current: Current | null) =>
        `${textOf(current).replaceAll('.', '')}${name} ${padding}`;
      await write(name, store.update('names', { token: 7 }, append));
      const add = (current: Current | null) => `${Number(textOf(current)) + 1}`;
      await write(`count ${name}`, store.update('count', { token: 7 }, add));
    }
  };
  await Promise.all(Array.from({ length: WRITERS }, work));
  const reader = storeOf();
  const found = textOf(await reader.get('names')).match(/\d+-\d+/g) ?? [];
  return {
    acknowledged,
    unknown,
    refused,
    found,
    count: Number(textOf(await reader.get('count'))),
  };
}

/** Counts the acknowledged updates that are not in the objects. */
function lostOf({ acknowledged, found, count }: History): number {
  const names = acknowledged.filter((name) => !name.startsWith('count'));
  const lost = names.filter((name) => !found.includes(name));
  return lost.length + Math.max(0, acknowledged.length - names.length - count);
}

const clientOf = (endpoint: string): S3Client =>
  new S3Client({
    endpoint,
    region: 'us-east-1',
    forcePathStyle: true,
    credentials: { accessKeyId: 'key', secretAccessKey: 'secret' },
  });
/** No compression, because gzip would make the padded requests small again. */
const settings = { bucket: 'bucket', attemptsMax: 500, gzipLevel: 0 };

const servers = s3ServersAtHand().filter(
  (server) => server !== 'moto' || process.env.FENCED_S3_SERVERS === 'all',
);
test.each(servers)('no update is lost on %s', { timeout: 120_000 }, async (server) => {
  await using service = await startS3(server === 'environment' ? undefined : server);
  const client = new S3Client({ ...service, credentials: service, forcePathStyle: true });
  await client.send(new CreateBucketCommand({ Bucket: 'histories' }));
  const history = await historyOf(() => new FencedS3({ client, ...settings, bucket: 'histories' }));
  expect(lostOf(history)).toBe(0);
  expect(history.acknowledged).toHaveLength(2 * WRITERS * UPDATES);
  expect(new Set(history.found).size).toBe(history.found.length);
  expect(history.count).toBe(WRITERS * UPDATES);
  client.destroy();
});

const racing: readonly (readonly [Betrayal, string, number])[] = [
  [{ checksHeadersOnly: true }, 'unsafe-store', 2 * WRITERS * UPDATES],
  [{ checksHeadersOnly: true, looksLate: true }, 'unsafe-store', 2 * WRITERS * UPDATES],
  [{ checksBeforeItWrites: true }, 'unsafe-store', 2 * WRITERS * UPDATES],
  [{ ignoresOn: 'large' }, 'unsupported', (WRITERS * UPDATES) / LARGE_EVERY],
  [{ ignoresOn: 'expect' }, 'unsupported', (WRITERS * UPDATES) / LARGE_EVERY],
];
test.each(racing)('%j: no accepted update is lost', { timeout: 60_000 }, async (...row) => {
  const [betrayal, code, refused] = row;
  await using server = await ScriptedServer.start(inMemory(betrayal));
  const client = clientOf(server.endpoint);
  const history = await historyOf(() => new FencedS3({ client, ...settings }));
  expect(lostOf(history)).toBe(0);
  expect(history.refused).toEqual({ [code]: refused });
  expect(history.acknowledged).toHaveLength(2 * WRITERS * UPDATES - refused);
});

test('this test sees the lost updates of a server that races after its probe', async () => {
  const betrayal: { ignoresMatch: boolean } = { ignoresMatch: false };
  await using server = await ScriptedServer.start(inMemory(betrayal));
  const client = clientOf(server.endpoint);
  const stores = () => new FencedS3({ client, ...settings });
  await stores().put('large', Buffer.alloc(LARGE_BYTES), { token: 1 });
  betrayal.ignoresMatch = true;
  expect(lostOf(await historyOf(stores))).toBeGreaterThan(0);
});
