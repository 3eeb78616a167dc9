import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redlock, type RedlockConfig } from '@fenced/lock';
import type { LocalRedisNode } from '@fenced/testbed';
import { Redis, type RedisOptions } from 'ioredis';

/** The content of a node's own hash; see node.lua. */
interface Memory {
  readonly isVoting: boolean;
  /** True if some client has begun to readmit the node, or has readmitted it. */
  readonly hasPromised: boolean;
  readonly incarnation: string;
  readonly generation: number;
  readonly floor: bigint;
  readonly longestMs: number;
  /**
   * Milliseconds of the recovery wait so far, by the node's own clock; negative if there was none.
   */
  readonly waitedMs: number;
}

/**
 * Clients of nodes n0, n1, n2 … under a key prefix of their own, and access to the nodes' memory.
 * Its end closes all connections.
 */
export class Clients implements Disposable {
  readonly keyPrefix: string = `{${randomUUID()}}:`;
  readonly #connections: Redis[] = [];
  readonly #locks: Redlock[] = [];

  connect(port: number, user: Pick<RedisOptions, 'username' | 'password'> = {}): Redis {
    const client = new Redis(port, { retryStrategy: () => 20, ...user });
    client.on('error', () => {});
    this.#connections.push(client);
    return client;
  }

  /** @param isDurable the `durable` setting of all nodes */
  lock(
    servers: readonly { readonly port: number }[],
    {
      isDurable = false,
      ...config
    }: Partial<RedlockConfig> & { readonly isDurable?: boolean } = {},
  ): Redlock {
    const nodes = servers.map(({ port }, at) => ({
      name: `n${at}`,
      client: this.connect(port),
      durable: isDurable,
    }));
    const lock = new Redlock({ nodes, keyPrefix: this.keyPrefix, ...config });
    this.#locks.push(lock);
    return lock;
  }

  async memory(server: Pick<LocalRedisNode, 'port'>): Promise<Memory> {
    const client = this.connect(server.port);
    const [
      own,
      { incarnation = '', history, generation, floor, longest, recovery_since, roster },
      [seconds, microseconds],
    ] = await Promise.all([
      ownHistory(client),
      client.hgetall(`${this.keyPrefix}node`),
      client.time(),
    ]);
    client.disconnect();
    return {
      isVoting: history === own,
      hasPromised: roster !== undefined,
      incarnation,
      generation: Number(generation ?? 0),
      floor: BigInt(floor ?? 0),
      longestMs: Number(longest ?? 0),
      waitedMs:
        Number(seconds) * 1_000 +
        Number(microseconds) / 1_000 -
        Number(recovery_since ?? Number.POSITIVE_INFINITY),
    };
  }

  async untilVoting(...servers: readonly Pick<LocalRedisNode, 'port'>[]): Promise<void> {
    for (const server of servers) await until(async () => (await this.memory(server)).isVoting);
  }

  [Symbol.dispose](): void {
    for (const lock of this.#locks) void lock.close();
    for (const client of this.#connections) client.disconnect();
  }
}

/** Waits for a condition. The time limit of the test is the only limit. */
export async function until(condition: () => Promise<boolean> | boolean): Promise<void> {
  while (!(await condition())) await sleep(5);
}

/** The replication id, under which a node is readmitted: see own_history in node.lua. */
async function ownHistory(admin: Redis): Promise<string> {
  return /master_replid:(\w+)/.exec(await admin.info('replication'))?.[1] ?? '';
}
