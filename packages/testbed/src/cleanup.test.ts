import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, readdir, readFile, readlink, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';

/** The compiled program, because only vitest's own process compiles TypeScript. */
const PROGRAM = fileURLToPath(new URL('../dist/fixtures/services.js', import.meta.url));
const UNTIL_GONE = { timeout: 15_000, interval: 20 };

let temporary: string;

beforeEach(async () => {
  temporary = await mkdtemp(join(tmpdir(), 'cleanup-'));
  // Lets Postgres enter the folder, because Postgres does not run as root.
  await chmod(temporary, 0o711);
});

afterEach(async () => {
  await rm(temporary, { recursive: true, force: true });
});

const endings = [
  { name: 'returns', ending: 'return' },
  { name: 'calls process.exit', ending: 'exit' },
  { name: 'throws an uncaught error', ending: 'throw' },
  { name: 'gets Ctrl-C', ending: 'wait', signal: 'SIGINT' },
  { name: 'gets SIGTERM', ending: 'wait', signal: 'SIGTERM' },
  { name: 'gets kill -9', ending: 'wait', signal: 'SIGKILL' },
] as const;

describe.each(endings)('when the process that started them $name', (how) => {
  test('two Redis nodes, one of them paused, and Postgres leave nothing', async () => {
    await leavesNothing(how, 'redis,postgres');
  });
});

test('a killed process leaves nothing of its S3 server', async () => {
  await leavesNothing({ ending: 'wait', signal: 'SIGKILL' }, 's3');
});

test('a process that is killed while its servers start leaves nothing', async () => {
  const child = start('wait', 'redis,postgres,s3');
  await vi.waitFor(async () => expect((await ours()).length).toBeGreaterThan(1), UNTIL_GONE);
  child.kill('SIGKILL');
  await untilNothingIsLeft();
});

async function leavesNothing(
  { ending, signal }: { readonly ending: string; readonly signal?: NodeJS.Signals },
  services: string,
): Promise<void> {
  const child = start(ending, services);
  const exited = once(child, 'exit');
  if (child.stdout === null) throw new Error('stdout is a pipe');
  const [output] = await once(child.stdout, 'data');
  expect(`${output}`).toBe('up\n');
  const running = await ours();
  if (signal !== undefined) {
    // The program waits for the signal, so its servers still run.
    expect(running.length).toBeGreaterThan(1);
    child.kill(signal);
  }
  await exited;
  await untilNothingIsLeft();
}

function start(ending: string, services: string): ChildProcess {
  return spawn(process.execPath, [PROGRAM, ending, services], {
    // Identifies the processes of this test: all inherit the variable, or work in the folder.
    env: { ...process.env, TMPDIR: temporary },
    stdio: ['ignore', 'pipe', 'ignore'],
  });
}

async function untilNothingIsLeft(): Promise<void> {
  await vi.waitFor(async () => {
    expect(await ours()).toEqual([]);
    expect(await readdir(temporary)).toEqual([]);
  }, UNTIL_GONE);
}

/**
 * The process ids of the program, its servers and its guardian. Each has the temporary folder in
 * its environment, or works in it.
 */
async function ours(): Promise<string[]> {
  const processes = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  const found = await Promise.all(
    processes.map(async (pid) => {
      // Empty if the process has just ended. Postgres overwrites it with its title: see `folder`.
      const environment = await readFile(`/proc/${pid}/environ`, 'utf8').catch(() => '');
      const folder = await readlink(`/proc/${pid}/cwd`).catch(() => '');
      const isOurs = environment.includes(`TMPDIR=${temporary}`) || folder.startsWith(temporary);
      return isOurs ? [pid] : [];
    }),
  );
  return found.flat();
}
