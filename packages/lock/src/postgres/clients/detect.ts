import { LockArgumentError } from '../../core/errors.js';
import type { Runtime } from '../../runtime/runtime.js';
import type { DatabaseClient } from '../client.js';
import { PgAdapter, type PostgresPool } from './pg.js';
import { type PostgresJs, PostgresJsAdapter } from './postgres-js.js';

/** One adapter for each `sql` of postgres.js. All lock services that use it share it. */
const adapters = new WeakMap<PostgresJs, DatabaseClient>();

/**
 * Adapter for a pool of pg or the `sql` of postgres.js, recognised by its methods.
 *
 * @throws {LockArgumentError} it is neither
 */
export function databaseClientOf(pool: unknown, runtime: Runtime): DatabaseClient {
  if (hasMethods(pool, 'connect', 'query')) return new PgAdapter(pool as PostgresPool, runtime);
  if (!hasMethods(pool, 'unsafe', 'listen')) {
    throw new LockArgumentError(
      `pool must be a pg.Pool, or the sql that postgres() of postgres.js returns: it is ${described(pool)}`,
    );
  }
  const sql = pool as PostgresJs;
  const adapter = adapters.get(sql) ?? new PostgresJsAdapter(sql);
  adapters.set(sql, adapter);
  return adapter;
}

function hasMethods(value: unknown, ...names: readonly string[]): boolean {
  const members = Object(value) as Record<string, unknown>;
  return names.every((name) => typeof members[name] === 'function');
}

/** Describes a value without showing it, because it may contain a password. */
function described(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  if (typeof value === 'string') return 'a string; make a pool of the address';
  if (hasMethods(value, 'then')) return 'a promise; await it first';
  if (hasMethods(value, 'unsafe')) return 'the sql of one transaction or connection';
  if (typeof value === 'function') return `the function ${value.name}; call it first`;
  return `of type ${typeof value}`;
}
