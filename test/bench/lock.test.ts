import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const MAIN = fileURLToPath(new URL('../../bench/main.ts', import.meta.url));
const PEERS = [
  'redlock 4.2.0',
  'redlock 5.0.0-beta.2',
  '@sesamecare-oss/redlock 1.4.0',
  'redis-semaphore 5.8.0',
  'redlock-universal 0.8.5',
];
const [RAW, OURS] = ['raw ioredis, quorum', '@fenced/lock'];
const OVER_NODE_REDIS = '@fenced/lock over node-redis 6.3.1';
const RAW_NODE_REDIS = 'raw node-redis 6.3.1, quorum';
const ALL = [RAW, OURS, ...PEERS];
const WAITING = ['redlock 4.2.0', 'redis-semaphore 5.8.0', 'redlock-universal 0.8.5'];

test('a quick bench measures the lock beside every peer, and publishes tables and picture', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'fenced-bench-'));
  const page = join(folder, 'page.md');
  const place = (bench: string) => `<!-- bench:${bench} -->\nold\n<!-- /bench:${bench} -->\n`;
  await writeFile(page, `before\n${place('lock-sequential')}${place('lock-faults')}after\n`);
  const only = ['--only', 'lock-sequential', '--only', 'lock-faults'];
  const args = [MAIN, '--quick', '--json', ...only, '--tables', page, '--svg', folder];
  const { stdout } = await promisify(execFile)(process.execPath, args);
  const written = await readFile(page, 'utf8');
  const picture = await readFile(join(folder, 'lock-speed.svg'), 'utf8');
  await rm(folder, { recursive: true });

  const rows: Record<string, unknown>[] = JSON.parse(stdout);
  for (const row of rows) {
    expect(row).toMatchObject({ bench: expect.any(String), against: expect.any(String) });
    for (const figure of ['ratio', 'p50Ms', 'p99Ms', 'perSecond', 'failures']) {
      expect(row[figure], `${figure} of ${row.subject}`).toSatisfy(Number.isFinite);
    }
  }
  const subjects = (bench: string) =>
    rows.filter((row) => row.bench === bench).map((row) => row.subject);
  // The last rows compare ours with the best peer, and node-redis with ioredis.
  const floors = ['tokens over a raw socket', 'tokens over raw ioredis'];
  const ofNodeRedis = [RAW_NODE_REDIS, OVER_NODE_REDIS];
  const sequential = ['raw socket', RAW, ...floors, OURS, ...PEERS, ...ofNodeRedis];
  expect(subjects('lock-sequential')).toEqual([...sequential, OURS, OVER_NODE_REDIS]);
  const against = rows.filter((row) => row.bench === 'lock-sequential').map((row) => row.against);
  expect(PEERS).toContain(against.at(-2));
  expect(against.at(-1)).toBe(OURS);
  const states = ['healthy', 'one node down', 'one node hung'];
  expect(subjects('lock-faults')).toEqual(
    ALL.flatMap((name) => states.map((state) => `${name}, ${state}`)),
  );
  // These libraries wait for a hung node, and the bench must end all the same.
  const unfinished = rows.filter((row) => row.unfinished === 1 && row.perSecond === 0);
  expect(unfinished.map((row) => row.subject)).toEqual(
    expect.arrayContaining(WAITING.map((name) => `${name}, one node hung`)),
  );

  expect(written).toMatch(/^before\n/);
  expect(written).toMatch(/after\n$/);
  expect(written).not.toContain('old');
  for (const name of ALL) expect(written).toContain(`| ${name} |`);
  for (const name of ALL) expect(picture).toContain(`>${name}</text>`);
}, 120_000);
