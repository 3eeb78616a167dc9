import { InvalidArgumentError } from '../core/errors.js';
import { shown } from '../core/shown.js';
import type { OurStatement } from './batch.js';
import type { CheckedFence, IsolationLevel } from './fence.js';

export const COMMIT: OurStatement = { isOurs: true, name: 'fenced_commit', text: 'COMMIT' };

/** Its answer says that the server came as far as to what follows it. */
export const NOTHING: OurStatement = { isOurs: true, name: 'fenced_nothing', text: '' };

function begin(isolation: IsolationLevel): OurStatement {
  return {
    isOurs: true,
    name: `fenced_begin_${isolation.replace(' ', '_')}`,
    text: `BEGIN ISOLATION LEVEL ${isolation} READ WRITE`,
  };
}

/**
 * Gives the server's name for the transaction, and the server's version.
 *
 * @param implicit whether no BEGIN comes before it, so that the session's own defaults have to fit
 */
export function enter(fence: CheckedFence, writeId?: string, implicit = false): OurStatement {
  const { resources } = fence;
  const token = String(fence.token);
  const presented = resources.map((name) => `${JSON.stringify(name)}:${token}`);
  return {
    isOurs: true,
    name: 'fenced_enter_2',
    text: "SELECT fenced.enter($1, $2, $3, $4, $5, $6), current_setting('server_version_num')",
    values: [
      `{${resources.map((name) => `"${name.replace(/["\\]/g, '\\$&')}"`)}}`,
      token,
      String(fence.limitMs()),
      `{${presented}}`,
      writeId ?? null,
      String(implicit),
    ],
  };
}

/** Presents the token in a transaction of its own. */
export function claiming(fence: CheckedFence, writeId?: string): OurStatement[] {
  return [begin('read committed'), enter(fence, writeId), COMMIT];
}

/**
 * Begins a transaction and presents the token.
 *
 * Where it has one snapshot for all its statements, that is taken before its turn: what another holder wrote while we
 * waited would be missing from it. After a claim there is nobody left to wait for.
 */
export function opening(fence: CheckedFence): OurStatement[] {
  const { isolation } = fence;
  const claim = isolation === 'read committed' ? [] : claiming(fence);
  return [...claim, begin(isolation), enter(fence, fence.writeId)];
}

/**
 * Commits where this is still the transaction that the server named so. Without names of statements: where the server did not
 * know one, all would have to be run again.
 */
export function confirmed(transactionId: string): OurStatement[] {
  const confirm = 'SELECT fenced.confirm($1)';
  return [
    { isOurs: true, text: confirm, values: [transactionId] },
    { isOurs: true, text: COMMIT.text },
  ];
}

const COMMENTS = String.raw`(?:\s+|--[^\n]*(?:\n|$)|/\*(?:[^*]|\*(?!/))*\*/)*`;

/** Statements that would end the transaction, and the hold on the ratchet with it. `ROLLBACK TO` a savepoint may pass. */
const ENDS_TRANSACTION = new RegExp(
  String.raw`^${COMMENTS}(begin|start\s+transaction|commit|end|abort|prepare\s+transaction|rollback(?!\s+((work|transaction)\s+)?to\b))\b`,
  'i',
);

/**
 * Statements that cannot commit by themselves, as procedures and DO can outside of a transaction block. (Functions cannot.)
 * A batch without BEGIN is one transaction for them.
 */
const CANNOT_COMMIT = new RegExp(
  `^${COMMENTS}(insert|update|delete|merge|select|with|values)\\b`,
  'i',
);

const COPIES = new RegExp(`^${COMMENTS}copy\\b`, 'i');

/** @throws {InvalidArgumentError} where the server would go on to speak of something else than what follows in the message. */
export function checkSingle(text: string): void {
  if (COPIES.test(text))
    throw new InvalidArgumentError('COPY needs the client of a transaction, and pg-copy-streams');
}

export function cannotCommit(text: string): boolean {
  return CANNOT_COMMIT.test(text);
}

/** @throws {InvalidArgumentError} where it is not text with a list of values, or would end the transaction. */
export function checkStatement(text: string, values: readonly unknown[] | undefined): void {
  // pg also takes an object with the text in it, which would pass the check below.
  if (typeof text !== 'string')
    throw new InvalidArgumentError(`the statement must be a string value=${shown(text)}`);
  if (values !== undefined && !Array.isArray(values))
    throw new InvalidArgumentError(`values must be an array value=${shown(values)}`);
  if (ENDS_TRANSACTION.test(text))
    throw new InvalidArgumentError(
      `a fenced statement must not begin or end a transaction: return to commit, throw to roll back statement=${text.slice(0, 40)}`,
    );
}
