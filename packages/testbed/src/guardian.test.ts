import { access } from 'node:fs/promises';
import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { makeTemporaryFolder, spawnGuarded } from './guardian.js';

test("pid, output and exit are the program's own", async () => {
  const child = await spawnGuarded(process.execPath, [
    '-e',
    'console.log(process.pid); console.error("to stderr"); process.exit(3)',
  ]);
  const { stdout, stderr } = child;
  if (stdout === null || stderr === null) throw new Error('both are pipes');
  const [out, err, exit] = await Promise.all([text(stdout), text(stderr), child.exited]);
  expect({ out, err, exit }).toEqual({
    out: `${child.pid}\n`,
    err: 'to stderr\n',
    exit: { code: 3, signal: null },
  });
});

test('a stopped program ends by the signal, not by the time limit', async () => {
  const child = await spawnGuarded('sleep', ['1000']);
  child.signal('SIGSTOP');
  const startedMs = performance.now();
  await child.end();
  await child.end();
  expect(await child.exited).toEqual({ code: null, signal: 'SIGTERM' });
  expect(performance.now() - startedMs).toBeLessThan(4_000);
});

test('a program that refuses to end is killed', async () => {
  const child = await spawnGuarded('sh', [
    '-c',
    'trap "" TERM; echo deaf; while :; do sleep 1; done',
  ]);
  for await (const _ of child.stdout ?? []) break;
  await child.end();
  expect(await child.exited).toEqual({ code: null, signal: 'SIGKILL' });
});

test('the children of a program end with it', async () => {
  const child = await spawnGuarded('sh', ['-c', 'sleep 1000 & echo $!']);
  if (child.stdout === null) throw new Error('stdout is a pipe');
  // Resolves only when the orphan has ended, because it holds the pipe open.
  const orphan = Number(await text(child.stdout));
  await expect(access(`/proc/${orphan}/exe`)).rejects.toMatchObject({ code: 'ENOENT' });
});

test('a program that does not exist ends with 127 and its name', async () => {
  const child = await spawnGuarded('no-such-program', []);
  if (child.stderr === null) throw new Error('stderr is a pipe');
  const [said, exit] = await Promise.all([text(child.stderr), child.exited]);
  expect(said).toContain('no-such-program');
  expect(exit.code).toBe(127);
});

test('a missing folder is an error at once', async () => {
  await expect(spawnGuarded('true', [], { cwd: '/no/such/folder' })).rejects.toThrow('ENOENT');
});

test('a temporary folder is removed after its block', async () => {
  const path = await (async () => {
    await using folder = await makeTemporaryFolder('with a space');
    await access(folder.path);
    return folder.path;
  })();
  await expect(access(path)).rejects.toMatchObject({ code: 'ENOENT' });
});
