/**
 * Writers for storage that reject stale fencing tokens.
 *
 * The one rule: **a write with token `t` is applied only if `t` is at least the highest token ever
 * applied to that resource. Applying it makes `t` the highest, in the same atomic step.** An equal
 * token is the same holder writing again. Tokens may come from any lock service whose tokens grow.
 *
 * Not promised: that two clients never *believe* they hold the lock, which no lock service can
 * promise. Nor anything about writers that go around these libraries.
 *
 * `@fenced/store/s3` and `@fenced/store/postgres` have the writers. This entry has what they share.
 * Source: Kleppmann, "How to do distributed locking", section "Making the lock safe with fencing".
 */
import './node-version.js';

export * from './core/errors.js';
export { parseToken, TOKEN_MAX, type TokenLike } from './core/token.js';
export type { StoreEvent, StoreEvents, WriteEvent } from './events.js';
