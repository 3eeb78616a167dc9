import { execFile } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { promisify } from 'node:util';
import { FencedGateway } from '@fenced/client';
import { startRedis } from '@fenced/testbed';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { haveDocker } from './harness/engine.js';
import { importNode } from './harness/images.js';

const IMAGE = 'fenced/gateway:local';
const repository = new URL('../..', import.meta.url).pathname;
/** The settings of compose.yaml. */
const HARDENED = ['--read-only', '--tmpfs', '/tmp', '--cap-drop', 'ALL'];

let engine: AsyncDisposable | undefined;

async function docker(...args: readonly string[]): Promise<string> {
  const { stdout } = await promisify(execFile)('docker', args);
  return stdout.trim();
}

beforeAll(async () => {
  engine = await haveDocker();
  const base = `NODE_IMAGE=${await importNode()}`;
  await docker('build', '--network', 'host', '--build-arg', base, '--tag', IMAGE, repository);
});

afterAll(() => engine?.[Symbol.asyncDispose]());

test('the image has a user of its own, and no build tools', async () => {
  const [{ Config }] = JSON.parse(await docker('image', 'inspect', IMAGE));
  expect(Config).toMatchObject({ User: '1000:1000' });
  const look = 'fs.readdirSync("node_modules") + String(fs.existsSync("/src"))';
  const files = await docker('run', '--rm', '--entrypoint', 'node', IMAGE, '-p', look);
  expect(files).toContain('express');
  expect(files).not.toMatch(/vitest|typescript|true/);
});

test('without credentials, the gateway does not listen to other machines', async () => {
  const run = promisify(execFile)('docker', ['run', '--rm', ...HARDENED, IMAGE, 'gateway']);
  await expect(run).rejects.toMatchObject({
    code: 78,
    stderr: expect.stringMatching(/redis: .*\n.*listen\.host: must be an address of this machine/s),
  });
});

test('the gateway runs without rights on a read-only disk, is healthy, and ends with code 0', async () => {
  await using redis = await startRedis(3);
  const key = randomBytes(32).toString('hex');
  const sha256 = createHash('sha256').update(key).digest('hex');
  const port = await freePort();
  const settings = {
    LISTEN_PORT: String(port),
    REDIS_NODES: JSON.stringify(redis.nodes.map(({ name, url }) => ({ name, url }))),
    CREDENTIALS_KEYS: JSON.stringify([
      { name: 'test', sha256, verbs: ['lease'], prefixes: ['leases'] },
    ]),
  };
  const variables = Object.entries(settings).flatMap(([name, value]) => [
    '--env',
    `FENCED_GATEWAY_${name}=${value}`,
  ]);
  const start = [
    'run',
    '--detach',
    '--network',
    'host',
    ...HARDENED,
    ...variables,
    IMAGE,
    'gateway',
  ];
  const container = await docker(...start);
  const health = () => docker('inspect', '--format', '{{.State.Health.Status}}', container);
  await vi.waitUntil(async () => (await health()) === 'healthy', { timeout: 60_000 });
  const inside = await docker(
    ...['exec', container, 'node', '-p'],
    'let end; try { fs.writeFileSync("/app/x", "") } catch (error) { end = error.code } process.getuid() + end',
  );
  expect(inside).toBe('1000EROFS');
  const gateway = new FencedGateway({ url: `http://127.0.0.1:${port}`, key });
  const lease = await gateway.acquire('nightly', { ttlMs: 10_000 });
  expect(await lease.release()).toBe('released');
  await docker('stop', '--time', '15', container);
  expect(await docker('inspect', '--format', '{{.State.ExitCode}}', container)).toBe('0');
  await docker('rm', container);
});

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  return typeof address === 'object' && address !== null ? address.port : 0;
}
