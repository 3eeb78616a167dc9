import { type FirstStart, type Inspection, planFirstStart, unchanged } from './core/admission.js';
import type { RedisNode } from './redis/node.js';
import { inTime, type Runtime } from './runtime.js';

/** Whether another attempt may win now, and if not, why. */
export type AdmissionOutcome =
  | { readonly ok: true }
  | { readonly ok: false; readonly reason: string };

const NODE_TIMEOUT_MS = 2_000;
const ROUNDS_MAX = 5;

/**
 * Lets nodes that were never admitted vote for the first time, if all of them answer. Never rejects.
 *
 * Nodes are looked at twice. Where nothing changed between the two rounds, there was a moment at which all of them were
 * as seen, fewer than a majority voted, and so nobody could acquire; what the second round read covers every token
 * that was won before it. Several clients doing this at once do no harm: each ADMIT is carried out only by the very
 * incarnation that was inspected, and only once.
 *
 * @param nodes sorted by name
 * @param members digest of the node names
 * @param seed no token of these nodes will be this or lower
 */
export async function admitFirstStart(
  nodes: readonly RedisNode[],
  members: string,
  seed: bigint,
  runtime: Runtime,
): Promise<AdmissionOutcome> {
  let before = await inspectAll(nodes, runtime);
  for (let round = 1; round <= ROUNDS_MAX; round += 1) {
    const after = before.silent.length > 0 ? before : await inspectAll(nodes, runtime);
    if (after.silent.length > 0) return { ok: false, reason: silence(after.silent) };
    if (unchanged(before.inspections, after.inspections)) {
      const names = nodes.map((node) => node.name);
      const plan = planFirstStart(names, after.inspections, members, seed);
      return carryOut(plan, nodes, after.inspections, runtime);
    }
    before = after;
  }
  return { ok: false, reason: 'nodes keep restarting while they are being admitted' };
}

async function carryOut(
  plan: FirstStart,
  nodes: readonly RedisNode[],
  inspections: readonly Inspection[],
  runtime: Runtime,
): Promise<AdmissionOutcome> {
  if (plan.plan === 'refuse') return { ok: false, reason: plan.reason };
  if (plan.plan === 'not-needed') return { ok: true };
  await Promise.all(
    plan.admissions.map((admission) => {
      const node = nodes[admission.index];
      const seen = inspections[admission.index];
      if (!node || !seen) throw new Error(`no node at ${admission.index}`);
      return inTime(runtime, node.admit(seen, admission), NODE_TIMEOUT_MS);
    }),
  );
  // Whatever they answered, the next attempt will tell who votes.
  return { ok: true };
}

interface Inspected {
  readonly inspections: readonly Inspection[];
  /** What each node that did not answer said instead. */
  readonly silent: readonly string[];
}

async function inspectAll(nodes: readonly RedisNode[], runtime: Runtime): Promise<Inspected> {
  const incarnation = runtime.uniqueId();
  const replies = await Promise.all(
    nodes.map((node) => inTime(runtime, node.inspect(incarnation), NODE_TIMEOUT_MS)),
  );
  return {
    inspections: replies.flatMap((reply) => (reply.answer === 'inspected' ? [reply] : [])),
    silent: replies.flatMap((reply, at) =>
      reply.answer === 'error' ? [`${nodes[at]?.name} (${reply.error.message})`] : [],
    ),
  };
}

function silence(silent: readonly string[]): string {
  return `nodes without memory are admitted only while all nodes answer; bring back ${silent.join(', ')}`;
}
