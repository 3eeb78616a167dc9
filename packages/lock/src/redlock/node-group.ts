import { createHash } from 'node:crypto';
import { STORAGE_VERSION } from '../core/mismatch.js';
import type { ResolvedOptions } from '../core/options.js';
import { WakeUps } from '../queue/wake-ups.js';
import type { NodeClient } from '../redis/client.js';
import { type NamedClient, RedisNode } from '../redis/node.js';
import type { Runtime } from '../runtime/runtime.js';
import type { NodeSet } from './move.js';
import { type NodeConfig, nameNodes } from './node-names.js';
import { Readmissions } from './readmission.js';
import type { Guard } from './readmission-round.js';
import { RedlockTransport } from './redlock-transport.js';

/** The parts of one lock service on the nodes of a group. */
export interface ServiceParts {
  /** Sorted by name. */
  readonly nodes: readonly RedisNode[];
  readonly readmissions: Readmissions;
  readonly transport: RedlockTransport;
  /** Makes other objects for the same nodes. A move's calls do not queue behind `transport`'s. */
  readonly movable: () => NodeSet;
}

/**
 * Redis nodes that decide together. The lock services on them share their connections and their
 * subscriptions, and each has a key prefix of its own.
 */
export class NodeGroup {
  /** Sorted. */
  readonly names: readonly string[];
  readonly clients: readonly NodeClient[];
  readonly #named: readonly NamedClient[];
  readonly #wakeUps: WakeUps;
  readonly #runtime: Runtime;

  /**
   * @param options `keyPrefix` begins the name of the channel for wake-ups
   * @throws {LockArgumentError} see `nameNodes`
   */
  constructor(
    nodes: readonly NodeConfig[],
    { keyPrefix }: Pick<ResolvedOptions, 'keyPrefix'>,
    runtime: Runtime,
  ) {
    this.#named = nameNodes(nodes);
    this.names = this.#named.map(({ name }) => name);
    this.clients = this.#named.map(({ client }) => client);
    this.#wakeUps = new WakeUps(this.clients, `${keyPrefix}notify:${runtime.uniqueId()}`, runtime);
    this.#runtime = runtime;
  }

  /** The lock service under this `keyPrefix`. */
  service(options: ResolvedOptions, guard: Guard | null = null): ServiceParts {
    const nodes = this.nodes(options, this.names);
    const readmissions = new Readmissions({ nodes, options, guard }, this.#runtime);
    const transport = new RedlockTransport(
      nodes,
      this.#wakeUps,
      options,
      readmissions,
      this.#runtime,
    );
    const movable = (): NodeSet => ({ nodes: this.nodes(options, this.names), options });
    return { nodes, readmissions, transport, movable };
  }

  /**
   * The nodes under this `keyPrefix`.
   *
   * @param members the list of names that each node stores. It refuses clients with another list
   */
  nodes(options: ResolvedOptions, members: readonly string[]): readonly RedisNode[] {
    return this.#named.map((node) => {
      // Includes the node's own name, so clients that swap the names of two nodes are refused, too.
      const digest = createHash('sha1')
        .update(JSON.stringify([members, node.name]))
        .digest('hex');
      const service = { ...options, members: `${STORAGE_VERSION} ${digest}`, names: members };
      return new RedisNode(node, service, this.#runtime);
    });
  }
}
