import { InvalidArgumentError } from '../core/errors.js';
import { shown } from '../core/shown.js';
import type { Statement } from './batch.js';
import type { CheckedFence, IsolationLevel } from './fence.js';

export const COMMIT: Statement = { text: 'COMMIT' };

export function begin(isolation: IsolationLevel): Statement {
  return { text: `BEGIN ISOLATION LEVEL ${isolation} READ WRITE` };
}

/**
 * Begins a transaction and presents the token.
 *
 * @param columns further columns of the last statement, which begin with a comma
 */
export function opening(fence: CheckedFence, columns = ''): Statement[] {
  const opened = [begin(fence.isolation), present(fence, fence.writeId, columns)];
  // REPEATABLE READ and SERIALIZABLE keep the snapshot of their first statement. If that statement
  // waits for an earlier holder, the snapshot lacks the holder's last writes. So a claim, in a
  // transaction of its own, does the waiting before.
  return fence.isolation === 'read committed' ? opened : [...claiming(fence, undefined), ...opened];
}

/** Presents the token in a transaction of its own. */
export function claiming(fence: CheckedFence, writeId: string | undefined): Statement[] {
  return [begin('read committed'), present(fence, writeId), COMMIT];
}

function present(fence: CheckedFence, writeId: string | undefined, columns = ''): Statement {
  return {
    text: `SELECT fenced.present(${PARAMETERS})${columns}`,
    values: presentedValues(fence, writeId),
  };
}

/**
 * Each parameter is text and occurs once, in order, because drivers and ORMs differ in all other
 * types.
 */
const PARAMETERS = ['text[]', 'int8', 'int4', 'uuid']
  .map((type, at) => `$${at + 1}::pg_catalog.text::pg_catalog.${type}`)
  .join(', ');

function presentedValues(fence: CheckedFence, writeId: string | undefined): (string | null)[] {
  const names = fence.resources.map((name) => `"${name.replace(/["\\]/g, '\\$&')}"`);
  return [`{${names}}`, String(fence.token), String(fence.limitMs()), writeId ?? null];
}

/** The statement that presents a token in a transaction of another driver. */
export interface PresentingStatement {
  readonly text: string;
  readonly values: (string | null)[];
}

/** Makes that statement. Its answer is text, as its parameters are. */
export function presentingStatement(fence: CheckedFence): PresentingStatement {
  return {
    text: `SELECT fenced.present(${PARAMETERS}, true)::pg_catalog.text AS presented`,
    values: presentedValues(fence, fence.writeId),
  };
}

/** Fails unless the transaction is still the one with this id. */
export function confirming(transactionId: string): Statement {
  return { text: 'SELECT fenced.confirm($1)', values: [transactionId] };
}

const COMMENTS = String.raw`(?:\s+|--[^\n\r]*(?:[\n\r]|$)|/\*(?:[^*]|\*(?!/))*\*/)*`;

/** Statements that would end the transaction. `ROLLBACK TO` a savepoint does not. */
const ENDS_TRANSACTION = new RegExp(
  String.raw`^${COMMENTS}(begin|start\s+transaction|commit|end|abort|prepare\s+transaction|rollback(?!\s+((work|transaction)\s+)?to\b))\b`,
  'i',
);

const COPIES = new RegExp(`^${COMMENTS}copy\\b`, 'i');

/** @throws {InvalidArgumentError} not a string with a list of values, or it ends the transaction */
export function checkStatement(text: string, values: readonly unknown[] | undefined): void {
  // pg also takes an object with the text in it, which would escape the check below.
  if (typeof text !== 'string')
    throw new InvalidArgumentError(`the statement must be a string value=${shown(text)}`);
  if (values !== undefined && !Array.isArray(values))
    throw new InvalidArgumentError(`values must be an array value=${shown(values)}`);
  if (ENDS_TRANSACTION.test(text))
    throw new InvalidArgumentError(
      `a fenced statement must not begin or end a transaction: return to commit, throw to roll back statement=${text.slice(0, 40)}`,
    );
}

/** @throws {InvalidArgumentError} COPY, whose data would take the place of the next statements */
export function checkNoCopy(text: string): void {
  if (COPIES.test(text))
    throw new InvalidArgumentError('COPY needs the client of a transaction, and pg-copy-streams');
}

/**
 * True for a text of several statements. True also for a comment within a comment, because
 * `checkStatement` then does not find the first word of the statement.
 */
export function mayEndTransaction(text: string, values: readonly unknown[] | undefined): boolean {
  return (!values?.length && /;\s*\S/.test(text)) || /\/\*[\s\S]*\/\*/.test(text);
}
