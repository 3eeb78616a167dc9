import { access } from 'node:fs/promises';
import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { makeTemporaryFolder, spawnWithLifeline } from './lifeline.js';

test('the pid, the output and the exit are those of the program itself', async () => {
  const child = await spawnWithLifeline(process.execPath, [
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

test('a stopped program is ended by the signal it is sent, not by the limit', async () => {
  const child = await spawnWithLifeline('sleep', ['1000']);
  child.signal('SIGSTOP');
  const startedMs = performance.now();
  await child.end();
  await child.end();
  expect(await child.exited).toEqual({ code: null, signal: 'SIGTERM' });
  expect(performance.now() - startedMs).toBeLessThan(4_000);
});

test('a program that refuses to end is killed', async () => {
  const child = await spawnWithLifeline('sh', [
    '-c',
    'trap "" TERM; echo deaf; while :; do sleep 1; done',
  ]);
  for await (const _ of child.stdout ?? []) break;
  await child.end();
  expect(await child.exited).toEqual({ code: null, signal: 'SIGKILL' });
});

test('what a program started ends with it', async () => {
  const child = await spawnWithLifeline('sh', ['-c', 'sleep 1000 & echo $!']);
  if (child.stdout === null) throw new Error('stdout is a pipe');
  // The pipe stays open for as long as the orphan lives.
  const orphan = Number(await text(child.stdout));
  await expect(access(`/proc/${orphan}/exe`)).rejects.toMatchObject({ code: 'ENOENT' });
});

test('a program that does not exist ends with 127 and its name', async () => {
  const child = await spawnWithLifeline('no-such-program', []);
  if (child.stderr === null) throw new Error('stderr is a pipe');
  const [said, exit] = await Promise.all([text(child.stderr), child.exited]);
  expect(said).toContain('no-such-program');
  expect(exit.code).toBe(127);
});

test('a folder that does not exist is an error at once', async () => {
  await expect(spawnWithLifeline('true', [], { cwd: '/no/such/folder' })).rejects.toThrow('ENOENT');
});

test('a temporary folder is gone after its block', async () => {
  const path = await (async () => {
    await using folder = await makeTemporaryFolder('with a space');
    await access(folder.path);
    return folder.path;
  })();
  await expect(access(path)).rejects.toMatchObject({ code: 'ENOENT' });
});
