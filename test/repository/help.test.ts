import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import manifest from '../../package.json' with { type: 'json' };

const run = promisify(execFile);
const ROOT = new URL('../..', import.meta.url);

/** Scripts that run a program of the repository: `… exec node bench/main.ts`. */
const programs = Object.entries(manifest.scripts).flatMap(([name, script]) => {
  const [, file] = /exec node (\S+)$/.exec(script) ?? [];
  return file === undefined ? [] : [{ name, command: [process.execPath, file] }];
});

const fenced = ['packages/fenced/bin/fenced.js'];
const commands = [
  ...programs,
  { name: 'setup', command: ['sh', 'bin/setup'] },
  { name: 'release', command: ['sh', 'bin/release'] },
  { name: 'fenced', command: [process.execPath, ...fenced] },
  ...['run', 'status', 'readmit', 'nodes', 'probe', 'gateway'].map((name) => ({
    name: `fenced ${name}`,
    command: [process.execPath, ...fenced, name],
  })),
];

test('every script with a program of the repository is tested', () => {
  expect(programs.map(({ name }) => name)).toEqual([
    'demo',
    'prose',
    'simulate',
    'mutants',
    'torture',
    'soak',
    'sizes',
    'spec',
    'proof',
    'bench',
    'install:minio',
    'page',
    'paper',
    'servers',
    'docs:api',
  ]);
});

test.for(commands)('$name answers --help on standard output', async ({ name, command }) => {
  const [file = '', ...args] = command;
  const { stdout, stderr } = await run(file, [...args, '--help'], { cwd: ROOT });
  expect(stdout.split('\n')[0]).toContain(name);
  expect(stderr).toBe('');
});

const published = commands.filter(({ name }) => name.startsWith('fenced'));
test.for(published)('the help of $name has at most 80 columns', async ({ command }) => {
  const [file = '', ...args] = command;
  const { stdout } = await run(file, [...args, '--help'], { cwd: ROOT });
  expect(stdout.split('\n').filter((line) => line.length > 80)).toEqual([]);
});

test.for(programs)('$name refuses an unknown option with its usage', async ({ command }) => {
  const [file = '', ...args] = command;
  const failure = await run(file, [...args, '--no-such-option'], { cwd: ROOT }).catch((e) => e);
  expect(failure).toMatchObject({ code: 64, stderr: expect.stringContaining('no-such-option') });
});
