import { execFile, spawn } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { readConfig } from '@fenced/gateway/config';
import { afterEach, expect, test } from 'vitest';

const run = promisify(execFile);
const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const page = await readFile(join(ROOT, 'docs', 'gateway-first-steps.md'), 'utf8');
const blocks = (language: string): string[] =>
  [...page.matchAll(/```(\w*)\n(.*?)```/gs)].flatMap(([, one, text = '']) =>
    one === language ? [text] : [],
  );
const [leastConfig = ''] = blocks('yaml');
const [servers = '', gateway = '', writes = '', guard = ''] = blocks('sh');

let parts = new AsyncDisposableStack();
afterEach(async () => {
  await parts.disposeAsync();
  parts = new AsyncDisposableStack();
});

/** Starts a command of the page in the clone, and waits for a line that it prints. */
async function start(
  command: string,
  line: RegExp,
  env: Record<string, string> = {},
): Promise<{ readonly line: string; readonly lines: readonly string[] }> {
  const child = spawn('sh', ['-c', command], {
    cwd: ROOT,
    env: { ...process.env, ...env },
    // In a group of its own: npm and npx have children.
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  parts.defer(async () => {
    if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, 'SIGINT');
    await exited;
  });
  const lines: string[] = [];
  const errors: string[] = [];
  child.stderr.on('data', (piece) => errors.push(String(piece)));
  const found = new Promise<string>((resolve) => {
    createInterface(child.stdout).on('line', (text) => {
      lines.push(text);
      if (line.test(text)) resolve(text);
    });
  });
  const ended = exited.then(() => {
    throw new Error(`it ended: ${command}\n${lines.join('\n')}\n${errors.join('')}`);
  });
  return { line: await Promise.race([found, ended]), lines };
}

/** Returns the command of the page, with another configuration file and port. */
function here(command: string, file: string, port = ''): string {
  return command.replaceAll('gateway.yaml', file).replaceAll('127.0.0.1:8080', `127.0.0.1:${port}`);
}

async function newFile(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'fenced-first-'));
  parts.defer(() => rm(folder, { recursive: true }));
  return join(folder, 'gateway.yaml');
}

test('the commands of the page lead to a first fenced write', async () => {
  const file = await newFile();
  await start(here(servers, file), /Ctrl-C ends them/);
  const env = { FENCED_GATEWAY_LISTEN_PORT: '0' };
  const { line, lines } = await start(here(gateway, file), /"msg":"listening"/, env);
  const { url } = JSON.parse(line) as { url: string };
  const { stdout } = await run('sh', ['-euc', here(writes, file, new URL(url).port)]);
  const [one, two, late, read] = stdout.split('\n');
  const [first, second, refused] = [one, two, late].map((text) => JSON.parse(text ?? ''));
  expect(BigInt(first.token)).toBeLessThan(BigInt(second.token));
  expect(refused).toMatchObject({
    type: 'urn:fenced:problem:stale-token',
    presented: first.token,
    highest: second.token,
  });
  expect(read).toBe('from client 2');
  // The printed lines have the form of those that the page shows.
  const shape = (text: string): string =>
    text.replace(/"\d{16}"/g, '"N"').replace(/("(?:version|writeId)":")[^"]*/g, '$1');
  const printed = blocks('')[0]?.replaceAll('objects.…', '…').split('\n') ?? [];
  for (const [at, text] of [one, two, late, read].entries())
    expect(shape(text ?? '').startsWith(shape(printed[at] ?? '').replace(/[…}].*$/, ''))).toBe(
      true,
    );
  const least = await newFile();
  await writeFile(least, leastConfig);
  const [mine, written] = [least, file].map((path) => readConfig({ file: path, env: {} }));
  expect(Object.keys(written?.objects ?? {})).toEqual(Object.keys(mine?.objects ?? {}));
  expect(written?.redis.nodes.map((node) => Object.keys(node))).toEqual(
    mine?.redis.nodes.map((node) => Object.keys(node)),
  );

  // Without the bucket, the gateway starts all the same, and its log says what is missing.
  const absent = { ...env, FENCED_GATEWAY_OBJECTS_BUCKET: 'absent' };
  const lost = await start(here(gateway, file), /"msg":"listening"/, absent);
  const address = (JSON.parse(lost.line) as { url: string }).url;
  const ready = await fetch(`${address}/readyz`);
  expect([ready.status, await ready.text()]).toEqual([
    503,
    expect.stringContaining('[-]s3 store-setup'),
  ]);
  const readyz = () =>
    lost.lines.map((text) => JSON.parse(text)).find(({ path }) => path === '/readyz');
  await expect.poll(readyz).toMatchObject({
    level: 'warn',
    outcome: 'not-ready',
    status: 503,
    error: { message: expect.stringContaining('s3: the bucket does not exist') },
  });
  expect(lines.join('\n')).not.toContain('"level":"error"');
}, 300_000);

test('the credentials and signing keys of the page are a valid configuration', async () => {
  const file = await newFile();
  await writeFile(file, leastConfig);
  const { stdout } = await run('sh', ['-euc', here(guard, file)], { cwd: ROOT });
  expect(stdout).toBe('the configuration can be used\n');
}, 120_000);
