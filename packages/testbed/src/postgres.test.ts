import { cp, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from 'pg';
import { afterEach, expect, test, vi } from 'vitest';
import { startPostgres, startPostgresFrom } from './postgres.js';
import { findPostgres } from './programs.js';

afterEach(() => {
  vi.unstubAllEnvs();
});

async function query(url: string, sql: string): Promise<unknown[][]> {
  const client = new Client(url);
  await client.connect();
  try {
    return (await client.query({ text: sql, rowMode: 'array' })).rows;
  } finally {
    await client.end();
  }
}

const SETTINGS = `SELECT current_setting('server_encoding'), datcollate, current_setting('max_connections'), current_setting('fsync')
                  FROM pg_database WHERE datname = current_database()`;

test('Postgres has UTF-8, locale C and 200 connections, and ends while clients are connected', async () => {
  const { url, origin, program, stop } = await startPostgres();
  expect({ origin, program }).toEqual({
    origin: 'program',
    program: expect.stringMatching(/^postgres \d+/),
  });
  expect(await query(url, SETTINGS)).toEqual([['UTF8', 'C', '200', 'off']]);
  const client = new Client(url);
  const ended = new Promise((resolve) => client.on('error', resolve));
  await client.connect();
  await stop();
  await stop();
  // 57P01, admin_shutdown: the server was not killed.
  expect(await ended).toMatchObject({ code: '57P01' });
  await expect(query(url, 'SELECT 1')).rejects.toThrow('ECONNREFUSED');
});

test('fsync can be switched on', async () => {
  await using service = await startPostgres({ fsync: true });
  expect(await query(service.url, SETTINGS)).toEqual([['UTF8', 'C', '200', 'on']]);
});

test('two services are two servers', async () => {
  await using one = await startPostgres();
  await using two = await startPostgres();
  await query(one.url, 'CREATE TABLE only_here ()');
  await expect(query(two.url, 'TABLE only_here')).rejects.toThrow('does not exist');
});

test('binaries may lie in a folder that only root may enter', async () => {
  const home = findPostgres();
  if (home === undefined) throw new Error('the binaries are installed');
  // mkdtemp makes folders of mode 0700, like /root.
  const closed = await mkdtemp(join(tmpdir(), 'closed-'));
  try {
    const copy = join(closed, 'native');
    await cp(home, copy, { recursive: true, verbatimSymlinks: true });
    await using service = await startPostgresFrom(copy);
    expect(await query(service.url, 'SELECT 1')).toEqual([[1]]);
  } finally {
    await rm(closed, { recursive: true });
  }
});

test('the server of the environment is used and left running', async () => {
  await using service = await startPostgres();
  vi.stubEnv('FENCED_POSTGRES_URL', service.url);
  const found = await startPostgres();
  expect({ origin: found.origin, url: found.url }).toEqual({
    origin: 'environment',
    url: service.url,
  });
  await found.stop();
  expect(await query(service.url, 'SELECT 1')).toEqual([[1]]);
});

test.each([
  {
    what: 'no server listens',
    url: 'postgres://postgres:secret@127.0.0.1:1/postgres',
    says: 'ECONNREFUSED',
  },
  { what: 'it is not an address', url: 'postgres://[', says: 'Invalid URL' },
])(
  'an address of the environment is an error that names the variable if $what',
  async ({ url, says }) => {
    vi.stubEnv('FENCED_POSTGRES_URL', url);
    const refused = startPostgres();
    await expect(refused).rejects.toMatchObject({ code: 'environment' });
    await expect(refused).rejects.toThrow(new RegExp(`^FENCED_POSTGRES_URL=.*${says}`));
    await expect(refused).rejects.not.toThrow('secret');
  },
);
