import { execFile } from 'node:child_process';
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { parse } from 'yaml';

vi.setConfig({ testTimeout: 180_000 });

const run = promisify(execFile);
const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const PACKAGES = ['lock', 'store', 'client', 'gateway'].map((name) => `@fenced/${name}`);

interface Step {
  readonly uses?: string;
  readonly run?: string;
}

interface Workflow {
  readonly permissions: object;
  readonly jobs: Record<string, { readonly permissions: object; readonly steps: Step[] }>;
}

const text = await readFile(join(ROOT, '.github/workflows/release.yml'), 'utf8');
const workflow: Workflow = parse(text);

test('each action is pinned by its commit, with the version in a comment', () => {
  const uses = text.split('\n').filter((line) => line.includes('uses:'));
  expect(uses.length).toBeGreaterThan(0);
  for (const line of uses)
    expect(line).toMatch(/uses: [\w-]+\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/);
});

test('each job has only the rights that it needs', () => {
  expect(workflow.permissions).toEqual({});
  const rights = Object.entries(workflow.jobs).map(([name, job]) => [name, job.permissions]);
  expect(Object.fromEntries(rights)).toEqual({
    check: { contents: 'read' },
    version: { contents: 'write', 'pull-requests': 'write' },
    publish: { contents: 'read', 'id-token': 'write' },
    image: { contents: 'read', packages: 'write' },
    notes: { contents: 'write' },
  });
});

test('the jobs check, and run the steps of bin/release', () => {
  const commands = Object.values(workflow.jobs).flatMap(({ steps }) =>
    steps.map((step) => step.run),
  );
  expect(commands.filter((command) => /^(sh bin\/release|bash)/.test(command ?? ''))).toEqual([
    'bash .ci/run',
    'sh bin/release version',
    'sh bin/release publish "$RUNNER_TEMP"',
    'sh bin/release image "$IMAGE" --push',
    'sh bin/release notes "$RUNNER_TEMP"',
  ]);
});

/** A clone of this repository. The steps of a release change the clone only. */
let clone = '';
let folder = '';
let env: NodeJS.ProcessEnv = {};

/**
 * Takes the place of programs that would write to other servers. It notes its arguments. It fails
 * for `gh … view`, which means that nothing exists yet.
 */
const STUB = `#!/bin/sh
echo "$(basename "$0") $*" >> "$CALLS"
[ "$2" != view ]
`;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'fenced-release-'));
  clone = join(folder, 'clone');
  await run('git', ['clone', '--quiet', ROOT, clone]);
  await run('git', ['init', '--quiet', '--bare', join(folder, 'origin')]);
  await run('git', ['remote', 'set-url', 'origin', join(folder, 'origin')], { cwd: clone });
  // Copies the scripts of the working tree, which may not be committed yet.
  await run('cp', ['-R', ...['bin', 'package.json'].map((name) => join(ROOT, name)), clone]);
  await symlink(join(ROOT, 'node_modules'), join(clone, 'node_modules'));
  const stubs = join(folder, 'stubs');
  await mkdir(stubs);
  for (const name of ['gh', 'docker']) {
    await writeFile(join(stubs, name), STUB);
    await chmod(join(stubs, name), 0o755);
  }
  const author = ['GIT_AUTHOR', 'GIT_COMMITTER'].flatMap((role) => [
    [`${role}_NAME`, 'test'],
    [`${role}_EMAIL`, 'test@example.org'],
  ]);
  const path = [stubs, join(ROOT, 'node_modules/.bin'), process.env.PATH].join(delimiter);
  env = {
    ...process.env,
    ...Object.fromEntries(author),
    PATH: path,
    CALLS: join(folder, 'calls'),
    // Without this, `npm --silent test` would silence the npm of the release, too.
    npm_config_loglevel: 'notice',
  };
});

afterAll(() => rm(folder, { recursive: true, force: true }));

const release = (cwd: string, ...args: string[]) =>
  run('sh', ['bin/release', ...args], { cwd, env });

async function calls(): Promise<string[]> {
  const lines = (await readFile(join(folder, 'calls'), 'utf8')).trim().split('\n');
  await rm(join(folder, 'calls'));
  return lines;
}

test('publish packs all packages, and npm would take them', async () => {
  const packs = join(folder, 'packs');
  await mkdir(packs);
  const { stdout } = await release(ROOT, 'publish', packs, '--dry-run');
  const published = stdout.match(/^\+ .+@/gm) ?? [];
  expect(published).toEqual(
    ['@fenced/lock', '@fenced/store', ...PACKAGES.slice(2), 'fenced'].map((name) => `+ ${name}@`),
  );
  expect(await readdir(packs)).toHaveLength(5);
});

test('the steps after the pull request do nothing before it is merged', async () => {
  for (const args of [
    ['publish', folder],
    ['image', 'host/fenced'],
    ['notes', folder],
  ]) {
    const { stdout } = await release(clone, ...args);
    expect(stdout).toBe(
      'release: there are changesets; merge the pull request of `version` first\n',
    );
  }
});

test('version pushes the next versions, opens a pull request, and then there is nothing to do', async () => {
  await release(clone, 'version');
  const branch = [
    '--git-dir',
    join(folder, 'origin'),
    'show',
    'release:packages/fenced/package.json',
  ];
  expect(JSON.parse((await run('git', branch)).stdout)).toMatchObject({ version: '0.2.0' });
  expect(await calls()).toEqual([
    'gh pr view release',
    expect.stringContaining('gh pr create --head release'),
  ]);
  expect((await release(clone, 'version')).stdout).toBe('release: there are no changesets\n');

  await release(clone, 'image', 'host/fenced', '--push');
  expect(await calls()).toEqual([
    'docker buildx create --use',
    'docker buildx build --provenance=mode=max --sbom=true --tag host/fenced:0.2.0 --push .',
  ]);

  await release(clone, 'notes', folder);
  const file = join(folder, 'sbom.cdx.json');
  expect(await calls()).toEqual([
    'gh release view v0.2.0',
    `gh release create v0.2.0 --generate-notes ${file}`,
  ]);
  const sbom = JSON.parse(await readFile(file, 'utf8'));
  expect(sbom.bomFormat).toBe('CycloneDX');
  const names = sbom.components.map((component: { name: string }) => component.name);
  expect(names).toEqual(expect.arrayContaining(['express', 'zod']));
});

test('a wrong step is refused with the usage', async () => {
  for (const args of [[], ['ship'], ['publish']]) {
    const failure = await release(ROOT, ...args).catch((error) => error);
    expect(failure).toMatchObject({
      code: 64,
      stderr: expect.stringContaining('sh bin/release STEP'),
    });
  }
});
