import {
  ConflictError,
  InvalidArgumentError,
  OutcomeUnknownError,
  StaleTokenError,
  StoreSetupError,
  StoreUnavailableError,
} from '../core/errors.js';
import { isServerError, type ServerError, wasNotSent } from './client.js';
import type { CheckedFence } from './fence.js';
import type { Session } from './session.js';

/** SQLSTATE of `fenced.advance`: the token is lower than the highest. */
const STALE = 'UF001';
/** SQLSTATE of `fenced.confirm`: the transaction is not the one that presented the token. */
export const NOT_THE_TRANSACTION = 'UF003';
/** The transaction had failed before: nothing but its end is accepted. */
export const IN_FAILED_TRANSACTION = '25P02';
/** The server ended the connection because it stayed idle inside its transaction for longer than it may. */
const IDLE_IN_TRANSACTION_TIMEOUT = '25P03';

/** For messages and errors that have room for one name. */
export function nameOf(fence: Pick<CheckedFence, 'resources'>): string {
  return fence.resources.join(', ');
}

/**
 * What the failure of one of our own statements means, those before the caller's first. Nothing was written.
 * Serialization failures are passed on as they are: the transaction is run again. So is a lease that ran out during the
 * wait for a connection.
 */
export async function beforeWork(
  error: unknown,
  session: Session,
  fence: CheckedFence,
): Promise<unknown> {
  if (error instanceof InvalidArgumentError) return error;
  const isAlive = await session.rollBack();
  return isServerError(error) && isAlive
    ? refusal(error, nameOf(fence))
    : notCommitted(error, session, fence.signal);
}

/** What the server's refusal of a statement of this library means. */
export function refusal(error: ServerError, resource: string): Error {
  switch (error.code) {
    case STALE:
      return staleToken(error);
    case '40001':
    case '40P01':
      return error;
    case '55P03': // Somebody else held the resource for longer than we may wait.
      return new ConflictError({ resource, attempts: 1 }, { cause: error });
    case '3F000': // There is no schema "fenced" …
    case '42P01': // … or no table,
    case '42883': // … or no function of that name in it.
      return new StoreSetupError(
        `the database has no fenced schema (${error.message}): run install() once, or schema.sql`,
        { cause: error },
      );
    case '42501':
      return new StoreSetupError(`the role may not do this (${error.message})`, { cause: error });
    case '22P05':
      return new StoreSetupError(
        `the encoding of the database lacks a character of the resource: use UTF8 (${error.message})`,
        { cause: error },
      );
    case '0A000': // A hot standby answers BEGIN READ WRITE so.
    case '25006':
      return new StoreSetupError(`the server is read-only, a standby perhaps (${error.message})`, {
        cause: error,
      });
    default:
      return new StoreUnavailableError(`${error.message} SQLSTATE=${error.code}`, { cause: error });
  }
}

/** `error`, as a `StaleTokenError` where it is the ratchet's. */
export function stalenessOf(error: unknown): unknown {
  return isServerError(error) && error.code === STALE ? staleToken(error) : error;
}

/** The connection was lost, or closed because the caller's signal aborted, before `COMMIT` was sent: the server rolls back. */
export function notCommitted(
  error: unknown,
  session: Session,
  signal: AbortSignal | undefined,
): unknown {
  if (signal?.aborted) return signal.reason;
  // The server's last words say more than pg's "Connection terminated".
  const cause = isServerError(error) ? error : (session.lostBy ?? error);
  const reason = isEviction(cause)
    ? 'the transaction was idle for longer than the lease, or holdMs, allowed, and the server ended it'
    : 'the connection was lost before COMMIT was sent';
  return new StoreUnavailableError(`${reason}: nothing was written`, { cause });
}

/** Whether a failure of what carries `COMMIT` leaves no doubt that the server did not read it. */
export function provesNoCommit(error: unknown): boolean {
  return isEviction(error) || wasNotSent(error);
}

/** Idle means that the server had not read `COMMIT`. */
function isEviction(error: unknown): boolean {
  return isServerError(error) && error.code === IDLE_IN_TRANSACTION_TIMEOUT;
}

export function outcomeUnknown(
  fence: Pick<CheckedFence, 'resources'>,
  writeId: string,
  cause: unknown,
): OutcomeUnknownError {
  return new OutcomeUnknownError({ resource: nameOf(fence), writeId }, { cause });
}

function staleToken(error: ServerError): StaleTokenError {
  const facts: { resource: string; presented: string; highest: string } = JSON.parse(
    error.detail ?? '',
  );
  return new StaleTokenError(
    {
      resource: facts.resource,
      presented: BigInt(facts.presented),
      highest: BigInt(facts.highest),
    },
    { cause: error },
  );
}
