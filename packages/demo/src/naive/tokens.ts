import type { Redis } from 'ioredis';

/** A do-it-yourself source of tokens. */
export interface NaiveTokens {
  /** Runs on each node that grants the lock. */
  ofNode(node: Redis, counter: string): Promise<number>;
  /** Runs once, after a majority has granted the lock. */
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
 * A counter on the first node. A majority guards the lock, but one machine guards the number. If it
 * restarts with old data or none, numbers repeat.
 */
export const counterOnOneNode: NaiveTokens = {
  ofNode: async () => 0,
  async choose(_, [first], counter) {
    if (!first) throw new Error('the counter needs a node');
    return BigInt(await first.incr(counter));
  },
};

/**
 * A counter on every node. The token is the highest among the nodes that granted the lock, and no
 * node learns which number was chosen. After a failed acquisition, one node may be ahead by one.
 * Then a majority with that node, and the next majority without it, choose the same number. If all
 * nodes lose their data, all numbers repeat.
 */
export const highestCounter: NaiveTokens = {
  ofNode: (node, counter) => node.incr(counter),
  choose: async (ofNodes) => BigInt(Math.max(...ofNodes)),
};
