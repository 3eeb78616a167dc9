import { ConflictError, FencedStoreError, InvalidArgumentError } from '../core/errors.js';
import type { ServerError } from './client.js';
import {
  evicted,
  isEviction,
  NO_TOKEN,
  NOT_ALLOWED,
  OTHER_KIND,
  refusal,
  STALE,
  staleToken,
} from './failures.js';

/** The fields in which drivers and ORMs keep the error of the server: pg and Drizzle, Node, TypeORM, Sequelize, Prisma. */
const INSIDE = ['cause', 'errors', 'driverError', 'originalError', 'meta', 'driverAdapterError'];

/**
 * The error of this library that an error of a driver or an ORM stands for, or null if it stands for none. The search follows `cause`,
 * the errors of an `AggregateError`, and the fields in which TypeORM, Sequelize and Prisma keep what the server said.
 *
 * - `StaleTokenError`: a later holder has written. Give up.
 * - `ConflictError`: the server rolled back because of others, SQLSTATE 40001, 40P01 and 55P03. Run the transaction again. The
 *   server does not say which resource it was, so `resource` is empty.
 * - `StoreUnavailableError`: the transaction lasted longer than the lease, and the server ended it.
 * - `InvalidArgumentError`: a guarded row without a token, or a transaction that is not READ COMMITTED.
 * - `StoreSetupError`: the schema `fenced` is missing or old, or the role may not use it.
 *
 * In each of these cases the transaction is rolled back. An unknown outcome is not among them: a connection that was
 * lost during COMMIT gives null, and `settle` tells the outcome if the token was presented with a `writeId`.
 */
export function asFencedError(error: unknown): FencedStoreError | null {
  const found = new Set<unknown>([error]);
  // A set also visits what is added to it meanwhile, once.
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

/** Unlike `isServerError`, it also accepts the plain object in which Prisma passes it on. */
function isFromServer(value: object): value is ServerError {
  const { code, severity, message } = value as Partial<Record<keyof ServerError, unknown>>;
  return [code, severity, message].every((part) => typeof part === 'string');
}

function meaningOf(error: ServerError): FencedStoreError | null {
  switch (error.code) {
    case STALE:
      try {
        return staleToken(error);
      } catch {
        // Not as the ratchet says it.
        return null;
      }
    case '40001':
    case '40P01':
    case '55P03':
      return new ConflictError({ resource: '', attempts: 1 }, { cause: error });
    case NO_TOKEN:
    case OTHER_KIND:
      return new InvalidArgumentError(error.message);
    case '3F000':
    case '42883':
    case NOT_ALLOWED: {
      // The caller's own statements may fail so, too.
      const isOurs = /\bfenced\b|function enter$/.test(error.message);
      return isOurs ? (refusal(error, '') as FencedStoreError) : null;
    }
    default:
      return isEviction(error) ? evicted(error) : null;
  }
}
