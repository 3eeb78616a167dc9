import type { Statement } from './batch.js';
import type { PostgresResult } from './client.js';
import { failureOf } from './failures.js';
import type { CheckedFence } from './fence.js';
import type { Session } from './session.js';
import { COMMIT, claiming, opening } from './statements.js';

/** Runs one statement in a fenced transaction, in one round trip. */
export async function runQuery<Row>(
  session: Session,
  fence: CheckedFence,
  statement: Statement,
): Promise<PostgresResult<Row>> {
  const before = opening(fence);
  const statements = [...before, statement, COMMIT];
  const results = await runBatch<Row>(session, fence, statements, before.length);
  return results[before.length] as PostgresResult<Row>;
}

/** Presents the token and commits. From then on, no write with a lower token can commit. */
export async function runClaim(session: Session, fence: CheckedFence): Promise<void> {
  await runBatch(session, fence, claiming(fence, fence.writeId));
}

/** @param ours number of this library's statements before the caller's */
async function runBatch<Row>(
  session: Session,
  fence: CheckedFence,
  statements: readonly Statement[],
  ours = statements.length,
): Promise<PostgresResult<Row>[]> {
  try {
    // The server limits two waits: the one for the resource, and the statement itself.
    const results = await session.batch<Row>(statements, 2 * fence.limitMs());
    // Invariant: only the tag COMMIT says that something was committed.
    if (results.at(-1)?.command === 'COMMIT') return results;
    throw new Error('COMMIT was not answered with COMMIT');
  } catch (error) {
    throw await failureOf(error, session, fence, { ours, commitAt: statements.length - 1 });
  }
}
