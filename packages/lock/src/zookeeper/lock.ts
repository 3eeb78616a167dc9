import '../node-version.js';
import { type ConnectionOptions, createSecureContext } from 'node:tls';
import { LockArgumentError } from '../core/errors.js';
import { checkFields, milliseconds, resolveOptions } from '../core/options.js';
import { LockService } from '../lease/lock-service.js';
import { checkRuntime, type Runtime, systemRuntime } from '../runtime/runtime.js';
import { Ensemble } from './ensemble.js';
import { Paths } from './paths.js';
import type { ServerAddress } from './protocol/connection.js';
import { CREATOR, OPEN } from './protocol/operations.js';
import { Session } from './protocol/session.js';
import { ZooKeeperTransport } from './zookeeper-transport.js';

export interface ZooKeeperLockConfig {
  /** Addresses of the ensemble's servers, with commas between: `zk1:2181,zk2:2181,[::1]:2181`. */
  readonly servers: string;
  /**
   * Path of the node above all others of this lock service. Another root is another lock service.
   * @default '/fenced'
   */
  readonly root?: string;
  /** Longest lease in milliseconds, 10 to 86,400,000 (a day). @default 60_000 */
  readonly maxTtlMs?: number;
  /**
   * Milliseconds of silence after which the servers end the session, 100 to 60,000; they clamp it
   * to 2 to 20 of their ticks. A waiter that crashes delays the next one by that time. A lease does
   * not depend on it.
   * @default 6_000
   */
  readonly sessionTimeoutMs?: number;
  /**
   * Credentials, such as `{ scheme: 'digest', auth: 'user:password' }`. Nodes are then open to
   * these only, else to everybody.
   */
  readonly auth?: { readonly scheme: string; readonly auth: string };
  /**
   * Makes the connections by TLS, with these options of `tls.connect`, such as `{ ca }`; `{}` for
   * the authorities that Node trusts. `servers` are then the servers' secure ports.
   */
  readonly tls?: ConnectionOptions;
}

const PORT = 2181;
const ROOT_LENGTH_MAX = 200;

/**
 * Leases with fencing tokens in one ZooKeeper ensemble, by the methods of `Redlock`. The token is
 * the transaction that created the lease, which grows over all nodes of the ensemble. Exceptions
 * are a restore from a backup, and a server that lost its data but not its vote: see
 * docs/zookeeper.md.
 *
 * It connects with its first call, and stays connected until `close`.
 */
export class ZooKeeperLock extends LockService {
  /** @throws {LockArgumentError} an option is out of range */
  constructor(config: ZooKeeperLockConfig, runtime: Runtime = systemRuntime) {
    const fields = ['servers', 'root', 'maxTtlMs', 'sessionTimeoutMs', 'auth', 'tls'];
    checkFields('the first argument of ZooKeeperLock', config, fields);
    checkRuntime(runtime);
    const { root = '/fenced', auth, tls, sessionTimeoutMs: timeoutMs = 6_000, ...options } = config;
    const { maxTtlMs } = resolveOptions(options);
    const servers = addressesOf(config.servers);
    checkRoot(root);
    milliseconds('sessionTimeoutMs', timeoutMs, 100, 60_000);
    if (auth !== undefined) checkAuth(auth);
    const credentials = auth ? [auth] : [];
    const access = { credentials, tls: tls === undefined ? tls : withContext(tls) };
    const session = new Session({ servers, ...access, timeoutMs }, runtime);
    const ensemble = new Ensemble(session, auth ? CREATOR : OPEN, runtime);
    const transport = new ZooKeeperTransport(ensemble, new Paths(root), maxTtlMs, runtime);
    super('ZooKeeperLock', maxTtlMs, transport, runtime);
  }
}

function addressesOf(servers: string): ServerAddress[] {
  if (typeof servers !== 'string' || servers === '') {
    throw new LockArgumentError('servers must be a string such as zk1:2181,zk2:2181');
  }
  return servers.split(',').map((address) => {
    const [, host = '', port = PORT] =
      /^\s*(\[[\da-f:.]+\]|[^\s:/]+)(?::(\d{1,5}))?\s*$/i.exec(address) ?? [];
    if (host === '' || Number(port) < 1 || Number(port) > 65_535) {
      throw new LockArgumentError(
        `servers must be addresses such as zk1:2181,zk2:2181, without a path address=${address}`,
      );
    }
    return { host: host.replace(/^\[|\]$/g, ''), port: Number(port) };
  });
}

function checkRoot(root: string): void {
  const isPath = typeof root === 'string' && /^(\/(?!\.\.?(\/|$))[!-.0-~]+)+$/.test(root);
  if (isPath && root.length <= ROOT_LENGTH_MAX) return;
  throw new LockArgumentError(
    `root must be a path such as /fenced, of at most ${ROOT_LENGTH_MAX} printable ASCII characters root=${String(root)}`,
  );
}

function checkAuth(auth: NonNullable<ZooKeeperLockConfig['auth']>): void {
  checkFields('auth', auth, ['scheme', 'auth']);
  if (typeof auth.scheme === 'string' && typeof auth.auth === 'string') return;
  throw new LockArgumentError('auth must be as { scheme: "digest", auth: "user:password" }');
}

/** Reads keys and certificates once, so that a mistake in them shows here. */
function withContext(tls: ConnectionOptions): ConnectionOptions {
  if (!(tls instanceof Object)) {
    throw new LockArgumentError('tls must have options of tls.connect, such as { ca }');
  }
  try {
    return { ...tls, secureContext: tls.secureContext ?? createSecureContext(tls) };
  } catch (error) {
    throw new LockArgumentError(`tls has options that Node refuses: ${(error as Error).message}`);
  }
}
