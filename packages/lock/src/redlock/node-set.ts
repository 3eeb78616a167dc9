import { createHash } from 'node:crypto';
import { STORAGE_VERSION } from '../core/mismatch.js';
import type { ResolvedOptions } from '../core/options.js';
import { WakeUps } from '../queue/wake-ups.js';
import { RedisNode } from '../redis/node.js';
import type { Runtime } from '../runtime/runtime.js';
import { type NodeConfig, nameNodes } from './node-names.js';
import { Readmissions } from './readmission.js';
import type { NodeSet } from './readmission-round.js';
import { RedlockTransport } from './redlock-transport.js';

/** The parts of one lock service on a node set. */
export interface ServiceParts {
  /** Sorted by name. */
  readonly nodes: readonly RedisNode[];
  readonly readmissions: Readmissions;
  readonly transport: RedlockTransport;
  /** Makes other objects for the same nodes. A move's calls do not queue behind `transport`'s. */
  readonly movable: () => NodeSet;
}

/** @throws {LockArgumentError} see `nameNodes` */
export function openNodeSet(
  configs: readonly NodeConfig[],
  options: ResolvedOptions,
  runtime: Runtime,
): ServiceParts {
  const named = nameNodes(configs);
  const names = named.map(({ name }) => name);
  const nodesOf = (): readonly RedisNode[] =>
    named.map((node) => {
      // Includes the node's own name, so clients that swap the names of two nodes are refused, too.
      const digest = createHash('sha1')
        .update(JSON.stringify([names, node.name]))
        .digest('hex');
      const service = { ...options, members: `${STORAGE_VERSION} ${digest}`, names };
      return new RedisNode(node, service, runtime);
    });
  const nodes = nodesOf();
  const wakeUps = new WakeUps(
    named.map(({ client }) => client),
    `${options.keyPrefix}notify:${runtime.uniqueId()}`,
    runtime,
  );
  const readmissions = new Readmissions({ nodes, options }, runtime);
  const transport = new RedlockTransport(nodes, wakeUps, options, readmissions, runtime);
  return { nodes, readmissions, transport, movable: () => ({ nodes: nodesOf(), options }) };
}
