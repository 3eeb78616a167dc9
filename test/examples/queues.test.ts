import type { FencedS3 } from '@fenced/store/s3';
import pg from 'pg';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { Program, run, Servers, startPaused } from './harness/programs.js';

// A queue needs seconds to notice that a worker stands still.
vi.setConfig({ testTimeout: 60_000 });

const parts = new AsyncDisposableStack();
let servers: Servers;
let documents: FencedS3;

beforeAll(async () => {
  servers = parts.use(await Servers.start());
  documents = parts.use(servers.documents()).store;
});
afterAll(() => parts.disposeAsync());

const stored = async (key: string): Promise<string> =>
  new TextDecoder().decode((await documents.get(key))?.body);

test.concurrent('worker-queue-pg-boss: the result of a paused worker is refused', async () => {
  const { env } = servers;
  const main = 'worker-queue-pg-boss/main.ts';
  const [id] = await run('worker-queue-pg-boss/send.ts', { args: ['dora'], env });
  const stopAt = 'await invoices.put(';
  await using ann = await startPaused(main, { args: ['ann'], env, stopAt });
  await using bob = await Program.start(main, { args: ['bob'], env });
  await bob.printed('bob has billed dora');
  await ann.process.wake();
  await ann.printed('ann is refused: another worker has billed dora');
  expect(await stored(`invoices/${id}`)).toBe('dora owes 7, says bob');
  expect((await documents.stat(`invoices/${id}`))?.token).toBe(2n);
});

test.concurrent('worker-queue-bullmq: the result of a paused worker is refused', async () => {
  const { env } = servers;
  const main = 'worker-queue-bullmq/main.ts';
  await run('worker-queue-bullmq/send.ts', { args: ['dora', '7'], env });
  const stopAt = 'await statements.update(';
  await using ann = await startPaused(main, { args: ['ann'], env, stopAt });
  await using bob = await Program.start(main, { args: ['bob'], env });
  await bob.printed('bob has billed dora 7');
  await ann.process.wake();
  await ann.printed('ann is refused: a later holder has written statements/dora');
  expect(JSON.parse(await stored('statements/dora'))).toEqual({ 1: '7 by bob' });
});

test.concurrent('cron: one machine runs each due time, and a paused one is refused', async () => {
  const { env } = servers;
  const fleet = (machine: string) => ({ args: [machine, '* * * * * *'], env });
  const stopAt = 'const { rowCount } =';
  await using ann = await startPaused('cron/main.ts', { ...fleet('ann'), stopAt });
  await using bob = await Program.start('cron/main.ts', fleet('bob'));
  const done = ({ lines }: Program) => lines.filter((line) => line.endsWith(' done'));
  await bob.printed(/ done$/);
  await ann.process.wake();
  const refused = await ann.printed(/is refused: a later run has written$/);
  await bob.printed(/ done$/, 3);
  await Promise.all([ann.process.kill(), bob.process.kill()]);
  const pool = new pg.Pool({ connectionString: env.DATABASE_URL });
  // `pool.end` does not wait for the server, which may stop before the connections are closed.
  pool.on('error', () => undefined);
  const { rows } = await pool.query<{ due: Date }>('SELECT due FROM interest');
  await pool.end();
  const dueTimes = rows.map(({ due }) => due.toISOString());
  expect(dueTimes).not.toContain(refused.split(' ')[0]);
  // No due time is reported by both machines.
  const reported = [...done(ann), ...done(bob)].map((line) => line.split(' ')[0]);
  expect(new Set(reported).size).toBe(reported.length);
  expect(dueTimes).toEqual(expect.arrayContaining(reported));
});
