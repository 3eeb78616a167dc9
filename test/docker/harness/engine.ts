import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { installPackages } from '../../../packages/testbed/src/apt.js';
import { makeTemporaryFolder } from '../../../packages/testbed/src/guardian.js';
import { findProgram } from '../../../packages/testbed/src/programs.js';
import { launch, untilItAnswers } from '../../../packages/testbed/src/server.js';

/**
 * Finds a Docker engine that answers. Otherwise starts one in a temporary folder, installs it first
 * if it is missing, and sets `DOCKER_HOST`.
 */
export async function haveDocker(): Promise<AsyncDisposable> {
  await using parts = new AsyncDisposableStack();
  const answers = askDocker().then(
    () => true,
    () => false,
  );
  if (await answers) return parts.move();
  if (findProgram('dockerd') === undefined) {
    await installPackages(['docker.io'], (line) => process.stdout.write(`${line}\n`));
  }
  const folder = parts.use(await makeTemporaryFolder('docker'));
  const socket = `unix://${join(folder.path, 'docker.sock')}`;
  // The engine does not unmount what it has mounted. In a mount namespace of its own, the mounts
  // end with its process, even after a crash, and the folder can be removed.
  const engine = await launch({
    command: 'unshare',
    args: [
      ...['--mount', findProgram('dockerd') ?? 'dockerd'],
      ...['--host', socket, '--pidfile', join(folder.path, 'docker.pid')],
      ...['--data-root', join(folder.path, 'data'), '--exec-root', join(folder.path, 'exec')],
    ],
    logPath: join(folder.path, 'docker.log'),
  });
  parts.use(engine);
  process.env.DOCKER_HOST = socket;
  await untilItAnswers(engine, askDocker);
  return parts.move();
}

/**
 * Runs the `docker` program: testcontainers reads `DOCKER_HOST` only once, which may be too early.
 */
async function askDocker(): Promise<void> {
  await promisify(execFile)('docker', ['info']);
}
