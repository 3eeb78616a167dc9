/**
 * Writers for storage that several holders of a lock may reach, one of them too late.
 *
 * The rule, the only one: **a write that presents token `t` is applied only if `t` is at least the highest token ever
 * applied to that resource, and applying it makes `t` the highest, in one atomic step of the storage itself.**
 * Equal tokens are the same holder writing again. Tokens may come from any lock service, as long as they grow.
 *
 * Not promised: that two clients never *believe* they hold the lock (no lock service can promise that), and anything about
 * writers that go round these libraries to the same bucket or table.
 *
 * `@fenced/store/s3` and `@fenced/store/postgres` hold the writers; this entry has what they share.
 * Source: Kleppmann, "How to do distributed locking", section "Making the lock safe with fencing".
 */
import './node-version.js';

export * from './core/errors.js';
export { parseToken, TOKEN_MAX, type TokenLike } from './core/token.js';
export type { StoreEvent, StoreEvents, WriteEvent } from './events.js';
