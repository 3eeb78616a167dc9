import { Redlock } from '@fenced/lock';
import type { Redis } from 'ioredis';
import type { LockAddress } from '../job.js';
import { counterKey, lockKey, NaiveRedlock } from '../naive/redlock.js';
import { counterOnOneNode, highestCounter } from '../naive/tokens.js';
import { fencedLock } from './fenced.js';
import { gatewayLock } from './gateway.js';
import type { Lock } from './lock.js';
import { openOther } from './other.js';

interface Node {
  readonly name: string;
  readonly client: Redis;
}

export function openLock(
  { kind, keyPrefix, firstToken, gateway, service }: LockAddress,
  nodes: readonly Node[],
): Lock {
  if (gateway !== undefined) return gatewayLock(gateway);
  const first = firstToken === null ? {} : { firstToken: BigInt(firstToken) };
  if (service) return fencedLock(openOther(service, keyPrefix, first));
  switch (kind) {
    case 'fenced':
      return fencedLock(new Redlock({ nodes, keyPrefix, ...first }));
    case 'naive Redlock':
      return new NaiveRedlock(nodes, keyPrefix);
    case 'elapsed time ignored':
      return new NaiveRedlock(nodes, keyPrefix, { ignoresElapsedTime: true });
    case 'INCR on one node':
      return new NaiveRedlock(nodes, keyPrefix, { tokens: counterOnOneNode });
    case 'highest INCR':
      return new NaiveRedlock(nodes, keyPrefix, { tokens: highestCounter });
  }
}

/** A lease that a node holds by its own clock. */
export interface NodeLease {
  readonly owner: string;
  /** Null if the lock issues no tokens. */
  readonly token: string | null;
}

/** The record of a taken lock: its end in milliseconds, its token, its origin and its owner. */
const TAKEN = /^(\d{15})[ +](\d{16}).(.+)$/s;

export async function leaseAt(
  { kind, keyPrefix }: LockAddress,
  node: Redis,
  resource: string,
): Promise<NodeLease | null> {
  if (kind !== 'fenced') {
    const owner = await node.get(lockKey(keyPrefix, resource));
    return owner === null ? null : { owner, token: null };
  }
  const record = await node.hget(`${keyPrefix}node`, `${keyPrefix}queue:${resource}`);
  const [, ends, token = '', owner] = TAKEN.exec(record ?? '') ?? [];
  const [seconds = 0, microseconds = 0] = await node.time();
  const nowMs = Number(seconds) * 1_000 + Math.floor(Number(microseconds) / 1_000);
  if (owner === undefined || Number(ends) < nowMs) return null;
  return { owner, token: `${BigInt(token)}` };
}

/** Brings the nodes into a state of long use: the resource's next token is `nextToken`. */
export async function useBefore(
  { kind, keyPrefix }: LockAddress,
  nodes: readonly Node[],
  resource: string,
  nextToken: number,
): Promise<void> {
  if (kind !== 'fenced') {
    const counter = counterKey(keyPrefix, resource);
    await Promise.all(nodes.map(({ client }) => client.set(counter, nextToken - 1)));
    return;
  }
  await using redlock = new Redlock({ nodes, keyPrefix, firstToken: BigInt(nextToken - 1) });
  await using _ = await redlock.acquire('another', { ttlMs: 1_000, waitMs: 10_000 });
}
