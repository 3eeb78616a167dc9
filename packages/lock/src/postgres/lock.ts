import { schema } from './schema.generated.js';
import '../node-version.js';
import { LockArgumentError } from '../core/errors.js';
import { checkFields, checkOlderThanMs, resolveOptions } from '../core/options.js';
import { LockService } from '../lease/lock-service.js';
import { checkRuntime, type Runtime, systemRuntime } from '../runtime/runtime.js';
import { Database, type PostgresPool } from './database.js';
import { PostgresTransport } from './postgres-transport.js';
import { WakeUps } from './wake-ups.js';

export type { PostgresConnection, PostgresPool } from './database.js';

export interface PostgresLockConfig {
  /** A `pg.Pool`. One of its connections listens for releases while anybody waits. It stays its owner's. */
  readonly pool: PostgresPool;
  /** The longest lease in milliseconds that this lock may be asked for, 10 to 86,400,000 (a day). @default 60_000 */
  readonly maxTtlMs?: number;
  /**
   * Milliseconds for which the database remembers the last token of a name that nobody locks, and up to twice as long; at least
   * `maxTtlMs`. Forgetting is safe: the next token of a forgotten name is above the highest of all names.
   * @default 300_000, or `maxTtlMs` if that is longer
   */
  readonly fenceTtlMs?: number;
  /** As in `RedlockOptions`: where the tokens of new resources begin, for demonstrations. */
  readonly firstToken?: bigint;
}

/**
 * Leases with fencing tokens in one PostgreSQL database: the interface of `Redlock`, where a database is at hand and the
 * reliability of one server, or of its synchronous replica, will do.
 *
 * Promised as by `Redlock`: tokens grow. That rests on what the database has committed: after a failover to an asynchronous
 * replica, on the clocks of both, too.
 */
export class PostgresLock extends LockService {
  readonly #database: Database;
  readonly #transport: PostgresTransport;

  /** @throws {LockArgumentError} where the pool is none, or an option out of range */
  constructor(config: PostgresLockConfig, runtime: Runtime = systemRuntime) {
    const fields = ['pool', 'maxTtlMs', 'fenceTtlMs', 'firstToken'];
    checkFields('the first argument of PostgresLock', config, fields);
    checkRuntime(runtime);
    const options = resolveOptions(config);
    const { connect, query } = config.pool ?? {};
    if (typeof connect !== 'function' || typeof query !== 'function')
      throw new LockArgumentError('pool must be a pg.Pool');
    const database = new Database(config.pool);
    const wakeUps = new WakeUps(config.pool, runtime);
    const transport = new PostgresTransport(database, wakeUps, options, runtime);
    super('PostgresLock', options.maxTtlMs, transport, runtime);
    this.#database = database;
    this.#transport = transport;
  }

  /** Creates the schema `fenced_lock` where it is missing. The role needs `CREATE` on the database. */
  async install(): Promise<void> {
    await this.#database.install(schema);
  }

  /**
   * Forgets the names whose last lease ended more than `olderThanMs` ago. Held and awaited names stay. The next token of a
   * forgotten name is above every token that it ever had. Every process of the service does this by itself, see `fenceTtlMs`; call it to forget
   * more at once. It works in small steps, next to all other calls.
   *
   * @returns the number of forgotten names
   * @throws {LockArgumentError} `olderThanMs` is no whole number, 0 to a year
   * @throws the error of the database; what was forgotten before it stays forgotten
   */
  async forget(options: { readonly olderThanMs: number }): Promise<number> {
    checkFields('the options of forget', options, ['olderThanMs']);
    const olderThanMs = checkOlderThanMs(options.olderThanMs);
    await this.#database.raiseFloor(0);
    return this.#transport.forget(olderThanMs);
  }
}
