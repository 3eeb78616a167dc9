import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, copyFile, open, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Redlock } from '@fenced/lock';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { childrenOf } from './harness/processes.js';
import {
  beating,
  bin,
  fenced,
  hasEnded,
  next,
  Run,
  startFolder,
  startLock,
  until,
} from './harness/run.js';

// Each run is four processes and a job, and several run at once.
vi.setConfig({ testTimeout: 60_000 });

const dies = fileURLToPath(new URL('harness/guard-dies.mjs', import.meta.url));
const TTL_MS = 2_000;

const parts = new AsyncDisposableStack();
let folder = '';
let lock: Redlock;
let options: string[];
let hasWaiter: Awaited<ReturnType<typeof startLock>>['hasWaiter'];
let endOf: Awaited<ReturnType<typeof startLock>>['endOf'];

beforeAll(async () => {
  folder = await startFolder(parts);
  ({ lock, options, hasWaiter, endOf } = await startLock(parts));
});
afterAll(() => parts.disposeAsync());

/** The options that every run here has. */
const under = (resource: string, ...more: string[]): string[] => [
  ...[...options, '--lock', resource, '--ttl', `${TTL_MS}ms`],
  ...more,
  '--',
];

/** Kills processes of `fenced run` at a point of the guard: see the file. */
const killing = (killed: string, at: string): Record<string, string> => ({
  ...{ KILLED: killed, KILLED_AT: at },
  NODE_OPTIONS: `--import ${dies}`,
});

/** The guard is the only process that `fenced run` starts. */
async function guardOf(run: Run): Promise<number> {
  const [guard = 0] = await childrenOf(run.process.pid);
  return guard;
}

/** Starts a command that ignores SIGTERM, and tells `fenced run` to end it. */
async function startStopping(resource: string) {
  const command = beating(folder);
  const run = await Run.start([...under(resource), ...command.command]);
  await command.hasBegun();
  const guard = await guardOf(run);
  process.kill(run.process.pid, 'SIGTERM');
  await until(command.hadSigterm);
  return { run, command, guard };
}

const THREAD = `
import ctypes, os, signal, sys, threading, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def work():
    while True:
        with open(sys.argv[1], "a") as file: file.write(f"{os.getpid()} {time.time_ns() // 1000000}\\n")
        time.sleep(0.01)
threading.Thread(target=work).start()
ctypes.CDLL(None).pthread_exit(None)`;

/** A job whose processes leave their group, session, environment or main thread. */
function scattered() {
  const job = beating(folder);
  const script = `
    timeout 60 "$@" &
    bash -mc '"$@" & wait' bash "$@" &
    setsid "$@" &
    env -i "$@" &
    python3 -c "$THREAD" "$3" &
    wait`;
  return { ...job, count: 5, command: ['sh', '-c', script, 'sh', ...job.command] };
}

describe('a job whose processes have left the group of the command', () => {
  test.concurrent('fenced run gets SIGTERM: the lock is free when all of them have ended', async () => {
    const job = scattered();
    const run = await Run.start([...under('term'), ...job.command], { THREAD });
    await job.hasBegun(job.count);
    process.kill(run.process.pid, 'SIGTERM');
    const { lease } = await next(lock, 'term');
    expect(await job.running()).toEqual([]);
    expect(job.hadSigterm()).toBe(true);
    expect((await run.ended()).code).toBe(143);
    await lease.release();
  });

  test.concurrent('the lease is not extended: all of them end before another has the lock', async () => {
    const job = scattered();
    const run = await Run.start([...under('stop'), ...job.command], { THREAD });
    await job.hasBegun(job.count);
    await run.process.pause();
    const { lease } = await next(lock, 'stop');
    expect(await job.running()).toEqual([]);
    await run.process.wake();
    expect((await run.ended()).code).toBe(79);
    await lease.release();
  });

  test.concurrent('the guard is killed: fenced run ends all of them before it releases the lock', async () => {
    const job = scattered();
    const run = await Run.start([...under('guardless'), ...job.command], { THREAD });
    await job.hasBegun(job.count);
    process.kill(await guardOf(run), 'SIGKILL');
    const { lease } = await next(lock, 'guardless');
    expect(await job.running()).toEqual([]);
    expect((await run.ended()).code).toBe(79);
    await lease.release();
  });

  test.concurrent('a process without the id of the job goes on, if it has a session of its own', async () => {
    const daemon = beating(folder);
    const script = `env -u FENCED_RUN_ID setsid "$@" >/dev/null 2>&1 & until [ -s "$3" ]; do sleep 0.02; done`;
    const args = ['sh', '-c', script, 'sh', ...daemon.command];
    expect(await fenced([...under('daemon'), ...args])).toMatchObject({ code: 0 });
    const [pid = 0, ...more] = await daemon.running();
    expect(more).toEqual([]);
    process.kill(pid, 'SIGKILL');
  });
});

