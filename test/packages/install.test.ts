import { execFile } from 'node:child_process';
import { copyFile, mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { type RedisService, startRedis } from '@fenced/testbed';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';

// Each test installs about 200 packages.
vi.setConfig({ testTimeout: 300_000, hookTimeout: 120_000 });

const FOLDERS = ['lock', 'fenced-store', 'client', 'gateway', 'fenced'];
/** Libraries of a user's project, in other versions than our packages depend on. */
const BESIDE = {
  zod: '3',
  express: '4',
  pino: '9',
  pg: '8',
  '@aws-sdk/client-s3': '3',
};
const PNPM = ['--yes', 'pnpm@12.21.0'];

const run = promisify(execFile);
const bin = (path: string): string => fileURLToPath(new URL(`../../${path}`, import.meta.url));
const harness = (name: string): string =>
  fileURLToPath(new URL(`harness/${name}`, import.meta.url));

let folder = '';
let redis: RedisService;
/** The tarball of each package, by its name. */
let tarballs: Record<string, string> = {};

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'fenced-install-'));
  redis = await startRedis(1);
  const packs = join(folder, 'packs');
  await Promise.all(
    FOLDERS.map((name) =>
      run('npx', [...PNPM, 'pack', '--pack-destination', packs], {
        cwd: bin(`packages/${name}`),
      }),
    ),
  );
  const files = await readdir(packs);
  tarballs = Object.fromEntries(
    files.map((file) => {
      const [, name = ''] = /^(.+)-\d+\.\d+\.\d+.*\.tgz$/.exec(file) ?? [];
      return [name.replace('fenced-', '@fenced/'), `file:${join(packs, file)}`];
    }),
  );
});

afterAll(async () => {
  await redis?.stop();
  await rm(folder, { recursive: true, force: true });
});

/** Makes a project that depends on our tarballs and on the libraries of a user. */
async function project(
  name: string,
  ioredis: '5' | '6',
  more: Readonly<Record<string, string>> = {},
  fields: object = {},
): Promise<string> {
  const path = join(folder, name);
  await mkdir(path);
  const dependencies = { ...tarballs, ...BESIDE, ioredis, ...more };
  await writeFile(
    join(path, 'package.json'),
    JSON.stringify({ name, private: true, dependencies, ...fields }),
  );
  await copyFile(harness('required.cjs'), join(path, 'required.cjs'));
  return path;
}

/**
 * Overrides that take our packages from their tarballs, even as dependencies of each other, because
 * the registry does not have them yet.
 */
function inner(): Record<string, string> {
  return Object.fromEntries(Object.entries(tarballs).filter(([name]) => name.startsWith('@')));
}

/**
 * Installs, requires everything, takes a lease, and asks the command for help. @returns the
 * installer's output
 */
async function expectInstalled(
  cwd: string,
  command: string,
  args: readonly string[],
  runtimes: readonly (readonly string[])[] = [[process.execPath]],
): Promise<void> {
  const env = { ...process.env, CI: 'true' };
  const { stdout, stderr } = await run(command, [...args], { cwd, env });
  expect(`${stdout}${stderr}`).not.toMatch(/peer/i);
  const url = redis.nodes[0]?.url ?? '';
  for (const [file = '', ...flags] of runtimes) {
    const required = await run(file, [...flags, 'required.cjs', url], { cwd });
    expect(required.stdout).toBe('released\n');
    expect(required.stderr).not.toMatch(/warn/i);
    const own = ['node_modules/fenced/bin/fenced.js', 'run', '--help'];
    const help = await run(file, [...flags, ...own], { cwd });
    expect(help.stdout).toContain('fenced run --lock NAME');
  }
}

describe('installed by npm', () => {
  const node22 = `node-${process.platform}-${process.arch}`;
  let cwd = '';

  test('on Node 22 and 24, and on Deno, beside zod 3, express 4, pino 9 and ioredis 5', async () => {
    const types = { typescript: '5', '@types/node': '22', '@types/pg': '8' };
    cwd = await project('npm', '5', { ...types, [node22]: '22' });
    const args = ['install', '--no-audit', '--no-fund'];
    const deno = [bin('test/node_modules/.bin/deno'), 'run', '--allow-all'];
    const nodes = [[process.execPath], [`node_modules/${node22}/bin/node`]];
    await expectInstalled(cwd, 'npm', args, [...nodes, deno]);
    const help = await run('npx', ['--no-install', 'fenced', '--help'], { cwd });
    expect(help.stdout).toContain('fenced COMMAND --help');
  });

  test('types hold under TypeScript 5 and 7, all module settings, without skipLibCheck', async () => {
    for (const name of ['typed.ts', 'typed.mts'])
      await copyFile(harness('typed.ts'), join(cwd, name));
    await copyFile(harness('commonjs.cts'), join(cwd, 'commonjs.cts'));
    const strict = ['--noEmit', '--strict', '--exactOptionalPropertyTypes', '--types', 'node'];
    const check = (tsc: string, ...args: string[]): Promise<unknown> =>
      run(tsc, [...strict, '--target', 'es2022', '--skipLibCheck', 'false', ...args], { cwd });
    const old = join(cwd, 'node_modules/.bin/tsc');
    const present = bin('node_modules/.bin/tsc');
    await check(old, '--module', 'nodenext', 'typed.mts', 'commonjs.cts');
    await check(present, '--module', 'nodenext', 'commonjs.cts');
    await check(present, '--module', 'node16', 'typed.mts');
    await check(present, '--module', 'preserve', '--moduleResolution', 'bundler', 'typed.ts');
  });
});

test('installed by pnpm, with strict peers, beside ioredis 6', async () => {
  const cwd = await project('pnpm', '6');
  const settings = { overrides: inner(), strictPeerDependencies: true, strictDepBuilds: false };
  await writeFile(join(cwd, 'pnpm-workspace.yaml'), JSON.stringify(settings));
  await expectInstalled(cwd, 'npx', [...PNPM, 'install', '--prefer-offline']);
});

test('installed by yarn', async () => {
  const cwd = await project('yarn', '5', {}, { resolutions: inner() });
  // Uses a new cache. Yarn's shared cache knows tarballs by name and version only, so it may hold
  // old ones of ours.
  const cache = ['--cache-folder', join(folder, 'yarn-cache')];
  await expectInstalled(cwd, 'npx', ['--yes', 'yarn@1.22.22', 'install', ...cache]);
});

test('installed by bun, and run by it', async () => {
  const cwd = await project('bun', '6', {}, { overrides: inner() });
  const bun = bin('test/node_modules/.bin/bun');
  await expectInstalled(cwd, bun, ['install'], [[process.execPath], [bun]]);
});
