import { LockArgumentError } from '../core/errors.js';
import { checkFields, type RedlockOptions, resolveOptions } from '../core/options.js';
import type { NodeStatus } from '../core/status.js';
import { LockService } from '../lease/lock-service.js';
import type { RedisNode } from '../redis/node.js';
import { checkRuntime, type Runtime, systemRuntime } from '../runtime/runtime.js';
import { NodeGroup } from './node-group.js';
import type { NodeConfig } from './node-names.js';
import { type Readmissions, type ReadmitResult, resultOf } from './readmission.js';
import { statusOf } from './status.js';

export interface RedlockConfig extends RedlockOptions {
  /** Independent Redis masters, 1 to 15; 3 or 5 as a rule. All programs must name them alike. */
  readonly nodes: readonly NodeConfig[];
}

export interface ReadmitOptions {
  /** The name of one node. Without it, all are meant. */
  readonly node?: string;
  /** @default false */
  readonly force?: boolean;
}

const CONFIG_FIELDS = ['nodes', 'maxTtlMs', 'keyPrefix', 'fenceTtlMs', 'firstToken'];

/**
 * Leases with fencing tokens over independent Redis nodes. The clients belong to the caller: they
 * are neither configured nor closed here.
 */
export class Redlock extends LockService {
  readonly #nodes: readonly RedisNode[];
  readonly #runtime: Runtime;
  readonly #readmissions: Readmissions;

  /**
   * @throws {LockArgumentError} a node has no name, two have the same, or an option is out of range
   */
  constructor(config: RedlockConfig, runtime: Runtime = systemRuntime) {
    checkFields('the first argument of Redlock', config, CONFIG_FIELDS);
    checkRuntime(runtime);
    const options = resolveOptions(config);
    const group = new NodeGroup(config.nodes, options, runtime);
    const { nodes, readmissions, transport } = group.service(options);
    super('Redlock', options.maxTtlMs, transport, runtime);
    this.#nodes = nodes;
    this.#runtime = runtime;
    this.#readmissions = readmissions;
  }

  /**
   * The state of every node and whether its vote counts, as `fenced status` shows it. Changes
   * nothing and never rejects. A node that has not answered after 2 s counts as unreachable.
   */
  async status(): Promise<readonly NodeStatus[]> {
    return statusOf(this.#nodes, this.#runtime);
  }

  /**
   * Readmits nodes that may vote now. Clients do that by themselves when they meet such a node.
   * With `force`, an operator decides something that no node can know:
   *
   * - Nobody holds a lease that a node has forgotten: there is no recovery wait.
   * - Without `node`: nodes that do not answer are gone for good. The others need not wait for them
   *   if no majority votes.
   * - With `node`: the data of that node has gone back in time while its process went on. It begins
   *   anew, as if restarted.
   *
   * If that is wrong, two clients may hold a lock at once. If a node that was given up comes back
   * with its vote, tokens rest on the clock.
   *
   * @returns `ok` only if a majority is known to vote. A named node must vote, too. With `force`
   * and no name, all nodes that answered must vote. Otherwise `reason` has every node's own answer.
   * A lost reply leaves the outcome unknown
   * @throws {LockArgumentError} no node has that name
   */
  async readmit(options: ReadmitOptions = {}): Promise<ReadmitResult> {
    checkFields('the options of readmit', options, ['node', 'force']);
    const { node = null, force = false } = options;
    if (typeof force !== 'boolean') {
      throw new LockArgumentError(
        `force must be true or false force=${String(force)} type=${typeof force}`,
      );
    }
    const index = node === null ? null : this.#nodes.findIndex(({ name }) => name === node);
    if (index === -1) throw new LockArgumentError(`no node has that name node=${String(node)}`);
    const outcome = await (force ? this.#readmissions.force({ index }) : this.#readmissions.run());
    return resultOf(outcome, this.#nodes.length, index, force);
  }
}
