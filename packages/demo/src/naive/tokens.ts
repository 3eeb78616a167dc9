import type { Redis } from 'ioredis';

/** How people number the holders of a lock. */
export interface NaiveTokens {
  /** Asked of each node that grants the lock. */
  ofNode(node: Redis, counter: string): Promise<number>;
  /** Asked once a majority has. */
  choose(
    ofNodes: readonly number[],
    nodes: readonly Redis[],
    counter: string,
  ): Promise<bigint | null>;
}

export const noTokens: NaiveTokens = {
  ofNode: async () => 0,
  choose: async () => null,
};

/**
 * A counter on the first node. A majority guards the lock and one machine the number: where that restarts with a copy
 * of yesterday, or with nothing, the numbers come again.
 */
export const counterOnOneNode: NaiveTokens = {
  ofNode: async () => 0,
  async choose(_, [first], counter) {
    if (!first) throw new Error('there is no node to count on');
    return BigInt(await first.incr(counter));
  },
};

/**
 * A counter on every node; the highest of those that granted the lock is the token. No node is told which number was
 * taken. So where one node is ahead, because an attempt failed that reached only that one, two majorities, one with it
 * and the next without, come to the same number. And where all nodes lose their data all numbers come again.
 */
export const highestCounter: NaiveTokens = {
  ofNode: (node, counter) => node.incr(counter),
  choose: async (ofNodes) => BigInt(Math.max(...ofNodes)),
};
