import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { makeTemporaryFolder } from './guardian.js';
import { installed, MARIADB } from './needs.js';
import { giveTo, serviceOwner } from './owner.js';
import { findProgram } from './programs.js';
import { launch, onFreePort, run, untilItAnswers } from './server.js';
import { asService, type Service } from './service.js';

export interface MariadbService extends Service {
  /** The address of an empty database. */
  readonly url: string;
}

/**
 * Starts a new MariaDB. On Debian as root, installs it first if it is missing.
 *
 * @throws {TestbedError} if it is not available; see its `code`
 */
export async function startMariadb(): Promise<MariadbService> {
  const command = await installed(MARIADB);
  await using parts = new AsyncDisposableStack();
  const owner = await serviceOwner();
  const folder = parts.use(await makeTemporaryFolder('mariadb', '/tmp'));
  await giveTo(owner, folder.path);
  const data = `--datadir=${join(folder.path, 'data')}`;
  const options = { ...owner, cwd: folder.path };
  await run({
    command: program('mariadb-install-db'),
    args: ['--no-defaults', data, '--auth-root-authentication-method=normal'],
    options,
    logPath: join(folder.path, 'install.log'),
  });
  return await onFreePort(async (port) => {
    const address = ['--bind-address=127.0.0.1', `--port=${port}`];
    const server = parts.use(
      await launch({
        command,
        args: ['--no-defaults', data, ...address, `--socket=${join(folder.path, 'socket')}`],
        options,
        logPath: join(folder.path, `mariadb-${port}.log`),
      }),
    );
    const ping = ['--no-defaults', '--protocol=tcp', '--host=127.0.0.1', '--user=root'];
    const ask = promisify(execFile);
    await untilItAnswers(server, () =>
      ask(program('mariadb-admin'), [...ping, `--port=${port}`, 'ping']),
    );
    const { stdout } = await ask(command, ['--version']);
    const version = /Ver (\S+)/.exec(stdout)?.[1] ?? 'of unknown version';
    const how = { origin: 'program', program: `mariadb ${version}` } as const;
    return asService(how, parts.move(), { url: `mysql://root@127.0.0.1:${port}/test` });
  });
}

const program = (name: string): string => findProgram(name) ?? name;
