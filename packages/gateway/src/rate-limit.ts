import { isIPv6 } from 'node:net';
import { checkWholeNumber } from '@fenced/store/internal';

export interface RateLimit {
  /** Counts a request of somebody, unless that would be one too many. */
  take(name: string): { readonly ok: true } | { readonly ok: false; readonly retryAfterMs: number };
}

export interface RateLimitOptions {
  /** How many requests of one name are let through in the long run. From 1 to 1 000 000. */
  readonly perSecond: number;
  /** How many more may come at once after a pause. From 1 to 1 000 000. */
  readonly burst: number;
  /** How many names are remembered. From 1 to 10 000 000. @default 100_000 */
  readonly namesMax?: number;
}

/**
 * Lets through what fits the rate, for each name by itself (the generic cell rate algorithm of ITU-T I.371, "GCRA").
 *
 * A name that has used up nothing is not remembered, so memory grows only with those that are busy now. Where these are more
 * than `namesMax`, newcomers share the rate of one name: neither grows the memory, nor does anybody get a new allowance by
 * pushing others out.
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
  // When each name's allowance is full again, the longest untouched name first.
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

/** No caller can have this name: it is no name of a key, and no address. */
const NEWCOMERS = '';

/**
 * The name to count an address under: one customer of a provider has at least a /64 of IPv6 addresses (RFC 6177), so that
 * these are counted as one; an IPv4 address in the clothes of IPv6 is itself.
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
