import { isIPv6 } from 'node:net';
import { checkWholeNumber } from '@fenced/store/internal';

export interface RateLimit {
  /** Counts a request under a name, unless it exceeds the rate. */
  take(name: string): { readonly ok: true } | { readonly ok: false; readonly retryAfterMs: number };
}

export interface RateLimitOptions {
  /** Requests of one name per second in the long run. From 1 to 1 000 000. */
  readonly perSecond: number;
  /** The largest burst after a pause. From 1 to 1 000 000. */
  readonly burst: number;
  /** The largest number of names in memory. From 1 to 10 000 000. @default 100_000 */
  readonly namesMax?: number;
}

/**
 * Limits the rate of each name (the generic cell rate algorithm of ITU-T I.371, "GCRA").
 *
 * A name whose allowance is full is forgotten, so memory grows only with the busy names. Beyond
 * `namesMax` of them, new names share the rate of one name. So memory is bounded, and no caller
 * gets a new allowance by inventing names.
 *
 * @param nowMs monotonic milliseconds
 * @throws {InvalidArgumentError}
 */
export function createRateLimit(options: RateLimitOptions, nowMs: () => number): RateLimit {
  const { perSecond, burst, namesMax = 100_000 } = options;
  checkWholeNumber('perSecond', perSecond, 1, 1_000_000);
  checkWholeNumber('burst', burst, 1, 1_000_000);
  checkWholeNumber('namesMax', namesMax, 1, 10_000_000);
  const intervalMs = 1_000 / perSecond;
  const toleranceMs = intervalMs * (burst - 1);
  // The time at which each name's allowance is full again. The name that was idle longest comes
  // first.
  const fullAtMs = new Map<string, number>();

  const forgetIdle = (now: number): void => {
    for (const [name, fullAt] of fullAtMs) {
      if (fullAt > now) return;
      fullAtMs.delete(name);
    }
  };

  return {
    take: (name) => {
      const now = nowMs();
      forgetIdle(now);
      const isKnown = fullAtMs.has(name);
      const counted = isKnown || fullAtMs.size < namesMax ? name : NEWCOMERS;
      const fullAt = Math.max(now, fullAtMs.get(counted) ?? now);
      const retryAfterMs = fullAt - toleranceMs - now;
      if (retryAfterMs > 0) return { ok: false, retryAfterMs: Math.ceil(retryAfterMs) };
      fullAtMs.delete(counted);
      fullAtMs.set(counted, fullAt + intervalMs);
      return { ok: true };
    },
  };
}

/** A name that no caller can have: it is neither the name of a key nor an address. */
const NEWCOMERS = '';

/**
 * The name under which an address is counted. One customer of a provider has at least a /64 of IPv6
 * addresses (RFC 6177), so these have one name. An IPv4-mapped address has the name of its IPv4
 * address.
 */
export function addressName(address: string): string {
  const [, mapped] = /^::ffff:([0-9.]+)$/i.exec(address) ?? [];
  if (mapped !== undefined) return mapped;
  if (!isIPv6(address)) return address;
  const [head = '', tail] = address.split('%')[0]?.split('::') ?? [];
  const groups = (text: string): string[] => text.split(':').filter((group) => group !== '');
  const before = groups(head);
  const behind = tail === undefined ? [] : groups(tail);
  const zeros = Array.from({ length: Math.max(0, 8 - before.length - behind.length) }, () => '0');
  const network = [...before, ...(tail === undefined ? [] : zeros), ...behind].slice(0, 4);
  return `${network.map((group) => Number.parseInt(group, 16).toString(16)).join(':')}::/64`;
}
