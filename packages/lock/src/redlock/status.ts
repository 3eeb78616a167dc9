import { describeNodes, type NodeStatus } from '../core/status.js';
import type { RedisNode } from '../redis/node.js';

/** Asks every node at once. Never rejects. */
export async function statusOf(nodes: readonly RedisNode[]): Promise<readonly NodeStatus[]> {
  const replies = await Promise.all(nodes.map((node) => node.status()));
  const settings = await Promise.all(
    nodes.map(async (node, at) => {
      const { name, durable } = node;
      const isKnown = replies[at]?.answer === 'status';
      return { name, durable, appendFsync: isKnown && durable ? await node.appendFsync() : null };
    }),
  );
  const reports = replies.map((reply) => (reply.answer === 'status' ? reply : reply.error));
  return describeNodes(settings, reports);
}
