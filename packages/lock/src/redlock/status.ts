import { describeNodes, type NodeReport, type NodeStatus } from '../core/status.js';
import { NODE_TIMEOUT_MAX_MS } from '../core/validity.js';
import type { RedisNode } from '../redis/node.js';
import { inTime, type Runtime } from '../runtime/runtime.js';

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
        appendFsync: isKnown && node.durable ? await appendFsync(node, runtime) : null,
      };
    }),
  );
  return describeNodes(settings, reports);
}

async function report(node: RedisNode, runtime: Runtime): Promise<NodeReport | Error> {
  const askedMs = runtime.wallClockMs();
  const reply = await inTime(runtime, node, node.status(), NODE_TIMEOUT_MAX_MS);
  if (reply.answer !== 'status') return reply.error;
  // The node read its clock at some time between the question and the answer.
  const halfwayMs = (askedMs + runtime.wallClockMs()) / 2;
  return { ...reply, clockDifferenceMs: reply.timeMs - halfwayMs };
}

async function appendFsync(node: RedisNode, runtime: Runtime): Promise<string | null> {
  const reply = node.appendFsync().then((policy) => ({ answer: 'policy' as const, policy }));
  const answer = await inTime(runtime, node, reply, NODE_TIMEOUT_MAX_MS);
  return answer.answer === 'policy' ? answer.policy : null;
}
