import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';
import { startPostgres, startRedis, startS3 } from '@fenced/testbed';
import { build } from 'esbuild';
import { rolldown } from 'rolldown';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import webpack from 'webpack';

// Bundlers take seconds, and longer on a busy machine.
vi.setConfig({ testTimeout: 120_000 });

const run = promisify(execFile);
const bin = (name: string): string =>
  fileURLToPath(new URL(`../node_modules/.bin/${name}`, import.meta.url));
const read = (path: string): Promise<string> =>
  readFile(new URL(`../../${path}`, import.meta.url), 'utf8');

/** Folder beside this file, so that bundlers find the packages. */
const sources = fileURLToPath(new URL(`./bundled-${randomUUID()}`, import.meta.url));
const entry = join(sources, 'program.mjs');
const services = new AsyncDisposableStack();
/** Folder outside the repository. There, a package that is not in the bundle is not found. */
let folder = '';
let env: NodeJS.ProcessEnv = {};

beforeAll(async () => {
  const [redis, s3, postgres] = await Promise.all([startRedis(5), startS3(), startPostgres()]);
  for (const service of [redis, s3, postgres]) services.use(service);
  const bucket = `bundles-${randomUUID()}`;
  env = {
    ...process.env,
    AWS_ENDPOINT_URL_S3: s3.endpoint,
    AWS_REGION: s3.region,
    AWS_ACCESS_KEY_ID: s3.accessKeyId,
    AWS_SECRET_ACCESS_KEY: s3.secretAccessKey,
  };
  const { endpoint, region, ...credentials } = s3;
  const client = new S3Client({ endpoint, region, credentials, forcePathStyle: true });
  await client.send(new CreateBucketCommand({ Bucket: bucket }));
  client.destroy();

  folder = await mkdtemp(join(tmpdir(), 'fenced-bundles-'));
  await mkdir(sources);
  const [locked = ''] = programsOf(await read('README.md'));
  const [, fenced = ''] = programsOf(await read('packages/fenced-store/README.md'));
  const clients = redis.nodes.map(({ url }) => `new Redis('${url}')`).join(', ');
  await writeFile(
    join(sources, 'locked.mjs'),
    locked
      .replace(/(?<=const clients = \[).*(?=\];)/, clients)
      .replace("bucket: 'documents'", `bucket: '${bucket}'`),
  );
  await writeFile(
    join(sources, 'fenced.mjs'),
    fenced.replace('new pg.Pool()', `new pg.Pool({ connectionString: '${postgres.url}' })`),
  );
  await writeFile(entry, "import './locked.mjs';\nimport './fenced.mjs';\n");
});

afterAll(async () => {
  await services.disposeAsync();
  for (const path of [sources, folder]) await rm(path, { recursive: true, force: true });
});

const programsOf = (page: string): string[] =>
  [...page.matchAll(/```ts\n(.*?)```/gs)].map(([, code = '']) => code);

/** Runs the bundle of both programs. Each run adds 10 to the total that the run before has left. */
async function expectOutput(file: string, ...args: string[]): Promise<void> {
  const { stdout } = await run(file, args, { cwd: folder, env });
  const [fenced, locked, ...more] = stdout.trim().split('\n').toSorted();
  expect([fenced, ...more]).toEqual(['34n']);
  expect(locked).toMatch(/^the invoice's total is \d+0$/);
}

test('a bundle by esbuild', async () => {
  const outfile = join(folder, 'esbuild.mjs');
  // CommonJS packages, such as ioredis, call `require`, which a bundle of ES modules does not have.
  const js = "import { createRequire } from 'node:module'; const require = createRequire('/');";
  await build({
    entryPoints: [entry],
    outfile,
    banner: { js },
    bundle: true,
    platform: 'node',
    format: 'esm',
    external: ['pg-native'],
  });
  await expectOutput(process.execPath, outfile);
});

test('a bundle by rolldown', async () => {
  const bundle = await rolldown({ input: entry, platform: 'node', external: ['pg-native'] });
  await bundle.write({ file: join(folder, 'rolldown.mjs'), codeSplitting: false });
  await bundle.close();
  await expectOutput(process.execPath, join(folder, 'rolldown.mjs'));
});

test('a bundle by webpack', async () => {
  const config: webpack.Configuration = {
    entry,
    target: 'node22',
    mode: 'development',
    devtool: false,
    output: { path: folder, filename: 'webpack.mjs', module: true },
    resolve: { alias: { 'pg-native': false } },
    experiments: { outputModule: true },
  };
  const errors = await new Promise((resolve, reject) => {
    webpack(config, (error, stats) =>
      error ? reject(error) : resolve(stats?.toJson({ all: false, errors: true }).errors),
    );
  });
  expect(errors).toEqual([]);
  await expectOutput(process.execPath, join(folder, 'webpack.mjs'));
});

test('an executable by bun build --compile', async () => {
  const outfile = join(folder, 'bun');
  await run(bin('bun'), [
    'build',
    '--compile',
    entry,
    '--external',
    'pg-native',
    '--outfile',
    outfile,
  ]);
  await expectOutput(outfile);
});

test("a test of Jest, by Jest's own transform", async () => {
  await writeFile(
    join(sources, 'program.test.mjs'),
    "import './program.mjs';\ntest('ran', () => {});\n",
  );
  await writeFile(join(sources, 'package.json'), '{ "jest": { "testMatch": ["**/*.test.mjs"] } }');
  const jest = createRequire(import.meta.url).resolve('jest/bin/jest');
  const { stdout, stderr } = await run(
    process.execPath,
    ['--experimental-vm-modules', jest, '--rootDir', sources],
    { cwd: sources, env },
  );
  expect(stderr).toContain('1 passed');
  expect(stdout).toMatch(/the invoice's total is \d+0/);
});
