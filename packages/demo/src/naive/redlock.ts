import { randomUUID } from 'node:crypto';
import type { Redis } from 'ioredis';
import type { Lock, LockAttempt } from '../locks/lock.js';
import { summarize } from '../locks/lock.js';
import { type NaiveTokens, noTokens } from './tokens.js';

export interface NaiveNode {
  readonly name: string;
  readonly client: Redis;
}

export interface NaiveRedlockOptions {
  /** @default none */
  readonly tokens?: NaiveTokens;
  /** Counts the lease from the last reply instead of the request. @default false */
  readonly ignoresElapsedTime?: boolean;
}

const RELEASE = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end`;

/**
 * Redlock as most libraries implement it, after the Redis documentation: `SET NX PX` on every node,
 * and a majority wins.
 *
 * It trusts each node's memory. A node that crashed, failed over or has a wrong clock forgets its
 * lease and grants the lock again. So a second client may have a majority, too. The documentation
 * asks operators to keep such a node out for one TTL. Nothing here does that.
 */
export class NaiveRedlock implements Lock {
  readonly #nodes: readonly NaiveNode[];
  readonly #keyPrefix: string;
  readonly #tokens: NaiveTokens;
  readonly #ignoresElapsedTime: boolean;

  constructor(nodes: readonly NaiveNode[], keyPrefix: string, options: NaiveRedlockOptions = {}) {
    this.#nodes = nodes;
    this.#keyPrefix = keyPrefix;
    this.#tokens = options.tokens ?? noTokens;
    this.#ignoresElapsedTime = options.ignoresElapsedTime ?? false;
  }

  async tryAcquire(resource: string, ttlMs: number): Promise<LockAttempt> {
    const key = lockKey(this.#keyPrefix, resource);
    const counter = counterKey(this.#keyPrefix, resource);
    const owner = randomUUID();
    const askedMs = performance.now();
    const answers = await Promise.all(
      this.#nodes.map(async ({ name, client }) => {
        try {
          const reply = await client.set(key, owner, 'PX', ttlMs, 'NX');
          if (reply !== 'OK') return { name, answer: 'held' };
          return { name, answer: 'granted', count: await this.#tokens.ofNode(client, counter) };
        } catch {
          return { name, answer: 'error' };
        }
      }),
    );
    const answeredMs = performance.now();
    const fromMs = this.#ignoresElapsedTime ? answeredMs : askedMs;
    const deadlineMs = fromMs + ttlMs - (ttlMs * 0.01 + 2);
    const release = async (): Promise<void> => {
      const releases = this.#nodes.map(({ client }) => client.eval(RELEASE, 1, key, owner));
      await Promise.allSettled(releases);
    };

    const counts = answers.flatMap(({ count }) => (count === undefined ? [] : [count]));
    if (counts.length > this.#nodes.length / 2 && answeredMs < deadlineMs) {
      const clients = this.#nodes.map(({ client }) => client);
      const token = await this.#tokens.choose(counts, clients, counter);
      const remainingMs = (): number => Math.max(0, deadlineMs - performance.now());
      return { ok: true, lease: { token, remainingMs, [Symbol.asyncDispose]: release } };
    }
    await release();
    return { ok: false, why: summarize(answers) };
  }
}

export function lockKey(keyPrefix: string, resource: string): string {
  return `${keyPrefix}lock:${resource}`;
}

/** Key of the counter for naive tokens. */
export function counterKey(keyPrefix: string, resource: string): string {
  return `${keyPrefix}counter:${resource}`;
}
