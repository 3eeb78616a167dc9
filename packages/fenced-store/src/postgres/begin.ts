import type { CheckedFence } from './fence.js';
import type { Session } from './session.js';
import { type Entered, opening } from './statements.js';

/** A transaction that holds the ratchet. */
export interface Begun {
  /** The server's name for it. */
  readonly id: string;
  /** Whether its time limit goes on by itself, as in PostgreSQL 17 and later; else it is for each statement and each pause. */
  readonly isLimited: boolean;
}

/** Begins a transaction and presents the token. Where it fails, the transaction is still to be rolled back. */
export async function begin(session: Session, fence: CheckedFence): Promise<Begun> {
  const results = await session.batchFromStart<Entered>(opening(fence));
  const [id = '', isLimited] = results.at(-1)?.rows[0] ?? [];
  return { id, isLimited: isLimited === 'true' };
}
