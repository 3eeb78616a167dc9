import { execFile } from 'node:child_process';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { createConnection } from 'node:net';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { makeTemporaryFolder } from './guardian.js';
import { installed, ZOOKEEPER } from './needs.js';
import type { ZooKeeperPrograms } from './programs.js';
import { type Launch, onFreePorts } from './server.js';
import { asService, type Service } from './service.js';
import { StoppableServer } from './stoppable-server.js';

const MAIN = 'org.apache.zookeeper.server.quorum.QuorumPeerMain';
const ASK_LIMIT_MS = 1_000;
const POLL_MS = 10;

/** Small and quick to start: each server has little to do, and the tests start many servers. */
const JVM = ['-Xmx128m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-Xshare:auto'];

export interface ZooKeeperOptions {
  /** Milliseconds of one tick; a session lasts 2 to 20 of them. @default 200 */
  readonly tickMs?: number;
  /** Epoch of the last leader, as if that many leaders had been elected before. @default 0 */
  readonly epoch?: number;
  /** Makes the servers wait for their disk before they answer. @default false */
  readonly isDurable?: boolean;
  /** Makes the servers listen for TLS, too. @default false */
  readonly isSecure?: boolean;
}

export interface ZooKeeperService extends Service {
  readonly servers: readonly ZooKeeperServer[];
  /** The addresses of all servers: `127.0.0.1:2181,127.0.0.1:2182`. */
  readonly addresses: string;
  /**
   * If `isSecure`: the addresses with the ports for TLS, and the certificate that the servers
   * present.
   */
  readonly secureAddresses: string;
  readonly certificate: string;
  /** Resolves with the server that leads the others now. */
  leader(): Promise<ZooKeeperServer>;
}

/** A server of the ensemble. */
export interface ZooKeeperServer extends Omit<StoppableServer, typeof Symbol.asyncDispose> {
  readonly host: string;
  readonly port: number;
}

class Member extends StoppableServer implements ZooKeeperServer {
  readonly host = '127.0.0.1';
  readonly port: number;

  constructor(port: number, launch: Launch) {
    super(`ZooKeeper on port ${port}`, launch, async () => {
      const { mode, version } = await serverState(port);
      if (mode === undefined) throw new Error('not serving requests');
      return `zookeeper ${version}`;
    });
    this.port = port;
  }
}

/**
 * Starts an ensemble of `n` ZooKeeper servers. On Debian as root, installs ZooKeeper and Java first
 * if they are missing.
 *
 * @throws {TestbedError} if they are not available; see its `code`
 */
export async function startZooKeeper(
  n: number,
  options: ZooKeeperOptions = {},
): Promise<ZooKeeperService> {
  const programs = await installed(ZOOKEEPER);
  // Each server has three ports: for clients, for followers and for elections. The last n ports are
  // for TLS.
  return await onFreePorts(4 * n, async (all) => {
    const [ports, securePorts] = [all.slice(0, 3 * n), all.slice(3 * n)];
    await using parts = new AsyncDisposableStack();
    const folder = parts.use(await makeTemporaryFolder('zookeeper'));
    const keyStore = join(folder.path, 'keys.p12');
    const certificate = options.isSecure ? await makeCertificate(programs, keyStore) : '';
    const servers = await Promise.all(
      Array.from({ length: n }, async (_, at) => {
        const dir = join(folder.path, `${at + 1}`);
        const secure = options.isSecure ? secureLines(securePorts[at] ?? 0, keyStore) : [];
        await writeFiles(dir, ports, at, options, secure);
        return parts.use(new Member(ports[3 * at] ?? 0, launchOf(programs, dir, options)));
      }),
    );
    // If one fails, the others must have started before they can be ended.
    const starting = servers.map((server) => server.start());
    await Promise.allSettled(starting);
    await Promise.all(starting);
    const program = servers[0]?.program ?? 'zookeeper';
    return asService({ origin: 'program', program }, parts.move(), {
      servers,
      addresses: servers.map(({ host, port }) => `${host}:${port}`).join(','),
      secureAddresses: securePorts.map((port) => `127.0.0.1:${port}`).join(','),
      certificate,
      leader: () => leaderOf(servers),
    });
  });
}

const KEY_PASSWORD = 'password';

