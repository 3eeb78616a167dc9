import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { makeTemporaryFolder } from './guardian.js';
import { installed, PGBOUNCER } from './needs.js';
import { giveTo, serviceOwner } from './owner.js';
import { askPostgres } from './postgres-address.js';
import { launch, onFreePort, untilItAnswers } from './server.js';
import { asService, type Service } from './service.js';

export interface PgBouncerService extends Service {
  /** The server's address through PgBouncer. Any database name works. */
  readonly url: string;
}

/**
 * Starts PgBouncer in transaction mode before a server on loopback, with two connections for each
 * database. On Debian as root, installs it first if it is missing.
 *
 * @throws {TestbedError} if it is not available; see its `code`
 */
export async function startPgBouncer(postgresUrl: string): Promise<PgBouncerService> {
  const command = await installed(PGBOUNCER);
  const server = new URL(postgresUrl);
  await using parts = new AsyncDisposableStack();
  const owner = await serviceOwner();
  const folder = parts.use(await makeTemporaryFolder('pgbouncer', '/tmp'));
  const users = join(folder.path, 'users.txt');
  await writeFile(users, `"${server.username}" "${server.password}"\n`);
  return await onFreePort(async (port) => {
    const config = join(folder.path, `pgbouncer-${port}.ini`);
    await writeFile(
      config,
      `[databases]
* = host=${server.hostname} port=${server.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = plain
auth_file = ${users}
pool_mode = transaction
default_pool_size = 2
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
`,
    );
    await giveTo(owner, folder.path);
    const bouncer = parts.use(
      await launch({
        command,
        args: [config],
        // The default, SIGTERM, ends PgBouncer at once. SIGINT would wait for clients.
        options: { ...owner, cwd: folder.path },
        logPath: join(folder.path, `pgbouncer-${port}.log`),
      }),
    );
    const url = new URL(server);
    url.host = `127.0.0.1:${port}`;
    const program = await untilItAnswers(bouncer, () => askPostgres(url.href));
    return asService({ origin: 'program', program }, parts.move(), { url: url.href });
  });
}
