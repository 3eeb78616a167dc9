import { InvalidArgumentError } from '../core/errors.js';
import { shown } from '../core/shown.js';
import type { OurStatement } from './batch.js';
import type { CheckedFence, IsolationLevel } from './fence.js';

function named(name: string, text: string): OurStatement {
  return { isOurs: true, name, text };
}

export const COMMIT: OurStatement = named('fenced_commit', 'COMMIT');

/** Its answer says that the server came as far as to what follows it. */
export const NOTHING: OurStatement = named('fenced_nothing', '');

export const BEGIN: Record<IsolationLevel, OurStatement> = {
  'read committed': begin('read committed'),
  'repeatable read': begin('repeatable read'),
  serializable: begin('serializable'),
};

function begin(isolation: IsolationLevel): OurStatement {
  const name = `fenced_begin_${isolation.replace(' ', '_')}`;
  return named(name, `BEGIN ISOLATION LEVEL ${isolation} READ WRITE`);
}

/** The answer to `enter`. */
export type Entered = readonly [
  /** The server's name for the transaction. */
  id?: string,
  /** `true` where the server limits whole transactions, as PostgreSQL 17 and later do; else it limits each statement and each pause. */
  isLimited?: string,
];

const ENTER = `SELECT
  fenced.enter($1, $2, $3, $4, $5, $6) AS id,
  (pg_catalog.current_setting('server_version_num')::integer OPERATOR(pg_catalog.>=) 170000)::pg_catalog.text AS is_limited`;

/**
 * Presents any token, and notes the write where that has an id.
 *
 * @param implicit whether no BEGIN comes before it, so that the session's own defaults have to fit
 */
export function enter(fence: CheckedFence, writeId?: string, implicit = false): OurStatement {
  const values = [...entering(fence, writeId), String(implicit)];
  return { isOurs: true, name: 'fenced_enter_4', text: ENTER, values };
}

/** The first five arguments of `fenced.enter`. */
function entering(fence: CheckedFence, writeId: string | undefined): (string | null)[] {
  const { resources, token } = fence;
  return [
    `{${resources.map((name) => `"${name.replace(/["\\]/g, '\\$&')}"`)}}`,
    String(token),
    String(fence.limitMs()),
    presentedBy(resources, token),
    writeId ?? null,
  ];
}

/**
 * Presents a token in a transaction of another driver. Each parameter is text and occurs once, in order, and so is the
 * answer, because drivers and ORMs differ in the other types. The transaction must be READ COMMITTED, READ WRITE.
 */
export function presentation(fence: CheckedFence): { text: string; values: (string | null)[] } {
  const types = ['text[]', 'int8', 'int4', 'text', 'uuid'];
  const parameters = types.map((type, at) => `$${at + 1}::pg_catalog.text::pg_catalog.${type}`);
  return {
    text: `SELECT fenced.enter(${parameters.join(', ')}, true)::pg_catalog.text AS presented`,
    values: entering(fence, fence.writeId),
  };
}

/** The tokens as `fenced.present` sets them, behind the time when the transaction began. */
function presentedBy(resources: readonly string[], token: bigint): string {
  return `{${resources.map((name) => `${JSON.stringify(name)}:${token}`)}}`;
}

export type Values = NonNullable<OurStatement['values']>;

/** Writes a document. Gives its new version; null where another one is there than expected. */
export function put(values: Values): OurStatement {
  const text = 'SELECT fenced.put_record($1, $2, $3, $4, $5, $6)';
  return { isOurs: true, name: 'fenced_put_record_2', text, values };
}

/** Presents the token in a transaction of its own. */
export function claiming(fence: CheckedFence, writeId?: string): OurStatement[] {
  return [BEGIN['read committed'], enter(fence, writeId), COMMIT];
}

/**
 * Begins a transaction and presents the token.
 *
 * Where it has one snapshot for all its statements, that is taken before its turn: what another holder wrote while we
 * waited would be missing from it. After a claim there is nobody left to wait for.
 */
export function opening(fence: CheckedFence): OurStatement[] {
  const { isolation } = fence;
  const begun = [BEGIN[isolation], enter(fence, fence.writeId)];
  return isolation === 'read committed' ? begun : [...claiming(fence), ...begun];
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

/** Which end it came to. */
export function statusOf(transactionId: string): OurStatement {
  const text = 'SELECT pg_catalog.pg_xact_status($1)';
  return { isOurs: true, text, values: [transactionId] };
}

const COMMENTS = String.raw`(?:\s+|--[^\n\r]*(?:[\n\r]|$)|/\*(?:[^*]|\*(?!/))*\*/)*`;

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

/** Several statements, or a comment within a comment, which hides the first word from `checkStatement`. */
export function mayEndTransaction(text: string, values: readonly unknown[] | undefined): boolean {
  return (!values?.length && /;\s*\S/.test(text)) || /\/\*[\s\S]*\/\*/.test(text);
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
