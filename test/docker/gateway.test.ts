import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { haveDocker } from './engine.js';
import { importNode } from './images.js';

const run = promisify(execFile);
const IMAGE = 'fenced/gateway:local';
const repository = new URL('../..', import.meta.url).pathname;

let docker: AsyncDisposable | undefined;

beforeAll(async () => {
  docker = await haveDocker();
  const base = `NODE_IMAGE=${await importNode()}`;
  await run('docker', [
    'build',
    '--network',
    'host',
    '--build-arg',
    base,
    '--tag',
    IMAGE,
    repository,
  ]);
});

afterAll(() => docker?.[Symbol.asyncDispose]());

test('the image has a user of its own, a health check, and nothing that was only needed to build it', async () => {
  const { stdout } = await run('docker', ['image', 'inspect', IMAGE]);
  const [{ Config }] = JSON.parse(stdout);
  expect(Config).toMatchObject({
    User: '1000:1000',
    Healthcheck: { Test: expect.arrayContaining(['node']) },
  });
  const listing = [
    'run',
    '--rm',
    '--entrypoint',
    'node',
    IMAGE,
    '-p',
    'fs.readdirSync("node_modules")+fs.existsSync("/src")',
  ];
  const files = await run('docker', listing);
  expect(files.stdout).not.toMatch(/vitest|typescript|true/);
});
