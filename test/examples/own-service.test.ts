import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { CreateTableCommand, DynamoDBClient, GetItemCommand } from '@aws-sdk/client-dynamodb';
import { Redlock } from '@fenced/lock';
import { findProgram, startMariadb } from '@fenced/testbed';
import dynalite from 'dynalite';
import { Redis } from 'ioredis';
import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Program, run, Servers, startPaused, wake } from './harness/programs.js';

const parts = new AsyncDisposableStack();
let env: Readonly<Record<string, string>>;

beforeAll(async () => {
  ({ env } = parts.use(await Servers.start()));
});
afterAll(() => parts.disposeAsync());

/** Pauses a holder before its write. Then the next holder writes a higher price. */
async function pauseBeforeWrite(
  path: string,
  env: Readonly<Record<string, string>>,
  stopAt: string,
) {
  await using late = await startPaused(path, { args: ['chair', '700'], env, stopAt });
  expect(await run(path, { args: ['chair', '900'], env })).toEqual(['chair 900 is written']);
  expect(await wake(late)).toEqual(['chair 700 is refused: a later holder wrote']);
}

test('own-http-service: a holder whose lease has ended is refused', async () => {
  await using service = await Program.start('own-http-service/main.ts', {
    env: { ...env, PORT: '0' },
  });
  const url = await service.printed(/^http:/);
  const put = async (cents: number, token?: bigint) => {
    const headers = token === undefined ? {} : { 'Fencing-Token': `${token}` };
    return (await fetch(`${url}/chair`, { method: 'PUT', body: `${cents}`, headers })).status;
  };
  const clients = (env.REDIS_URLS ?? '').split(',').map((node) => new Redis(node));
  const nodes = clients.map((client, at) => ({ name: 'abcde'.charAt(at), client }));
  await using redlock = new Redlock({ nodes });
  const { token: ended } = await redlock.acquire('chair', { ttlMs: 200, waitMs: 10_000 });
  const { token } = await redlock.acquire('chair', { ttlMs: 5_000, waitMs: 10_000 });
  expect([await put(800, token), await put(900, token)]).toEqual([204, 204]);
  expect([await put(700, ended), await put(700), await put(700.5, token)]).toEqual([412, 428, 400]);
  // Many holders at once: the highest token wins.
  const tokens = Array.from({ length: 32 }, (_, at) => token + BigInt(at + 1));
  const statuses = await Promise.all(
    tokens.map((one, at) => put(at, one)).toSorted(() => Math.random() - 0.5),
  );
  expect(statuses.filter((status) => status !== 204 && status !== 412)).toEqual([]);
  const pool = new pg.Pool({ connectionString: env.DATABASE_URL });
  pool.on('error', () => undefined);
  expect((await pool.query('TABLE price')).rows).toEqual([
    { item: 'chair', cents: 31, token: `${token + 32n}` },
  ]);
  await pool.end();
  for (const client of clients) client.disconnect();
});

test('own-mysql-table: the transaction of a paused holder is refused', {
  timeout: 300_000,
}, async () => {
  await using mariadb = await startMariadb();
  const own = { ...env, MYSQL_URL: mariadb.url };
  await pauseBeforeWrite('own-mysql-table/main.ts', own, 'await fenced(');
  const { port } = new URL(mariadb.url);
  const client = ['--no-defaults', '--protocol=tcp', `--port=${port}`, '--user=root', '--batch'];
  const { stdout } = await promisify(execFile)(findProgram('mariadb') ?? '', [
    ...[...client, '--skip-column-names', '--execute=SELECT item, cents FROM price', 'test'],
  ]);
  expect(stdout).toBe('chair\t900\n');
});

test('own-dynamodb-table: the conditional request of a paused holder is refused', async () => {
  const server = dynalite({ createTableMs: 0 });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const endpoint = `http://127.0.0.1:${Object(server.address()).port}`;
  const credentials = { accessKeyId: 'key', secretAccessKey: 'secret' };
  const db = new DynamoDBClient({ endpoint, region: 'us-east-1', credentials });
  await db.send(
    new CreateTableCommand({
      TableName: 'price',
      BillingMode: 'PAY_PER_REQUEST',
      AttributeDefinitions: [{ AttributeName: 'item', AttributeType: 'S' }],
      KeySchema: [{ AttributeName: 'item', KeyType: 'HASH' }],
    }),
  );
  const own = { ...env, AWS_ENDPOINT_URL_DYNAMODB: endpoint };
  await pauseBeforeWrite('own-dynamodb-table/main.ts', own, 'await write(token)');
  const { Item } = await db.send(
    new GetItemCommand({ TableName: 'price', Key: { item: { S: 'chair' } } }),
  );
  expect(Item?.cents).toEqual({ N: '900' });
  db.destroy();
  server.close();
});
