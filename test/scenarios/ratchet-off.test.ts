import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import {
  playCell,
  type Store,
  startLockNodes,
  startStore,
  stories,
  variantsOf,
} from '@fenced/demo';
import pg from 'pg';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';

// A test of the tests: without the store's ratchet, the demo must report a lost update.
const services = new AsyncDisposableStack();
let nodes: Awaited<ReturnType<typeof startLockNodes>>['nodes'];
beforeAll(async () => {
  nodes = services.use(await startLockNodes()).nodes;
});
afterAll(() => services.disposeAsync());

const variants = stories.flatMap(variantsOf);
const pausedClient = 1;
const pausedGateway = 13;
const pausedShellJob = 14;

async function verdictOn(store: Store, protection: 'token' | 'claim', number: number) {
  const variant = variants.find(
    (one) => one.story.number === number && one.protection === protection,
  );
  if (!variant) throw new Error(`story ${number} is not played under ${protection}`);
  return (await playCell(variant, store, nodes)).verdict;
}

test("on S3 without the check, a late write overwrites the next holder's", async () => {
  const store = services.use(await startStore('s3'));
  const verdict = (protection: 'token' | 'claim', number = pausedClient) =>
    verdictOn(store, protection, number);

  vi.stubEnv('NODE_OPTIONS', `--import=${new URL('./ratchet-off.mjs', import.meta.url)}`);
  expect(await verdict('token')).toBe('lost');
  expect(await verdict('claim')).toBe('lost');
  expect(await verdict('token', pausedGateway)).toBe('lost');
  expect(await verdict('token', pausedShellJob)).toBe('lost');
  vi.unstubAllEnvs();
  expect(await verdict('token')).toBe('safe');
}, 60_000);

test("on Postgres without the check, a late write overwrites the next holder's", async () => {
  const store = services.use(await startStore('postgres'));
  const verdict = (protection: 'token' | 'claim', number = pausedClient) =>
    verdictOn(store, protection, number);

  const address = await store.create('address');
  if (address.kind !== 'postgres') throw new Error('not an address of Postgres');
  const client = new pg.Client(address.url);
  await client.connect();
  await client.query(`CREATE OR REPLACE FUNCTION fenced.advance(resource text, token bigint)
    RETURNS void LANGUAGE sql AS ''`);
  // Makes the token of all records equal. To remove the check would not be enough, because a
  // gateway installs it again at its start.
  await client.query(`CREATE FUNCTION demo.same_token() RETURNS trigger LANGUAGE plpgsql AS
      'BEGIN NEW.token := 1; RETURN NEW; END';
    CREATE TRIGGER same_token BEFORE INSERT ON fenced.record
      FOR EACH ROW EXECUTE FUNCTION demo.same_token()`);
  expect(await verdict('token')).toBe('lost');
  expect(await verdict('claim')).toBe('lost');
  expect(await verdict('token', pausedGateway)).toBe('lost');
  expect(await verdict('token', pausedShellJob)).toBe('lost');
  await client.query('DROP FUNCTION demo.same_token CASCADE');
  const schema = fileURLToPath(import.meta.resolve('@fenced/store/postgres/schema.sql'));
  await client.query(await readFile(schema, 'utf8'));
  await client.end();
  expect(await verdict('token')).toBe('safe');
}, 60_000);
