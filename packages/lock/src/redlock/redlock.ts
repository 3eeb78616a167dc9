import { LockArgumentError } from '../core/errors.js';
import {
  checkFields,
  checkFlag,
  type RedlockOptions,
  type ResolvedOptions,
  resolveOptions,
} from '../core/options.js';
import type { NodeStatus } from '../core/status.js';
import { LockService } from '../lease/lock-service.js';
import { checkRuntime, type Runtime, systemRuntime } from '../runtime/runtime.js';
import { Move, type NodeSet } from './move.js';
import { MovingTransport } from './moving-transport.js';
import { NodeGroup, type ServiceParts } from './node-group.js';
import type { NodeConfig } from './node-names.js';
import { type ReadmitResult, resultOf } from './readmission.js';
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
  /** Another one than that of the present set, which no lock service has used before. */
  readonly keyPrefix: string;
}

export interface MoveOptions {
  /**
   * An operator says that nodes of the present set which do not answer are gone for good.
   * @default false
   */
  readonly force?: boolean;
}

/**
 * The state of a move to the next node set. `JSON.stringify` writes tokens as decimal strings.
 *
 * - `not-begun`: the present set serves.
 * - `begun`: the present set is sealed, at least in part, and the next one does not serve yet.
 * - `done`: the next set serves.
 * - `refused`: the move is impossible. Nothing was changed by this call.
 */
export interface MoveStatus {
  readonly state: 'not-begun' | 'begun' | 'done' | 'refused';
  /** The nodes' own answers, or the reason of a refusal; empty if there is nothing to say. */
  readonly reason: string;
  /** Milliseconds after which `move` should be called again, if the state is `begun`; else 0. */
  readonly retryAfterMs: number;
}

export interface ReadmitOptions {
  /** The name of one node. Without it, all are meant. */
  readonly node?: string;
  /** @default false */
  readonly force?: boolean;
}

const CONFIG_FIELDS = ['nodes', 'maxTtlMs', 'keyPrefix', 'fenceTtlMs', 'firstToken', 'next'];

/**
 * Leases with fencing tokens over independent Redis nodes. The clients belong to the caller: they
 * are neither configured nor closed here.
 */
export class Redlock extends LockService {
  readonly #present: ServedSet;
  readonly #next: ServedSet | null;
  readonly #move: Move | null;
  readonly #moving: MovingTransport | null;
  readonly #runtime: Runtime;

  /**
   * @throws {LockArgumentError} a node has no name, two have the same, or an option is out of range
   */
  constructor(config: RedlockConfig, runtime: Runtime = systemRuntime) {
    checkFields('the first argument of Redlock', config, CONFIG_FIELDS);
    checkRuntime(runtime);
    const options = resolveOptions(config);
    const present = servedSet(config.nodes, options, runtime);
    const next = config.next ? nextSet(config.next, options, runtime) : null;
    const move = next && new Move(present.forMoves(), next.forMoves(), runtime);
    const { transport } = present;
    const moving = next && move && new MovingTransport(transport, next.transport, move, runtime);
    super('Redlock', options.maxTtlMs, moving ?? transport, runtime);
    this.#present = present;
    this.#next = next;
    this.#move = move;
    this.#moving = moving;
    this.#runtime = runtime;
  }

  /**
   * The state of every node and whether its vote counts, as `fenced status` shows it. Changes
   * nothing and never rejects. A node that has not answered after 2 s counts as unreachable.
   */
  async status(): Promise<readonly NodeStatus[]> {
    return statusOf(this.#served.nodes, this.#runtime);
  }

  /** As `status`, of the set that `nodes` configures, also after a move. */
  async presentStatus(): Promise<readonly NodeStatus[]> {
    return statusOf(this.#present.nodes, this.#runtime);
  }

  /** As `status`, of the next set. Empty without one. */
  async nextStatus(): Promise<readonly NodeStatus[]> {
    return statusOf(this.#next?.nodes ?? [], this.#runtime);
  }

  /**
   * The state of the move to the next set. Changes nothing.
   *
   * @throws {LockArgumentError} there is no next set
   */
  async moveStatus(): Promise<MoveStatus> {
    const seen = await this.#moveOf().look();
    return { reason: '', retryAfterMs: 0, ...seen };
  }

  /**
   * Moves the locks to the next set, or goes on with a move that any process has begun. Call it
   * again while the state is `begun`. It is final: the present set never serves again.
   *
   * @throws {LockArgumentError} there is no next set
   */
  async move(options: MoveOptions = {}): Promise<MoveStatus> {
    checkFields('the options of move', options, ['force']);
    const isForced = checkFlag('force', options.force ?? false);
    const outcome = await this.#moveOf().run({ mayBegin: true, isForced });
    const retryAfterMs = outcome.state === 'begun' ? outcome.againMs : 0;
    return {
      reason: 'reason' in outcome ? outcome.reason : '',
      retryAfterMs,
      state: outcome.state,
    };
  }

  #moveOf(): Move {
    if (this.#move) return this.#move;
    throw new LockArgumentError('a move needs the next node set: next: { nodes, keyPrefix }');
  }

  get #served(): ServedSet {
    return this.#moving?.isMoved && this.#next ? this.#next : this.#present;
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
    const { node = null } = options;
    const force = checkFlag('force', options.force ?? false);
    const { nodes, readmissions } = this.#served;
    const index = node === null ? null : nodes.findIndex(({ name }) => name === node);
    if (index === -1) throw new LockArgumentError(`no node has that name node=${String(node)}`);
    const outcome = await (force ? readmissions.force({ index }) : readmissions.run());
    return resultOf(outcome, nodes.length, index, force);
  }
}

/** One node set, with the parts that serve from it. */
interface ServedSet extends ServiceParts {
  readonly forMoves: () => NodeSet;
}

function servedSet(
  nodes: readonly NodeConfig[],
  options: ResolvedOptions,
  runtime: Runtime,
): ServedSet {
  const group = new NodeGroup(nodes, options, runtime);
  const forMoves = (): NodeSet => ({ nodes: group.nodes(options, group.names), options });
  return { ...group.service(options), forMoves };
}

/** @throws {LockArgumentError} it is no node set, or it has the key prefix of the present one */
function nextSet(next: NextSet, present: ResolvedOptions, runtime: Runtime): ServedSet {
  checkFields('next', next, ['nodes', 'keyPrefix']);
  const { maxTtlMs, fenceTtlMs } = present;
  // A first token is for nodes that were never used. Those of the next set follow on.
  const options = resolveOptions({ maxTtlMs, fenceTtlMs, keyPrefix: next.keyPrefix });
  if (options.keyPrefix === present.keyPrefix) {
    throw new LockArgumentError(
      `the next set needs a key prefix that was never used, not that of the present set keyPrefix=${present.keyPrefix}`,
    );
  }
  return servedSet(next.nodes, options, runtime);
}
