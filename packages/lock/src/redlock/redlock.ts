import { LockArgumentError } from '../core/errors.js';
import {
  checkFields,
  checkFlag,
  checkMaxTtlMs,
  type RedlockOptions,
  type ResolvedOptions,
  resolveOptions,
} from '../core/options.js';
import type { NodeStatus } from '../core/status.js';
import { LockService } from '../lease/lock-service.js';
import { checkRuntime, type Runtime, systemRuntime } from '../runtime/runtime.js';
import { checkMoveOptions, MovableService, type MoveOptions } from './movable-service.js';
import type { MoveStatus } from './move.js';
import type { NodeConfig } from './node-names.js';
import { openNodeSet } from './node-set.js';
import { limitOn, type ReadmitResult, resultOf } from './readmission.js';
import { statusOf } from './status.js';

export interface RedlockConfig extends RedlockOptions {
  /** Independent Redis masters, 1 to 15; 3 or 5 as a rule. All programs must name them alike. */
  readonly nodes: readonly NodeConfig[];
  /**
   * The node set to which the locks will move. This client follows by itself, and until then it
   * costs nothing: docs/changing-nodes.md.
   */
  readonly next?: NextSet;
}

/** The nodes after a move. A server may be a node of both sets. */
export interface NextSet {
  readonly nodes: readonly NodeConfig[];
  /** A key prefix that no lock service has used. Each set needs one of its own. */
  readonly keyPrefix: string;
  /** The node set to which the locks will move from there. */
  readonly next?: NextSet;
}

export interface ReadmitOptions {
  /** The name of one node. Without it, all are meant. */
  readonly node?: string;
  /** @default false */
  readonly force?: boolean;
  /** The longest lease that the nodes grant from now on. Without it, they keep their limit. */
  readonly maxTtlMs?: number;
}

const CONFIG_FIELDS = ['nodes', 'maxTtlMs', 'keyPrefix', 'fenceTtlMs', 'firstToken', 'next'];

/**
 * Leases with fencing tokens over independent Redis nodes. The clients belong to the caller: they
 * are neither configured nor closed here.
 */
export class Redlock extends LockService {
  readonly #service: MovableService;

  /**
   * @throws {LockArgumentError} a node has no name, two have the same, or an option is out of range
   */
  constructor(config: RedlockConfig, runtime: Runtime = systemRuntime) {
    checkFields('the first argument of Redlock', config, CONFIG_FIELDS);
    checkRuntime(runtime);
    const options = resolveOptions(config);
    const service = serviceOf(config, options, runtime);
    super('Redlock', options.maxTtlMs, service.transport, runtime);
    this.#service = service;
  }

  /**
   * The state of every node and whether its vote counts, as `fenced status` shows it. Changes
   * nothing and never rejects. A node that has not answered after 2 s counts as unreachable.
   */
  async status(): Promise<readonly NodeStatus[]> {
    return statusOf(this.#service.served.nodes);
  }

  /** As `status`, of the set that `nodes` configures, also after a move. */
  async presentStatus(): Promise<readonly NodeStatus[]> {
    return statusOf(this.#service.present.nodes);
  }

  /** As `status`, of the next set. Empty without one. */
  async nextStatus(): Promise<readonly NodeStatus[]> {
    return statusOf(this.#service.next?.present.nodes ?? []);
  }

  /**
   * The state of the move to the next set. Changes nothing.
   *
   * @throws {LockArgumentError} there is no next set
   */
  async moveStatus(): Promise<MoveStatus> {
    return (await this.#service.moveStatus()) ?? noNextSet();
  }

  /**
   * Moves the locks to the next set, or goes on with a move that any process has begun. Call it
   * again while the state is `begun`. It is final: the present set never serves again.
   *
   * @throws {LockArgumentError} there is no next set
   */
  async move(options: MoveOptions = {}): Promise<MoveStatus> {
    const isForced = checkMoveOptions(options);
    return (await this.#service.move(isForced)) ?? noNextSet();
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
   * With `maxTtlMs`, all nodes that answer get this limit of the leases. Longer leases that are
   * held end with the time that they have.
   *
   * If the operator is wrong, two clients may hold a lock at once. If a node that was given up
   * comes back with its vote, the order of tokens rests on the clock.
   *
   * @returns `ok` only if a majority is known to vote, and to have the limit. A named node must
   * vote, too. With `force` and no name, all nodes that answered must vote. Otherwise `reason` has
   * every node's own answer.
   * A lost reply leaves the outcome unknown
   * @throws {LockArgumentError} no node has that name
   */
  async readmit(options: ReadmitOptions = {}): Promise<ReadmitResult> {
    checkFields('the options of readmit', options, ['node', 'force', 'maxTtlMs']);
    const { node = null, maxTtlMs } = options;
    if (maxTtlMs !== undefined) checkMaxTtlMs(maxTtlMs);
    const force = checkFlag('force', options.force ?? false);
    const { nodes, readmissions } = this.#service.served;
    const index = node === null ? null : nodes.findIndex(({ name }) => name === node);
    if (index === -1) throw new LockArgumentError(`no node has that name node=${String(node)}`);
    const outcome = await (force ? readmissions.force({ index }) : readmissions.run());
    const result = resultOf(outcome, nodes.length, index, force);
    return result.ok && maxTtlMs !== undefined ? limitOn(nodes, maxTtlMs) : result;
  }
}

function noNextSet(): never {
  throw new LockArgumentError('a move needs the next node set: next: { nodes, keyPrefix }');
}

/**
 * The lock service on a node set, and on the sets to which it moves next.
 *
 * @param used the key prefixes of the sets before it
 * @throws {LockArgumentError} a set has the key prefix of one before it, or is no node set
 */
function serviceOf(
  { nodes, next }: Pick<RedlockConfig, 'nodes' | 'next'>,
  options: ResolvedOptions,
  runtime: Runtime,
  used: readonly string[] = [],
): MovableService {
  const { keyPrefix } = options;
  if (used.includes(keyPrefix)) {
    throw new LockArgumentError(
      `the next set needs a key prefix that was never used, not that of a set before it keyPrefix=${keyPrefix}`,
    );
  }
  const parts = openNodeSet(nodes, options, runtime);
  if (!next) return new MovableService(parts, null, runtime);
  checkFields('next', next, ['nodes', 'keyPrefix', 'next']);
  // Without `firstToken`: the tokens of the next set continue those of the present one.
  const { keyPrefix: nextPrefix } = resolveOptions({ keyPrefix: next.keyPrefix });
  const nextOptions = { ...options, keyPrefix: nextPrefix, firstToken: null };
  const following = serviceOf(next, nextOptions, runtime, [...used, keyPrefix]);
  return new MovableService(parts, following, runtime);
}