describe('the guard dies', () => {
  const refused = { code: 71, stdout: '', stderr: expect.stringContaining('nothing was started') };

  test.concurrent('at its start: nothing is locked or started', async () => {
    const args = [...under('guard-start'), 'echo', 'ran'];
    expect(await fenced(args, killing('guard', 'start'))).toMatchObject(refused);
    const { ok } = await lock.tryAcquire('guard-start', { ttlMs: 1_000 });
    expect(ok).toBe(true);
  });

  test.concurrent('during the wait: the wait ends, and nothing is locked or started', async () => {
    const held = await lock.acquire('guard-wait', { ttlMs: 20_000 });
    const run = await Run.start([...under('guard-wait', '--wait', '1m'), 'echo', 'ran']);
    await until(() => hasWaiter('guard-wait'));
    process.kill(await guardOf(run), 'SIGKILL');
    expect(await run.ended()).toMatchObject(refused);
    await held.release();
    await (await lock.acquire('guard-wait', { ttlMs: 1_000 })).release();
  });

  test.concurrent('before or after it has started the command: the command is killed', async () => {
    for (const at of ['before-command', 'after-command']) {
      const command = beating(folder);
      const end = await fenced([...under(at), ...command.command], killing('guard', at));
      expect(await command.running()).toEqual([]);
      expect(end).toMatchObject({ code: 79, stderr: expect.stringContaining('guard') });
      await (await lock.acquire(at, { ttlMs: 1_000 })).release();
    }
  });

  test.concurrent('while it stops the command: the command is killed at once', async () => {
    const { run, command, guard } = await startStopping('guard-stop');
    process.kill(guard, 'SIGKILL');
    const { lease } = await next(lock, 'guard-stop');
    expect(await command.running()).toEqual([]);
    expect((await run.ended()).code).toBe(79);
    await lease.release();
  });
});

describe('fenced run dies', () => {
  test.concurrent('at the start of the guard: the guard ends', async () => {
    const run = await Run.start([...under('run-start'), 'echo', 'ran'], killing('run', 'start'));
    expect(await run.ended()).toMatchObject({ code: null, stdout: '' });
    await (await lock.acquire('run-start', { ttlMs: 1_000 })).release();
  });

  test.concurrent('during the wait: the guard ends, and nothing is started', async () => {
    const held = await lock.acquire('run-wait', { ttlMs: 20_000 });
    const run = await Run.start([...under('run-wait', '--wait', '1m'), 'echo', 'ran']);
    await until(() => hasWaiter('run-wait'));
    const guard = await guardOf(run);
    await run.process.kill();
    await until(() => hasEnded(guard));
    await held.release();
    await (await lock.acquire('run-wait', { ttlMs: 1_000, waitMs: 20_000 })).release();
    expect(run.lines).toEqual([]);
  });

  test.concurrent('before or after the guard has started the command: the command ends', async () => {
    for (const at of ['before-command', 'after-command']) {
      const command = beating(folder);
      const args = [...under(`run-${at}`), ...command.command];
      await (await Run.start(args, killing('run', at))).process.exited;
      const { lease } = await next(lock, `run-${at}`);
      expect(await command.running()).toEqual([]);
      await lease.release();
    }
  });

  test.concurrent('while the guard stops the command: the guard goes on', async () => {
    const { run, command } = await startStopping('run-stop');
    await run.process.kill();
    const { lease } = await next(lock, 'run-stop');
    expect(await command.running()).toEqual([]);
    await lease.release();
  });
});

