import { ConflictError, FencedStoreError } from '../core/errors.js';
import { isEviction, SERIALIZATION_FAILURES, type ServerError } from './client.js';
import {
  evicted,
  LOCK_NOT_AVAILABLE,
  NO_TOKEN,
  NOT_ALLOWED,
  OTHER_KIND,
  refusal,
  STALE,
} from './failures.js';

/**
 * The fields in which drivers and ORMs keep the server's error: pg and Drizzle, Node, TypeORM,
 * Sequelize, Prisma.
 */
const INSIDE = ['cause', 'errors', 'driverError', 'originalError', 'meta', 'driverAdapterError'];

/**
 * Finds this library's error in the error of a driver or an ORM; null if there is none. The search
 * follows `cause`, `AggregateError`, and the fields of TypeORM, Sequelize and Prisma.
 *
 * - `StaleTokenError`: a later holder has written. Give up.
 * - `ConflictError`: the server rolled back because of concurrent transactions, SQLSTATE 40001,
 *   40P01 and 55P03. Run the transaction again. `resource` is empty: the server does not name it.
 * - `StoreUnavailableError`: the transaction lasted longer than the lease, and the server ended it.
 * - `InvalidArgumentError`: a guarded row without a token, or a transaction that is not
 *   READ COMMITTED.
 * - `StoreSetupError`: the schema `fenced` is missing or has another version, or the role may not
 *   use it.
 *
 * In each of these cases the transaction is rolled back. A lost reply to COMMIT gives null: then
 * `settle` reports the outcome, if the token was presented with a `writeId`.
 */
export function asFencedError(error: unknown): FencedStoreError | null {
  const found = new Set<unknown>([error]);
  // The loop also visits the parts that it adds to the set, each once.
  for (const inner of found) {
    if (typeof inner !== 'object' || inner === null) continue;
    if (inner instanceof FencedStoreError) return inner;
    const meant = isFromServer(inner) ? meaningOf(inner) : null;
    if (meant) return meant;
    for (const field of INSIDE) {
      const value = (inner as Record<string, unknown>)[field];
      for (const part of Array.isArray(value) ? value : [value]) found.add(part);
    }
  }
  return null;
}

/** Unlike `isServerError`, also accepts the plain object of Prisma. */
function isFromServer(value: object): value is ServerError {
  const { code, severity, message } = value as Partial<Record<keyof ServerError, unknown>>;
  return [code, severity, message].every((part) => typeof part === 'string');
}

/** SQLSTATEs that mean the same in every statement. */
const ANYWHERE: readonly string[] = [STALE, LOCK_NOT_AVAILABLE, NO_TOKEN, OTHER_KIND];

/** SQLSTATEs that may also come from the caller's own statements. The message decides. */
const ALSO_THEIRS: readonly string[] = ['3F000', '42883', NOT_ALLOWED];

function meaningOf(error: ServerError): FencedStoreError | null {
  const { code, message } = error;
  if (isEviction(error)) return evicted(error);
  if (SERIALIZATION_FAILURES.includes(code))
    return new ConflictError({ resource: '', attempts: 1 }, { cause: error });
  const isOurs =
    ANYWHERE.includes(code) ||
    (ALSO_THEIRS.includes(code) && /\bfenced\b|function present$/.test(message));
  try {
    return isOurs ? (refusal(error, '') as FencedStoreError) : null;
  } catch {
    // Another program raised UF001, without our facts in its detail.
    return null;
  }
}
