import { describeNodes, type NodeReport, type NodeStatus } from '../core/status.js';
import type { RedisNode } from '../redis/node.js';
import type { Runtime } from '../runtime/runtime.js';

/** Asks every node at once. Never rejects. */
export async function statusOf(
  nodes: readonly RedisNode[],
  runtime: Runtime,
): Promise<readonly NodeStatus[]> {
  const reports = await Promise.all(nodes.map((node) => report(node, runtime)));
  const settings = await Promise.all(
    nodes.map(async (node, at) => {
      const seen = reports[at];
      const isKnown = seen !== undefined && !(seen instanceof Error);
      return {
        name: node.name,
        durable: node.durable,
        appendFsync: isKnown && node.durable ? await node.appendFsync() : null,
      };
    }),
  );
  return describeNodes(settings, reports);
}

async function report(node: RedisNode, runtime: Runtime): Promise<NodeReport | Error> {
  const askedMs = runtime.wallClockMs();
  const reply = await node.status();
  if (reply.answer !== 'status') return reply.error;
  // The node read its clock at some time between the question and the answer.
  const halfwayMs = (askedMs + runtime.wallClockMs()) / 2;
  return { ...reply, clockDifferenceMs: reply.timeMs - halfwayMs };
}