/** Makes a key for 127.0.0.1. Returns its certificate. */
async function makeCertificate({ java }: ZooKeeperPrograms, keyStore: string): Promise<string> {
  const keytool = (...args: string[]) =>
    promisify(execFile)(join(dirname(java), 'keytool'), [
      ...args,
      ...['-alias', 'server', '-keystore', keyStore, '-storepass', KEY_PASSWORD],
    ]);
  const key = ['-keyalg', 'EC', '-dname', 'CN=localhost', '-ext', 'san=ip:127.0.0.1'];
  await keytool('-genkeypair', '-storetype', 'PKCS12', ...key);
  await keytool('-exportcert', '-rfc', '-file', `${keyStore}.pem`);
  return await readFile(`${keyStore}.pem`, 'utf8');
}

function secureLines(port: number, keyStore: string): string[] {
  return [
    'serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory',
    ...[`secureClientPort=${port}`, 'secureClientPortAddress=127.0.0.1', 'ssl.clientAuth=none'],
    ...[`ssl.keyStore.location=${keyStore}`, `ssl.keyStore.password=${KEY_PASSWORD}`],
  ];
}

async function leaderOf(servers: readonly ZooKeeperServer[]): Promise<ZooKeeperServer> {
  for (;;) {
    const states = await Promise.all(servers.map(({ port }) => serverState(port)));
    const leader = servers[states.findIndex(({ mode }) => mode === 'leader')];
    if (leader) return leader;
    await sleep(POLL_MS);
  }
}

async function writeFiles(
  dir: string,
  ports: readonly number[],
  at: number,
  { tickMs = 200, epoch = 0 }: ZooKeeperOptions,
  secure: readonly string[],
): Promise<void> {
  const data = join(dir, 'version-2');
  await mkdir(data, { recursive: true });
  const peers = ports.flatMap((_, index) =>
    index % 3 === 0
      ? [`server.${index / 3 + 1}=127.0.0.1:${ports[index + 1]}:${ports[index + 2]}`]
      : [],
  );
  const config = [
    `tickTime=${tickMs}`,
    // A loaded machine may take seconds to start a server.
    ...['initLimit=100', 'syncLimit=10'],
    ...[`dataDir=${dir}`, `clientPort=${ports[3 * at]}`, 'clientPortAddress=127.0.0.1'],
    ...['admin.enableServer=false', '4lw.commands.whitelist=srvr', 'maxClientCnxns=0'],
    ...(peers.length > 1 ? peers : []),
    ...secure,
  ];
  await writeFile(join(dir, 'zoo.cfg'), `${config.join('\n')}\n`);
  await writeFile(join(dir, 'myid'), `${at + 1}\n`);
  if (epoch === 0) return;
  for (const name of ['acceptedEpoch', 'currentEpoch'])
    await writeFile(join(data, name), `${epoch}`);
}

function launchOf(
  { java, classPath }: ZooKeeperPrograms,
  dir: string,
  { isDurable = false }: ZooKeeperOptions,
): Launch {
  const sync = isDurable ? [] : ['-Dzookeeper.forceSync=no'];
  const log = '-Dorg.slf4j.simpleLogger.defaultLogLevel=warn';
  return {
    command: java,
    args: [...JVM, log, ...sync, '-cp', classPath, MAIN, join(dir, 'zoo.cfg')],
    options: { cwd: dir, endSignal: 'SIGKILL' },
    logPath: join(dir, 'zookeeper.log'),
  };
}

/** `mode` is `leader` or `follower`; undefined if it does not answer or serves no requests. */
async function serverState(port: number): Promise<{ mode?: string; version?: string }> {
  const answer = await askZooKeeper(port, 'srvr').catch(() => '');
  const [, version] = /version: ([\d.]+)/.exec(answer) ?? [];
  const [, mode] = /^Mode: (\w+)$/m.exec(answer) ?? [];
  return { ...(version !== undefined && { version }), ...(mode !== undefined && { mode }) };
}

/** The answer to one of ZooKeeper's commands of four letters. */
function askZooKeeper(port: number, command: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    const socket = createConnection({ port, host: '127.0.0.1' }, () => socket.write(command));
    socket.setTimeout(ASK_LIMIT_MS, () => socket.destroy(new Error('no answer')));
    socket.on('data', (chunk: Buffer) => chunks.push(chunk));
    socket.on('error', reject);
    socket.on('close', () => resolve(Buffer.concat(chunks).toString()));
  });
}
