import { describeSet } from '../core/move.js';
import type { ResolvedOptions } from '../core/options.js';
import { majorityOf } from '../core/quorum.js';
import type { RedisNode } from '../redis/node.js';
import { type NodeReply, phrase } from './last-replies.js';
import type { NodeGroup } from './node-group.js';
import type { Obstacle } from './readmission-round.js';

/** The configuration of virtual services, which must be the same in all clients. */
export interface VirtualSetUp {
  readonly count: number;
  readonly groups: ReadonlyMap<string, ConfiguredGroup>;
}

export interface ConfiguredGroup {
  readonly name: string;
  readonly nodes: NodeGroup;
  /** `keyPrefix` is the one that all virtual services of the group have in common. */
  readonly options: ResolvedOptions;
}

/** The options of one virtual service in a group. */
export function optionsOf(
  { count }: VirtualSetUp,
  { options }: ConfiguredGroup,
  service: number,
): ResolvedOptions {
  // The prefix names the number of all virtual services, so clients with different numbers share
  // no keys.
  return { ...options, keyPrefix: `${options.keyPrefix}${count}/${service}:` };
}

/** The text that a node keeps under the common key prefix, in place of node names. */
const COUNT = /^(\d+) virtual services$/;

/**
 * Guards the set-up of a virtual service, so clients with another configuration are refused:
 *
 * - Under the common key prefix of its group, a node keeps the number of virtual services in place
 *   of node names. So it refuses clients with another number, and clients without virtual services.
 *   A virtual service begins only after a majority of each group has stored the number.
 * - A virtual service begins in one group only.
 *
 * @param home the group of the virtual service
 * @param isFirst true if no majority of its nodes votes
 * @returns null if its nodes may be admitted
 */
export async function mayBegin(
  setUp: VirtualSetUp,
  service: number,
  home: ConfiguredGroup,
  isFirst: boolean,
): Promise<Obstacle | null> {
  const checks = [...setUp.groups.values()].map(async (group) => {
    if (group !== home && !isFirst) return null;
    const obstacle = await mark(setUp, group);
    if (obstacle || group === home) return obstacle;
    return lacks(setUp, service, { group, home });
  });
  const obstacles = (await Promise.all(checks)).filter((one) => one !== null);
  return obstacles.find(({ isElsewhere }) => isElsewhere) ?? obstacles[0] ?? null;
}

/** Stores the number of virtual services on a majority of the group. @returns null on success */
export async function mark(
  { count }: VirtualSetUp,
  { name, nodes: group, options }: ConfiguredGroup,
): Promise<Obstacle | null> {
  const nodes = group.nodes(options, [`${count} virtual services`]);
  const replies = await Promise.all(nodes.map(markOn));
  const marked = replies.filter(({ answer }) => answer === 'promised').length;
  if (marked >= majorityOf(nodes.length)) return null;
  const others = replies.flatMap((reply, at) =>
    reply.answer === 'config-mismatch'
      ? [`node ${nodes[at]?.name} of group ${name} was set up ${described(reply.members)}`]
      : [],
  );
  if (others.length === 0) return tooFew(name, nodes, replies.map(phrase));
  const reason = `virtual services differ: this client has ${count}, ${others.join(', ')}; configure all clients alike`;
  return { reason, isElsewhere: true };
}

async function markOn(node: RedisNode): Promise<NodeReply> {
  const seen = await node.inspect();
  return seen.answer === 'inspected' ? node.promise(seen, []) : seen;
}

function described(members: readonly string[]): string {
  const [, count] = COUNT.exec(members[0] ?? '') ?? [];
  return count === undefined
    ? `without virtual services, with [${members.join(', ')}]`
    : `with ${count}`;
}

/**
 * Returns null if `group` certainly does not serve the virtual service. There are three such cases:
 *
 * - The group never served it.
 * - The group waits for a move of it.
 * - A majority of the group is sealed for a move to another group. `mayBegin` asks that group, too.
 */
async function lacks(
  setUp: VirtualSetUp,
  service: number,
  { group, home }: { readonly group: ConfiguredGroup; readonly home: ConfiguredGroup },
): Promise<Obstacle | null> {
  const { name } = group;
  const nodes = group.nodes.nodes(optionsOf(setUp, group, service), group.nodes.names);
  const replies = await Promise.all(nodes.map((node) => node.status()));
  const reports = replies.filter((reply) => reply.answer === 'status');
  const sets = [...setUp.groups.values()].map((one) =>
    describeSet(optionsOf(setUp, one, service).keyPrefix, one.nodes.names),
  );
  const sealed = reports.filter(({ nextSet }) => nextSet !== null && sets.includes(nextSet));
  if (sealed.length >= majorityOf(nodes.length)) return null;
  const isThere = reports.some(
    ({ setUp, awaits, generation }) => setUp !== null && (awaits === null || generation > 0),
  );
  if (isThere) {
    const reason = `virtual service ${service} is in group ${name}, and this client has it in group ${home.name}; configure all clients alike`;
    return { reason, isElsewhere: true };
  }
  if (reports.length >= majorityOf(nodes.length)) return null;
  const phrases = replies.map((reply) =>
    reply.answer === 'status' ? 'answers' : reply.error.message,
  );
  return tooFew(name, nodes, phrases);
}

function tooFew(name: string, nodes: readonly RedisNode[], phrases: readonly string[]): Obstacle {
  const each = nodes.map((node, at) => `${node.name} (${phrases[at]})`).join(', ');
  const reason = `a virtual service begins only while a majority of each group answers: group ${name} has ${each}`;
  return { reason, isElsewhere: false };
}
