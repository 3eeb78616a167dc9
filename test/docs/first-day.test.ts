import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Redlock } from '@fenced/lock';
import { startRedis } from '@fenced/testbed';
import { Redis } from 'ioredis';
import { expect, test } from 'vitest';
import { blocksOf, pageOf, paste, run } from './harness/pages.js';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

test('the program of the quickstart prints what the page says', async () => {
  await using redis = await startRedis(1);
  const page = await pageOf('docs/quickstart.md');
  const [program = ''] = blocksOf(page, 'js');
  const [printed = ''] = blocksOf(page, 'text');
  const url = `'${redis.nodes[0]?.url}'`;
  expect(await run(program.replace('6379', url), {}, 'mjs')).toBe(printed);
});

test('each message of the troubleshooting page is one of the code', async () => {
  const page = await pageOf('docs/troubleshooting.md');
  const [tables = ''] = page.split('## Symptoms without a message');
  const messages = [...tables.matchAll(/^\| `([^`]+)` \|/gm)].map(([, text = '']) => text);
  expect(messages.length).toBeGreaterThan(30);
  const sources = globSync('packages/*/src/**/*.{ts,sql}', { cwd: ROOT })
    .filter((path) => !path.endsWith('.test.ts'))
    .map((path) => readFileSync(join(ROOT, path), 'utf8'));
  // The runtime's own message.
  expect(() => JSON.stringify(1n)).toThrow('Do not know how to serialize a BigInt');
  sources.push('Do not know how to serialize a BigInt');
  expect(messages.filter((text) => !sources.some((source) => source.includes(text)))).toEqual([]);
});

test('the program of the production page releases its leases at SIGTERM, and ends', async () => {
  await using redis = await startRedis(3);
  const [page = ''] = blocksOf(await pageOf('docs/production.md'), 'ts');
  const urls = Object.fromEntries(redis.nodes.map(({ url }, at) => ['abcde'.charAt(at), url]));
  const program = page.replace(/`redis:.*?`/, `(${JSON.stringify(urls)})[name]!`);
  await using pasted = await paste(`${program}
await redlock.acquire('report', { ttlMs: 60_000 });
console.log('held');
`);
  const holder = spawn(process.execPath, [pasted.file], { stdio: ['ignore', 'pipe', 'inherit'] });
  const exited = once(holder, 'exit');
  await once(holder.stdout, 'data');
  holder.kill('SIGTERM');
  expect(await exited).toEqual([0, null]);
  const nodes = Object.entries(urls).map(([name, url]) => ({ name, client: new Redis(url) }));
  const next = new Redlock({ nodes });
  await next.acquire('report', { ttlMs: 1_000 });
  await next.close();
  for (const { client } of nodes) client.disconnect();
});
