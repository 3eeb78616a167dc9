import '../node-version.js';
import { checkFields, milliseconds, resolveOptions } from '../core/options.js';
import { LockService } from '../lease/lock-service.js';
import { checkRuntime, type Runtime, systemRuntime } from '../runtime/runtime.js';
import { databaseClientOf } from './clients/detect.js';
import type { PostgresPool } from './clients/pg.js';
import type { PostgresJs } from './clients/postgres-js.js';
import { PostgresTransport } from './postgres-transport.js';

export type { PostgresConnection, PostgresPool } from './clients/pg.js';
export type { PostgresJs } from './clients/postgres-js.js';

export interface PostgresLockConfig {
  /**
   * The caller's `pg.Pool`, or the `sql` that `postgres()` of postgres.js returns. A connection
   * listens for releases while a client waits: one of the pool, or a further one of postgres.js,
   * which stays open until `sql.end()`.
   */
  readonly pool: PostgresPool | PostgresJs;
  /** Longest lease in milliseconds, 10 to 86,400,000 (a day). @default 60_000 */
  readonly maxTtlMs?: number;
  /**
   * Milliseconds for which the database remembers the last token of an unused name, and up to twice
   * as long; at least `maxTtlMs`. Forgetting is safe: the next token of a forgotten name is above
   * the highest of all names.
   * @default 300_000, or `maxTtlMs` if that is longer
   */
  readonly fenceTtlMs?: number;
  /**
   * The first token of new resources, for demonstrations. After a restart of the server, tokens
   * are above the clock nevertheless. @default the clock in microseconds
   */
  readonly firstToken?: bigint;
}

const YEAR_MS = 31_536_000_000;

/**
 * Leases with fencing tokens in one PostgreSQL database, by the methods of `Redlock`. It is as
 * reliable as that server, or its synchronous replica.
 *
 * Promised: tokens grow, also over crashes and failovers that lose commits: see docs/postgres.md.
 */
export class PostgresLock extends LockService {
  readonly #transport: PostgresTransport;

  /** @throws {LockArgumentError} `pool` is not one of these, or an option is out of range */
  constructor(config: PostgresLockConfig, runtime: Runtime = systemRuntime) {
    const fields = ['pool', 'maxTtlMs', 'fenceTtlMs', 'firstToken'];
    checkFields('the first argument of PostgresLock', config, fields);
    checkRuntime(runtime);
    const options = resolveOptions(config);
    const client = databaseClientOf(config.pool, runtime);
    const transport = new PostgresTransport(client, options, runtime);
    super('PostgresLock', options.maxTtlMs, transport, runtime);
    this.#transport = transport;
  }

  /** Creates or upgrades the schema `fenced_lock`. The role needs `CREATE` on the database. */
  async install(): Promise<void> {
    await this.#transport.database.install();
  }

  /**
   * Forgets the names whose last lease ended more than `olderThanMs` ago. The next token of a
   * forgotten name is above every token that it ever had. Processes of the service do this by
   * themselves, see `fenceTtlMs`. This call forgets more at once, in small steps beside all other
   * calls.
   *
   * @returns the number of forgotten names
   * @throws {LockArgumentError} `olderThanMs` is no whole number from 0 to a year
   * @throws the error of the database; earlier steps stay done
   */
  async forget(options: { readonly olderThanMs: number }): Promise<number> {
    checkFields('the options of forget', options, ['olderThanMs']);
    const olderThanMs = milliseconds('olderThanMs', options.olderThanMs, 0, YEAR_MS);
    await this.#transport.database.raiseFloor(0);
    return this.#transport.forget(olderThanMs);
  }
}
