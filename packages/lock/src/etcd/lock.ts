import '../node-version.js';
import { LockArgumentError } from '../core/errors.js';
import { checkFields, resolveOptions } from '../core/options.js';
import { LockService } from '../lease/lock-service.js';
import { checkRuntime, type Runtime, systemRuntime } from '../runtime/runtime.js';
import { EtcdClient, type Fetch } from './client.js';
import { EtcdTransport } from './etcd-transport.js';
import { type EtcdUser, Login } from './login.js';

export { EtcdError, type Fetch } from './client.js';
export type { EtcdUser } from './login.js';

export interface EtcdLockConfig {
  /**
   * The client URLs of all members, as `http://10.0.0.1:2379`. They serve etcd's JSON gateway
   * below `/v3/`, as etcd 3.4 and newer do by default.
   */
  readonly endpoints: readonly string[];
  /**
   * Prefix of all keys. Another prefix is another lock service: the two do not share locks.
   * @default 'fenced/'
   */
  readonly keyPrefix?: string;
  /** Longest lease in milliseconds, 10 to 86,400,000 (a day). @default 60_000 */
  readonly maxTtlMs?: number;
  /**
   * Added to etcd's revision, 0 to 2^53-1. All clients need the same. After a restore from a
   * backup, the revision may go back. Then choose an offset that brings the tokens above all
   * earlier ones. @default 0n
   */
  readonly tokenOffset?: bigint;
  /**
   * The user, if the cluster has users. The lock logs in, and does so again when etcd no longer
   * takes the token.
   */
  readonly auth?: EtcdUser;
  /** Sends the requests, for instance with client certificates. @default fetch */
  readonly fetch?: Fetch;
}

/**
 * Leases with fencing tokens in one etcd cluster, by the methods of `Redlock`. Locks go on while a
 * majority of its members is up.
 *
 * Promised: tokens grow, also if members are killed, because a token is the revision of a
 * transaction that a majority has stored. Exceptions are a restore from a backup, and a member that
 * lost its data but not its vote: see docs/etcd.md.
 *
 * etcd counts in whole seconds, and grants 2 s or more by default. A lease with a shorter TTL ends
 * for its holder after that TTL. Without a release, others are kept out for those 2 s.
 */
export class EtcdLock extends LockService {
  /** @throws {LockArgumentError} an option is out of range */
  constructor(config: EtcdLockConfig, runtime: Runtime = systemRuntime) {
    const fields = ['endpoints', 'keyPrefix', 'maxTtlMs', 'tokenOffset', 'auth', 'fetch'];
    checkFields('the first argument of EtcdLock', config, fields);
    checkRuntime(runtime);
    const { keyPrefix = 'fenced/', tokenOffset = 0n, fetch = globalThis.fetch } = config;
    const options = resolveOptions({ ...config, keyPrefix });
    checkTokenOffset(tokenOffset);
    if (typeof fetch !== 'function') throw new LockArgumentError('fetch must be a function');
    const login = config.auth === undefined ? null : new Login(checkUser(config.auth));
    const etcd = new EtcdClient(checkEndpoints(config.endpoints), fetch, login, runtime);
    const transport = new EtcdTransport(etcd, keyPrefix, tokenOffset, runtime);
    super('EtcdLock', options.maxTtlMs, transport, runtime);
  }
}

/** @returns the URLs without a slash at the end */
function checkEndpoints(endpoints: unknown): readonly string[] {
  if (!Array.isArray(endpoints) || endpoints.length === 0) {
    throw new LockArgumentError('endpoints must be an array with the URL of each etcd member');
  }
  return endpoints.map((endpoint: unknown) => {
    if (typeof endpoint === 'string' && /^https?:\/\/[^/]+\/?$/.test(endpoint)) {
      return endpoint.replace(/\/$/, '');
    }
    throw new LockArgumentError(
      `an endpoint must be a URL such as http://10.0.0.1:2379 endpoint=${String(endpoint)}`,
    );
  });
}

function checkUser(user: EtcdUser): EtcdUser {
  checkFields('auth', user, ['name', 'password']);
  const { name, password } = user;
  const isText = (value: unknown): boolean => typeof value === 'string' && value !== '';
  if (isText(name) && isText(password)) return { name, password };
  throw new LockArgumentError('auth must have the name and the password of an etcd user, as text');
}

function checkTokenOffset(offset: unknown): void {
  if (typeof offset === 'bigint' && offset >= 0n && offset < 2n ** 53n) return;
  throw new LockArgumentError(
    `tokenOffset must be a bigint from 0 to 2^53-1 tokenOffset=${String(offset)} type=${typeof offset}`,
  );
}
