import type { TheirStatement } from './batch.js';
import { isServerError, type PostgresResult } from './client.js';
import { failureOf, OTHER_KIND } from './failures.js';
import type { CheckedFence } from './fence.js';
import type { Session } from './session.js';
import { COMMIT, cannotCommit, claiming, enter, opening } from './statements.js';

/** A statement and the token before it: one transaction, in one round trip. */
export async function runQuery<Row>(
  session: Session,
  fence: CheckedFence,
  statement: TheirStatement,
): Promise<PostgresResult<Row>> {
  const { state } = session;
  const isImplicit =
    fence.isolation === 'read committed' &&
    state.sender.canBatch &&
    cannotCommit(statement.text) &&
    !state.needsBegin;
  const before = isImplicit ? [enter(fence, fence.writeId, true)] : opening(fence);
  const named = { ...statement, name: state.names.nameFor(statement.text) };
  const statements = [...before, named, ...(isImplicit ? [] : [COMMIT])];
  try {
    // The server ends each of two waits after the limit: the one for the resource, and the statement itself.
    const results = await session.batchFromStart<Row>(statements, 2 * fence.limitMs());
    const result = results[before.length];
    // Invariant: an answer to all of a batch, up to its Sync, means that it is committed.
    if (result && (isImplicit || results.at(-1)?.command === 'COMMIT')) return result;
    throw new Error('COMMIT was not answered with COMMIT');
  } catch (error) {
    const isOurs = session.progress.answered < before.length;
    const isOther = isImplicit && isServerError(error) && error.code === OTHER_KIND;
    if (isOurs && isOther) {
      state.needsBegin = true;
      fence.signal?.throwIfAborted();
      return runQuery(session, fence, statement);
    }
    throw await failureOf(error, session, fence, {
      ours: before.length,
      commitAt: statements.length - 1,
      // There is no transaction to be rolled back where none was begun, only an answer to be waited for.
      undo: isImplicit ? 'SELECT' : 'ROLLBACK',
    });
  }
}

/** The token in a transaction of its own: what lower tokens wrote is committed then, and none of them can write any more. */
export async function runClaim(session: Session, fence: CheckedFence): Promise<void> {
  try {
    await session.batchFromStart(claiming(fence, fence.writeId));
  } catch (error) {
    throw await failureOf(error, session, fence, { ours: 3, commitAt: 2 });
  }
}
