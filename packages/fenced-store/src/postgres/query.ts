import type { TheirStatement } from './batch.js';
import { isServerError, type PostgresClient, type PostgresResult } from './client.js';
import { failureOf } from './failures.js';
import type { CheckedFence } from './fence.js';
import { nameFor } from './names.js';
import type { Session } from './session.js';
import { COMMIT, cannotCommit, claiming, enter, opening } from './statements.js';

/** SQLSTATE of `fenced.enter`: the session's defaults are not READ COMMITTED, READ WRITE. */
const OTHER_DEFAULTS = 'UF004';

/** Connections that need a BEGIN which says so. */
const needBegin = new WeakSet<PostgresClient>();

/** A statement and the token before it: one transaction, in one round trip. */
export async function runQuery<Row>(
  session: Session,
  fence: CheckedFence,
  writeId: string,
  statement: TheirStatement,
): Promise<PostgresResult<Row>> {
  const isImplicit =
    fence.isolation === 'read committed' &&
    session.canBatch &&
    cannotCommit(statement.text) &&
    !needBegin.has(session.client);
  const before = isImplicit ? [enter(fence, fence.writeId, true)] : opening(fence);
  const named = { ...statement, name: nameFor(session.client, statement.text) };
  const statements = [...before, named, ...(isImplicit ? [] : [COMMIT])];
  try {
    // The server ends each of two waits after the limit: the one for the resource, and the statement itself.
    const results = await session.batchFromStart<Row>(statements, 2 * fence.limitMs());
    const [result] = results.slice(before.length);
    // Invariant: an answer to all of a batch, up to its Sync, means that it is committed.
    if (result && (isImplicit || results.at(-1)?.command === 'COMMIT')) return result;
    throw new Error('COMMIT was not answered with COMMIT');
  } catch (error) {
    if (isServerError(error) && error.code === OTHER_DEFAULTS) {
      needBegin.add(session.client);
      return runQuery(session, fence, writeId, statement);
    }
    throw await failureOf(error, session, fence, {
      writeId,
      ours: before.length,
      commitAt: statements.length - 1,
      // There is no transaction to be rolled back where none was begun, only an answer to be waited for.
      undo: isImplicit ? 'SELECT' : 'ROLLBACK',
    });
  }
}

/** The token in a transaction of its own: what lower tokens wrote is committed then, and none of them can write any more. */
export async function runClaim(
  session: Session,
  fence: CheckedFence,
  writeId: string,
): Promise<void> {
  const statements = claiming(fence, fence.writeId);
  try {
    await session.batchFromStart(statements);
  } catch (error) {
    throw await failureOf(error, session, fence, { writeId, ours: 3, commitAt: 2 });
  }
}
