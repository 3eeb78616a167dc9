import { StaleTokenError } from './errors.js';
import type { Stored } from './stored.js';

/**
 * Refuses a token that is lower than the token of the object.
 *
 * Invariant: a write upon `base` presents a token that is not lower than the token of `base`. The
 * write's condition names the version of `base`, and no other write shares that version. So the
 * token that is compared here is the token that the write replaces.
 *
 * @throws {StaleTokenError}
 */
export function refuseStale(resource: string, presented: bigint, base: Stored | null): void {
  if (base !== null && base.token > presented)
    throw new StaleTokenError({ resource, presented, highest: base.token });
}
