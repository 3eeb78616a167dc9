import {
  ConflictError,
  InvalidArgumentError,
  OutcomeUnknownError,
  StaleTokenError,
  StoreSetupError,
  StoreUnavailableError,
} from '../core/errors.js';
import {
  isEviction,
  isSerializationFailure,
  isServerError,
  type ServerError,
  wasNotSent,
} from './client.js';
import type { CheckedFence } from './fence.js';
import type { Session } from './session.js';

// SQLSTATEs of schema.sql.
/** The token is lower than the highest of its resource. */
export const STALE = 'UF001';
/** A guarded row was written without a token, or a guarded table would be truncated. */
export const NO_TOKEN = 'UF002';
/** The transaction is not the one that presented the token. */
export const NOT_THE_TRANSACTION = 'UF003';
/** The transaction is not READ COMMITTED, READ WRITE. */
export const OTHER_KIND = 'UF004';
/** Other roles have the right to remove the guard. */
export const GUARD_IN_DANGER = 'UF005';

// SQLSTATEs of PostgreSQL.
export const NOT_ALLOWED = '42501';
export const LOCK_NOT_AVAILABLE = '55P03';
/** The transaction has failed before. The server accepts only its end, or ROLLBACK TO. */
export const IN_FAILED_TRANSACTION = '25P02';

/** The resources in one string, for messages and errors. */
function nameOf(fence: Pick<CheckedFence, 'resources'>): string {
  return fence.resources.join(', ');
}

/** Positions of statements in a batch that is a transaction, or the beginning of one. */
export interface BatchParts {
  /** Number of this library's statements before the caller's. @default all */
  readonly ours?: number;
  /** Position of the COMMIT of the caller's writes. @default none */
  readonly commitAt?: number;
}

/**
 * Rolls back after a failed batch, and returns the error for the caller. A serialization failure is
 * returned unchanged, because the transaction is then run again.
 */
export async function failureOf(
  error: unknown,
  session: Session,
  fence: CheckedFence,
  { ours = Number.POSITIVE_INFINITY, commitAt = Number.POSITIVE_INFINITY }: BatchParts = {},
): Promise<unknown> {
  // The lease ended during the wait for a connection.
  if (error instanceof InvalidArgumentError) return error;
  // A value could not be encoded, so nothing was sent.
  if (session.progress.sent === 0) return error;
  const isOurs = session.progress.answered < ours;
  // If the server sent the error, and the session still lives, the transaction is undone. Any other
  // error may come after a commit.
  const isAlive = await session.rollBack();
  if (isAlive && isServerError(error))
    return isOurs ? refusal(error, nameOf(fence)) : stalenessOf(error);
  if (!provesNoCommit(error, session, commitAt)) return outcomeUnknown(error, session, fence);
  // The driver could not convert a value or a row.
  if (isAlive && !isOurs) return error;
  return notCommitted(error, session, fence.signal);
}

/** Turns the server's refusal of a statement of this library into the error for the caller. */
export function refusal(error: ServerError, resource: string): Error {
  const { code, message, hint } = error;
  if (isSerializationFailure(error)) return error;
  const setUp = (text: string): StoreSetupError => new StoreSetupError(text, { cause: error });
  switch (code) {
    case STALE:
      return staleToken(error);
    case NO_TOKEN:
    case OTHER_KIND:
      return new InvalidArgumentError(message);
    case '23505':
      return new InvalidArgumentError(
        'the writeId was used before, or settled as not applied: settle() reports which',
      );
    case LOCK_NOT_AVAILABLE:
      return new ConflictError({ resource, attempts: 1 }, { cause: error });
    case '3F000': // no schema "fenced"
    case '42P01': // no such table in it
    case '42883': // no such function in it
      return setUp(
        `the database has no schema "fenced", or another version of it (${message}): run install() once, or schema.sql`,
      );
    case NOT_ALLOWED:
      return setUp(`the role may not do this (${message})${adviceOn(error)}`);
    case GUARD_IN_DANGER:
    case '55000': // schema.sql cannot upgrade the installed version
      return setUp(`${message}: ${hint}`);
    case '22P05':
      return setUp(
        `the encoding of the database lacks a character of the resource: use UTF8 (${message})`,
      );
    case '0A000': // the answer of a hot standby to BEGIN READ WRITE
    case '25006':
      return setUp(`the server is read-only, a standby perhaps (${message})`);
    default:
      return new StoreUnavailableError(`${message} SQLSTATE=${code}`, { cause: error });
  }
}

function adviceOn({ hint, message }: ServerError): string {
  if (hint) return `: ${hint}`;
  return / fenced$|function (present|settle|highest|\w+_record)$/.test(message)
    ? ": let the owner of the schema run SELECT fenced.allow('role')"
    : '';
}

/** A `StaleTokenError` if the ratchet refused the token; else the error itself. */
export function stalenessOf(error: unknown): unknown {
  return isServerError(error) && error.code === STALE ? staleToken(error) : error;
}

/** The error for a connection that was lost, or closed by the signal, before COMMIT was sent. */
export function notCommitted(
  error: unknown,
  session: Session,
  signal: AbortSignal | undefined,
): unknown {
  if (signal?.aborted) return signal.reason;
  // The server's last error says more than pg's "Connection terminated".
  const cause = isServerError(error) ? error : (session.lostBy ?? error);
  if (isEviction(cause)) return evicted(cause);
  return new StoreUnavailableError(
    'the connection was lost before COMMIT was sent: nothing was written',
    { cause },
  );
}

/** The error for a transaction that the server ended because it lasted too long. */
export function evicted(cause: unknown): StoreUnavailableError {
  return new StoreUnavailableError(
    'the transaction lasted longer than the lease or holdMs, and the server ended it: nothing was written',
    { cause },
  );
}

/**
 * True if the server certainly did not carry out the COMMIT at this position of the last batch.
 *
 * Either COMMIT was not sent. Or the server ended the session because of its time limit, before it
 * answered the statement in front of COMMIT. Other errors prove nothing: they may be PgBouncer's.
 */
export function provesNoCommit(error: unknown, session: Session, commitAt: number): boolean {
  const { sent, answered } = session.progress;
  return sent <= commitAt || wasNotSent(error) || (isEviction(error) && answered < commitAt);
}

export function outcomeUnknown(
  cause: unknown,
  session: Session,
  fence: CheckedFence,
): OutcomeUnknownError {
  const canSettle = fence.writeId !== undefined;
  const writeId = fence.writeId ?? session.runtime.uniqueId();
  const facts = { resource: nameOf(fence), writeId, store: 'postgres', canSettle } as const;
  return new OutcomeUnknownError(facts, { cause });
}

const BELOW_FLOOR =
  'the resource was pruned or is new, and the token is below the floor; if this token is the latest of the lock service, an operator must run fenced.reset';

/** @throws the error's detail is not that of schema.sql */
function staleToken(error: ServerError): StaleTokenError {
  const facts: { resource: string; presented: string; highest: string; pruned?: boolean } =
    JSON.parse(error.detail ?? '');
  return new StaleTokenError(
    {
      resource: facts.resource,
      presented: BigInt(facts.presented),
      highest: BigInt(facts.highest),
      reason: facts.pruned ? BELOW_FLOOR : undefined,
    },
    { cause: error },
  );
}
