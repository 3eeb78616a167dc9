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
export const STALE = 'UF001';
/** SQLSTATE of a guard: the transaction presented no token, or the table would be truncated. */
export const NO_TOKEN = 'UF002';
/** SQLSTATE of `fenced.enter`: the transaction is not READ COMMITTED, READ WRITE. */
export const OTHER_KIND = 'UF004';
/** The role may not do this. */
export const NOT_ALLOWED = '42501';
/** SQLSTATE of `fenced.guard`: other roles may take the guard away. */
const GUARD_IN_DANGER = 'UF005';
/** SQLSTATE of `fenced.confirm`: the transaction is not the one that presented the token. */
export const NOT_THE_TRANSACTION = 'UF003';
/** The transaction had failed before: nothing but its end is accepted. */
export const IN_FAILED_TRANSACTION = '25P02';
/** The server ended the connection because it stayed idle inside its transaction, or its transaction lasted, longer than it may. */
const EVICTIONS = ['25P03', '25P04'];

/** For messages and errors that have room for one name. */
export function nameOf(fence: Pick<CheckedFence, 'resources'>): string {
  return fence.resources.join(', ');
}

/** What a batch was sent for. */
export interface Purpose {
  /** How many of its statements, from the first, are this library's own. */
  readonly ours: number;
  /** Which of them commits what the caller wrote; one that is not there, where none does. */
  readonly commitAt: number;
  /** What may follow it, whatever became of it. */
  readonly undo?: string;
}

/**
 * What the failure of a batch means, once nothing of it goes on. Serialization failures are passed on as they are: the
 * transaction is run again. So is a lease that ran out during the wait for a connection.
 */
export async function failureOf(
  error: unknown,
  session: Session,
  fence: CheckedFence,
  { ours, commitAt, undo }: Purpose,
): Promise<unknown> {
  if (error instanceof InvalidArgumentError) return error;
  // A value that could not be made ready to be sent.
  if (session.progress.sent === 0) return error;
  const isOurs = session.progress.answered < ours;
  // An error of the server that leaves the session alive undid the transaction. Anything else can follow a commit.
  const isUndone = (await session.rollBack(undo)) && isServerError(error);
  if (isUndone) return isOurs ? refusal(error, nameOf(fence)) : stalenessOf(error);
  return provesNoCommit(error, session, commitAt)
    ? notCommitted(error, session, fence.signal)
    : outcomeUnknown(error, session, fence);
}

/** What the server's refusal of a statement of this library means. */
export function refusal(error: ServerError, resource: string): Error {
  switch (error.code) {
    case STALE:
      return staleToken(error);
    case '40001':
    case '40P01':
      return error;
    case '23505':
      return new InvalidArgumentError(
        'the writeId was used before, or settled as not applied: settle() tells which',
      );
    case '55P03': // Somebody else held the resource for longer than we may wait.
      return new ConflictError({ resource, attempts: 1 }, { cause: error });
    case '3F000': // There is no schema "fenced" …
    case '42P01': // … or no table,
    case '42883': // … or no function of that name in it.
      return new StoreSetupError(
        `the database has no fenced schema, or an earlier one (${error.message}): run install() once, or schema.sql`,
        { cause: error },
      );
    case NOT_ALLOWED:
      return new StoreSetupError(`the role may not do this (${error.message})${adviceOn(error)}`, {
        cause: error,
      });
    case GUARD_IN_DANGER:
      return new StoreSetupError(`${error.message}: ${error.hint}`, { cause: error });
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

function adviceOn({ hint, message }: ServerError): string {
  if (hint) return `: ${hint}`;
  return / fenced$|function (enter|settle|highest|\w+_record)$/.test(message)
    ? ": let the owner of the schema run SELECT fenced.allow('role')"
    : '';
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
  if (isEviction(cause)) return evicted(cause);
  return new StoreUnavailableError(
    'the connection was lost before COMMIT was sent: nothing was written',
    { cause },
  );
}

/** The server ended the transaction for its duration. */
export function evicted(cause: unknown): StoreUnavailableError {
  return new StoreUnavailableError(
    'the transaction lasted longer than the lease, or holdMs, allowed, and the server ended it: nothing was written',
    { cause },
  );
}

/**
 * Whether the failure of a batch leaves no doubt that the server did not commit, where its statement `commitAt` would have
 * done so: that was not sent; or the server said that it ended the transaction for its duration, and not after COMMIT,
 * since it answers in order. (What others say so is not proof: PgBouncer sends errors of its own in the server's place.)
 */
export function provesNoCommit(error: unknown, session: Session, commitAt: number): boolean {
  const { sent, answered } = session.progress;
  return sent <= commitAt || wasNotSent(error) || (isEviction(error) && answered < commitAt);
}

export function isEviction(error: unknown): boolean {
  return isServerError(error) && EVICTIONS.includes(error.code);
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
  'the resource was pruned or is new, and the token is below the floor; if it is the latest that the lock service gave, an operator must run fenced.reset';

export function staleToken(error: ServerError): StaleTokenError {
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
