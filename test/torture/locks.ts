import { Redlock } from '@fenced/lock';
import { Redis } from 'ioredis';
import Redlock5 from 'redlock-5';

/** The TTL of every lease. */
export const TTL_MS = 300;

export interface Held {
  readonly token: bigint;
  /** Milliseconds for which the holder may still rely on it. */
  remainingMs(): number;
  extend(): Promise<void>;
  release(): Promise<void>;
}

/** @throws if the lock is held */
export type Acquire = (resource: string, waitMs: number) => Promise<Held>;

export interface NodeAddress {
  readonly name: string;
  readonly port: number;
}

/** Opens a lock service. `redlock5` is a foreign one, with INCR on the first node as its token. */
export function openLock(subject: string, addresses: readonly NodeAddress[]): Acquire {
  const nodes = addresses.map(({ name, port }) => {
    const client = new Redis(port, { retryStrategy: () => 20 });
    client.on('error', () => {});
    return { name, client };
  });
  return subject === 'redlock5' ? foreign(nodes.map(({ client }) => client)) : ours(nodes);
}

function ours(nodes: readonly { readonly name: string; readonly client: Redis }[]): Acquire {
  const redlock = new Redlock({ nodes, maxTtlMs: TTL_MS });
  return async (resource, waitMs) => {
    const lease = await redlock.acquire(resource, { ttlMs: TTL_MS, waitMs });
    return {
      token: lease.token,
      remainingMs: () => lease.remainingMs(),
      extend: () => lease.extend(TTL_MS),
      release: async () => void (await lease.release()),
    };
  };
}

/** redlock 5 issues no tokens. Its users are advised to count on one node. */
function foreign(clients: readonly Redis[]): Acquire {
  const redlock = new Redlock5(clients, { retryCount: 0, retryDelay: 50, retryJitter: 20 });
  redlock.on('error', () => {});
  return async (resource) => {
    const endMs = performance.now() + TTL_MS;
    const lock = await redlock.acquire([resource], TTL_MS);
    const count = await clients[0]?.incr(`counter ${resource}`);
    return {
      token: BigInt(count ?? 0),
      remainingMs: () => Math.max(0, endMs - performance.now()),
      extend: async () => {},
      release: async () => void (await lock.release()),
    };
  };
}
