import type { CheckedFence } from './fence.js';
import type { Session } from './session.js';
import { BEGIN, type Entered, opening } from './statements.js';

/** A transaction that holds the ratchet. */
export interface Begun {
  /** The server's name for it. */
  readonly id: string;
  /** Whether its time limit goes on by itself, as in PostgreSQL 17 and later; else it is for each statement and each pause. */
  readonly isLimited: boolean;
}

/** Begins a transaction and presents the token. Where it fails, the transaction is still to be rolled back. */
export async function begin(session: Session, fence: CheckedFence): Promise<Begun> {
  const { shortcuts, state } = session;
  const shorter = shortcuts.statementsFor(fence, state, 'explicit');
  if (shorter) {
    try {
      const statements = [BEGIN['read committed'], ...shorter];
      const results = await session.batchFromStart<readonly [id: string]>(statements);
      return { id: results.at(-1)?.rows[0]?.[0] ?? '', isLimited: true };
    } catch (error) {
      if (!shortcuts.unlearn(fence, state, error)) throw error;
      await session.query('ROLLBACK');
      fence.signal?.throwIfAborted();
    }
  }
  const results = await session.batchFromStart<Entered>(opening(fence));
  const entered = results.at(-1)?.rows[0] ?? [];
  shortcuts.learn(fence, state, entered);
  const [, id = '', isLimited] = entered;
  return { id, isLimited: isLimited === 'true' };
}
