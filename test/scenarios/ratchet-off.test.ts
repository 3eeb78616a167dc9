import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { playCell, playsOf, type Store, scenarios, startLockNodes, startStore } from '@fenced/demo';
import pg from 'pg';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';

// A test of the tests: with the ratchet taken out of the store, the demo must report the update lost.
const services = new AsyncDisposableStack();
let nodes: Awaited<ReturnType<typeof startLockNodes>>['nodes'];
beforeAll(async () => {
  nodes = services.use(await startLockNodes()).nodes;
});
afterAll(() => services.disposeAsync());

const [pausedBeforeWrite] = scenarios;
if (!pausedBeforeWrite) throw new Error('there is no scenario 1');
const plays = playsOf(pausedBeforeWrite);

async function verdictOn(store: Store, protection: 'token' | 'claim') {
  const play = plays.find((one) => one.protection === protection);
  if (!play) throw new Error(`scenario 1 is not played under ${protection}`);
  return (await playCell(play, store, nodes)).verdict;
}

test('on S3 without its check, the paused client overwrites its successor', async () => {
  const store = services.use(await startStore('s3'));
  const verdict = (protection: 'token' | 'claim') => verdictOn(store, protection);

  vi.stubEnv('NODE_OPTIONS', `--import=${new URL('./ratchet-off.mjs', import.meta.url)}`);
  expect(await verdict('token')).toBe('lost');
  expect(await verdict('claim')).toBe('lost');
  vi.unstubAllEnvs();
  expect(await verdict('token')).toBe('safe');
});

test('on Postgres without its check, the paused client overwrites its successor', async () => {
  const store = services.use(await startStore('postgres'));
  const verdict = (protection: 'token' | 'claim') => verdictOn(store, protection);

  const address = await store.create('address');
  if (address.kind !== 'postgres') throw new Error('not an address of Postgres');
  const client = new pg.Client(address.url);
  await client.connect();
  await client.query(`CREATE OR REPLACE FUNCTION fenced.advance(resource text, token bigint)
    RETURNS void LANGUAGE sql AS ''`);
  expect(await verdict('token')).toBe('lost');
  expect(await verdict('claim')).toBe('lost');
  const schema = fileURLToPath(import.meta.resolve('@fenced/store/postgres/schema.sql'));
  await client.query(await readFile(schema, 'utf8'));
  await client.end();
  expect(await verdict('token')).toBe('safe');
});