describe('fenced run and its guard die together', () => {
  test.concurrent('while the command runs or is stopped: the command is killed', async () => {
    const job = scattered();
    const run = await Run.start([...under('both'), ...job.command], { THREAD });
    const stopping = await startStopping('both-stop');
    await job.hasBegun(job.count);
    const guard = await guardOf(run);
    for (const pid of [run.process.pid, guard, stopping.run.process.pid, stopping.guard])
      process.kill(pid, 'SIGKILL');
    // The id of the job is not in the environment of two processes: `env -i`, and the one whose
    // main thread has ended.
    await until(async () => (await job.running()).length === 2);
    await until(async () => (await stopping.command.running()).length === 0);
    for (const pid of await job.running()) process.kill(pid, 'SIGKILL');
  });

  test.concurrent('before or after the guard has started the command: the command is killed', async () => {
    for (const at of ['before-command', 'after-command']) {
      const command = beating(folder);
      const args = [...under(`both-${at}`), ...command.command];
      await (await Run.start(args, killing('run and guard', at))).process.exited;
      const { lease } = await next(lock, `both-${at}`);
      expect(await command.running()).toEqual([]);
      await lease.release();
    }
  });
});

test.concurrent('the command is killed while it is stopped: the lock is free', async () => {
  const { run, command } = await startStopping('command-stop');
  process.kill((await command.running())[0] ?? 0, 'SIGKILL');
  expect((await run.ended()).code).toBe(137);
  await (await lock.acquire('command-stop', { ttlMs: 1_000 })).release();
});

test.concurrent('every command that cannot be executed has an exit code of a shell, and no stack', async () => {
  const at = (name: string): string => join(folder, name);
  await writeFile(at('text'), 'text');
  await symlink(at('loop'), at('loop'));
  await copyFile('/bin/true', at('busy'));
  await chmod(at('busy'), 0o755);
  await using _ = await open(at('busy'), 'r+');
  const names = ['text/x', 'loop', 'x'.repeat(300), 'busy', 'text', 'missing'].map(at);
  const runs = names.map((name, index) => fenced([...under(`exec-${index}`), name]));
  const ends = await Promise.all([...runs, fenced([...under('exec'), ''])]);
  expect(ends.map(({ code }) => code)).toEqual([126, 126, 126, 126, 126, 127, 126]);
  for (const { stderr } of ends)
    expect(stderr).toBe('fenced run: the command cannot be executed\n');
});

test.concurrent('as the first process of a container: orphans leave no zombies', async () => {
  const script = `read -r line
    for at in 1 2 3 4 5 6 7 8 9 10; do (sleep 0.01 &); done
    while grep -q '(sleep) [SRD]' /proc/[0-9]*/stat; do :; done
    until [ "$(cat /proc/[0-9]*/stat | grep -c ') Z ')" = 0 ]; do :; done
    trap 'exit 5' TERM; echo "$line"; while :; do sleep 0.05; done`;
  const user = process.getuid?.() === 0 ? [] : ['--user', '--map-root-user'];
  const args = ['run', ...under('first'), 'sh', '-c', script];
  const container = spawn(
    'unshare',
    [...user, '--pid', '--kill-child', '--mount-proc', process.execPath, bin, ...args],
    { stdio: ['pipe', 'pipe', 'ignore'] },
  );
  parts.defer(() => void container.kill('SIGKILL'));
  container.stdin.end('input\n');
  const [line] = await once(container.stdout, 'data');
  expect(String(line)).toBe('input\n');
  const [first = 0] = await childrenOf(container.pid ?? 0);
  process.kill(first, 'SIGTERM');
  expect(await once(container, 'exit')).toEqual([5, null]);
});

test.concurrent('the guard reads its order after the lease: the command is not started', async () => {
  const held = await lock.acquire('late', { ttlMs: 20_000 });
  const run = await Run.start([...under('late', '--wait', '1m'), 'echo', 'ran']);
  await until(() => hasWaiter('late'));
  const guard = await guardOf(run);
  process.kill(guard, 'SIGSTOP');
  await held.release();
  await until(async () => !(await hasWaiter('late')));
  // The run has the reply, and has sent its order, when it extends the lease.
  const endMs = await endOf('late');
  await until(async () => (await endOf('late')) > endMs);
  await run.process.pause();
  const { lease } = await next(lock, 'late');
  process.kill(guard, 'SIGCONT');
  await run.process.wake();
  expect(await run.ended()).toMatchObject({
    code: 79,
    stdout: '',
    stderr: expect.stringContaining('not started'),
  });
  await lease.release();
});
