import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startLocalRedis } from '@fenced/testbed';
import { expect, test } from 'vitest';
import { parse } from 'yaml';
import { startGateway } from '../gateway/harness/process.js';

async function text(path: string): Promise<string> {
  return readFile(new URL(`../../${path}`, import.meta.url), 'utf8');
}

test('the gateway of the page starts in the image with the secrets that the page creates', async () => {
  await using own = new AsyncDisposableStack();
  const { nodes } = own.use(await startLocalRedis(3));
  const folder = await mkdtemp(join(tmpdir(), 'fenced-deploying-'));
  own.defer(() => rm(folder, { recursive: true }));

  const page = await text('docs/deploying.md');
  const [, commands = ''] = /```sh\n([\s\S]*?)```/.exec(page) ?? [];
  const [, values = ''] = /```yaml\n([\s\S]*?)```/.exec(page) ?? [];
  const files = [...commands.matchAll(/--from-file=(\S+)/g)].map(([, name = '']) => name);
  expect(files).toEqual(['redis-a', 'redis-b', 'redis-c', 'signing']);
  for (const [at, { host, port }] of nodes.entries())
    await writeFile(join(folder, files[at] ?? ''), `redis://${host}:${port}\n`);
  await writeFile(join(folder, 'signing'), `${randomBytes(32).toString('base64')}\n`);

  const key = randomBytes(32).toString('hex');
  const sha256 = createHash('sha256').update(key).digest('hex');
  const filled = values.replaceAll('/run/secrets/fenced', folder).replaceAll('"…"', `"${sha256}"`);
  const { config } = parse(filled) as { readonly config: object };
  const file = join(folder, 'gateway.yaml');
  await writeFile(file, JSON.stringify(config));
  const [, image = ''] = /^ENV (.*FENCED_GATEWAY.*)$/m.exec(await text('Dockerfile')) ?? [];
  const env = Object.fromEntries(image.split(' ').map((pair) => pair.split('=')));
  const ports = { FENCED_GATEWAY_LISTEN_PORT: '0', FENCED_GATEWAY_OPERATIONS_PORT: '0' };
  const gateway = await startGateway(file, { env: { ...env, ...ports } });
  own.use(gateway.process);

  const { port } = new URL(gateway.url);
  const answer = await fetch(`http://127.0.0.1:${port}/v1/leases/reports/a`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' },
    body: '{"ttlMs":1000}',
  });
  expect(answer.status).toBe(201);
});
