import { join } from 'node:path';
import { build } from 'esbuild';
import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Program, run, Servers, startPaused, wake } from './harness/programs.js';

const parts = new AsyncDisposableStack();
let env: Readonly<Record<string, string>>;
let pool: pg.Pool;

beforeAll(async () => {
  ({ env } = parts.use(await Servers.start()));
  pool = new pg.Pool({ connectionString: env.DATABASE_URL });
  pool.on('error', () => undefined);
  parts.defer(() => pool.end());
});
afterAll(() => parts.disposeAsync());

const rows = async (text: string): Promise<unknown[]> => (await pool.query(text)).rows;

test('bank-ledger: a paused transfer is refused, and so is every write without a token', async () => {
  const bank = 'bank-ledger/main.ts';
  const transfer = ['transfer', 'ann', 'bob', '30'];
  await run(bank, { args: ['set-up'], env });
  const paused = { args: transfer, env, stopAt: 'await ledger.transaction(' };
  await using late = await startPaused(bank, paused);
  expect(await run(bank, { args: transfer, env })).toEqual(['ann has paid 30 to bob']);
  expect(await wake(late)).toEqual([
    'refused: a later holder has written. Nothing was moved from ann to bob',
  ]);
  await expect(pool.query('UPDATE account SET balance = 0')).rejects.toMatchObject({
    code: 'UF002',
  });
  expect(await rows('SELECT name, balance FROM account ORDER BY name')).toEqual([
    { name: 'ann', balance: 70 },
    { name: 'bob', balance: 130 },
    { name: 'cat', balance: 100 },
  ]);
});

test('leader: a paused leader is refused after another has dispatched', async () => {
  const leader = 'leader/main.ts';
  const start = (args: string[]) => Program.start(leader, { args, env });
  const stopAt = 'await store.transaction(';
  await using ann = await startPaused(leader, { args: ['ann'], env, stopAt });
  await using bob = await start(['bob']);
  await bob.printed('bob leads');
  const dispatched = async () => Number((await pool.query('TABLE dispatched')).rowCount);
  while ((await dispatched()) === 0);
  await ann.process.wake();
  await ann.printed('ann is refused: another one leads');
  expect(await rows('SELECT DISTINCT leader FROM dispatched')).toEqual([{ leader: 'bob' }]);
  await bob.process.kill('SIGTERM');
  expect(bob.lines).toEqual(['bob leads', 'bob leads no more']);
  await ann.printed('ann leads', 2);
});

test('nestjs: a paused process is refused', async () => {
  const folder = join(import.meta.dirname, '../../examples/nestjs');
  const compiled = {
    entryPoints: [join(folder, 'main.ts')],
    outfile: join(folder, 'dist/main.js'),
  };
  await build({ ...compiled, format: 'esm' });
  const app = 'nestjs/dist/main.js';
  const stopAt = 'const write =';
  await using late = await startPaused(app, { args: ['42', 'ann'], env, stopAt });
  expect(await run(app, { args: ['42', 'bob'], env })).toEqual(['bob has closed 42']);
  expect(await wake(late)).toEqual(['ann is refused: another clerk has closed 42']);
  expect(await rows('TABLE invoice')).toEqual([{ id: '42', clerk: 'bob' }]);
});

test('agent-tool-call: a paused worker is refused, and a resumed run applies each call once', async () => {
  const agent = 'agent-tool-call/main.ts';
  const stopAt = 'const isNew =';
  await using late = await startPaused(agent, { args: ['run-1', 'ann'], env, stopAt });
  const resumed = ['bob call-1 is applied', 'bob call-2 is applied'];
  expect(await run(agent, { args: ['run-1', 'bob'], env })).toEqual(resumed);
  expect(await wake(late)).toEqual(['ann is refused: another worker has resumed run-1']);
  const before = ['cat call-1 was applied before', 'cat call-2 was applied before'];
  expect(await run(agent, { args: ['run-1', 'cat'], env })).toEqual(before);
  expect(await rows('SELECT * FROM credit ORDER BY customer')).toEqual([
    { customer: 'dora', cents: 500 },
    { customer: 'emil', cents: 700 },
  ]);
  expect(await rows('SELECT DISTINCT worker FROM tool_call')).toEqual([{ worker: 'bob' }]);
});
