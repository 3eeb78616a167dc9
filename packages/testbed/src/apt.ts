import { existsSync } from 'node:fs';
import { open, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { TestbedError } from './errors.js';
import { makeTemporaryFolder, spawnGuarded } from './guardian.js';
import { findProgram } from './programs.js';

/** Script that Debian's packages run before they start their services. */
const POLICY = '/usr/sbin/policy-rc.d';
const POLICY_BEFORE = `${POLICY}.before-fenced`;

/** Lock file: only one set-up runs at a time. */
const LOCK = '/run/lock/fenced-apt';
const LOCK_POLL_MS = 200;

/**
 * Installs Debian packages without starting the services that come with them.
 *
 * @throws {TestbedError} `unavailable` with the last lines of apt-get if it fails
 */
export async function installPackages(
  packages: readonly string[],
  say: (line: string) => void,
): Promise<void> {
  if (findProgram('apt-get') === undefined) return;
  await using folder = await makeTemporaryFolder('apt');
  const logPath = join(folder.path, 'apt.log');
  await takeLock();
  try {
    await forbidServices();
    say('Fetching the list of Debian packages (apt-get update) ...');
    await aptGet(['update'], logPath);
    say(`Installing ${packages.join(' ')} (apt-get install) ...`);
    await aptGet(['install', '--yes', '--no-install-recommends', ...packages], logPath);
  } finally {
    await allowServices();
    await rm(LOCK, { force: true });
  }
}

/** Creates the lock file with this process's id. Removes the file of a process that has ended. */
async function takeLock(): Promise<void> {
  for (;;) {
    try {
      await writeFile(LOCK, `${process.pid}`, { flag: 'wx' });
      return;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
    const owner = Number(await readFile(LOCK, 'utf8').catch(() => '0'));
    // 0 means that the lock file was just created or removed.
    if (owner > 0 && !existsSync(`/proc/${owner}`)) await rm(LOCK, { force: true });
    else await setTimeout(LOCK_POLL_MS);
  }
}

async function aptGet(args: readonly string[], logPath: string): Promise<void> {
  await using log = await open(logPath, 'a');
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  // Another apt-get may be running.
  const lockTimeout = ['-o', 'DPkg::Lock::Timeout=600'];
  const child = await spawnGuarded('apt-get', ['--quiet', ...lockTimeout, ...args], {
    env,
    stdout: log.fd,
    stderr: log.fd,
  });
  const { code } = await child.exited;
  if (code === 0) return;
  const lines = (await readFile(logPath, 'utf8')).trimEnd().split('\n').slice(-15).join('\n');
  throw new TestbedError('unavailable', `apt-get ${args[0]} failed:\n${lines}`);
}

/** Forbids services while this process lives. So even `kill -9` leaves the machine as it was. */
async function forbidServices(): Promise<void> {
  const script = `#!/bin/sh
kill -0 ${process.pid} 2>/dev/null && exit 101
[ ! -x ${POLICY_BEFORE} ] || exec ${POLICY_BEFORE} "$@"
`;
  // A script that contains the path `POLICY_BEFORE` is ours, left by a set-up that was killed.
  const before = existsSync(POLICY) ? await readFile(POLICY, 'utf8') : POLICY_BEFORE;
  if (!before.includes(POLICY_BEFORE)) await rename(POLICY, POLICY_BEFORE);
  await writeFile(POLICY, script, { mode: 0o755 });
}

async function allowServices(): Promise<void> {
  await rm(POLICY, { force: true });
  if (existsSync(POLICY_BEFORE)) await rename(POLICY_BEFORE, POLICY);
}
