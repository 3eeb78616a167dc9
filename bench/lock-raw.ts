import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import type { RedisClientType as NodeRedis } from 'redis';
import type { Acquire, LockSettings } from './lock-subject.ts';

const IF_OWNER = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`;

interface RawNode {
  set(resource: string, owner: string, ttlMs: number): Promise<unknown>;
  releaseIfOwner(resource: string, owner: string): Promise<unknown>;
}

/** The least Redlock over ioredis: no token, no deadline, no time limit. A majority decides. */
export async function openRaw(clients: readonly Redis[], settings: LockSettings): Promise<Acquire> {
  const nodes = clients.map(async (client): Promise<RawNode> => {
    const sha1 = String(await client.script('LOAD', IF_OWNER));
    return {
      set: (resource, owner, ttlMs) => client.set(resource, owner, 'PX', ttlMs, 'NX'),
      releaseIfOwner: (resource, owner) => client.evalsha(sha1, 1, resource, owner),
    };
  });
  return rawOver(await Promise.all(nodes), settings);
}

/** Does the same over node-redis. */
export async function openRawNodeRedis(
  clients: readonly NodeRedis[],
  settings: LockSettings,
): Promise<Acquire> {
  const nodes = clients.map(async (client): Promise<RawNode> => {
    const sha1 = await client.scriptLoad(IF_OWNER);
    return {
      set: (resource, owner, ttlMs) =>
        client.sendCommand(['SET', resource, owner, 'PX', `${ttlMs}`, 'NX']),
      releaseIfOwner: (resource, owner) =>
        client.sendCommand(['EVALSHA', sha1, '1', resource, owner]),
    };
  });
  return rawOver(await Promise.all(nodes), settings);
}

function rawOver(nodes: readonly RawNode[], { ttlMs, retryDelayMs }: LockSettings): Acquire {
  return async (resource) => {
    const owner = newOwner();
    const release = (): Promise<boolean> =>
      majority(nodes, async (node) => (await node.releaseIfOwner(resource, owner)) === 1);
    for (;;) {
      const isHeld = await majority(
        nodes,
        async (node) => (await node.set(resource, owner, ttlMs)) === 'OK',
      );
      if (isHeld) return release;
      await release();
      await sleep(retryDelayMs * (0.5 + Math.random()));
    }
  };
}

export function newOwner(): string {
  return randomBytes(20).toString('hex');
}

/** Resolves to the answer of a majority as soon as it is known. A failure counts as no. */
export function majority<Node>(
  nodes: readonly Node[],
  ask: (node: Node) => Promise<boolean>,
): Promise<boolean> {
  return new Promise((resolve) => {
    const quorum = Math.floor(nodes.length / 2) + 1;
    let yes = 0;
    let no = 0;
    const count = (vote: boolean): void => {
      if (vote) yes += 1;
      else no += 1;
      if (yes === quorum) resolve(true);
      else if (no > nodes.length - quorum) resolve(false);
    };
    for (const node of nodes) {
      ask(node).then(count, () => count(false));
    }
  });
}
