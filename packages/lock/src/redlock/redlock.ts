import { createHash } from 'node:crypto';
import { type NodeAnswer, nodeAnswer } from '../core/answers.js';
import { LockArgumentError } from '../core/errors.js';
import { describeMismatch, mismatchIn, STORAGE_VERSION } from '../core/mismatch.js';
import {
  checkFields,
  type RedlockOptions,
  type ResolvedOptions,
  resolveOptions,
} from '../core/options.js';
import { majorityOf } from '../core/quorum.js';
import type { NodeStatus } from '../core/status.js';
import { tell } from '../lease/events.js';
import type { LeaseClaim, LeaseNodes } from '../lease/lease.js';
import { type Attempted, LockService, type Request } from '../lease/lock-service.js';
import { standInLine } from '../queue/standing.js';
import { LocalQueue, Place } from '../queue/waiting.js';
import { WakeUps } from '../queue/wake-ups.js';
import { Tick } from '../redis/calls.js';
import { RedisNode } from '../redis/node.js';
import { Holding, Nodes, type Ticket } from '../redis/nodes.js';
import {
  checkRuntime,
  inTime,
  nobody,
  type Runtime,
  systemRuntime,
  unlessAborted,
} from '../runtime/runtime.js';
import { type AdmissionOutcome, Admissions, outcomeOf } from './admission.js';
import { Attempt, type AttemptOutcome, type FailedAttempt } from './attempt.js';
import { Backfill } from './backfill.js';
import { type NodeConfig, nameNodes } from './node-names.js';
import { statusOf } from './status.js';
import { type Grant, Tenure } from './tenure.js';

export interface RedlockConfig extends RedlockOptions {
  /** Independent Redis masters, 1 to 15; 3 or 5 as a rule. All programs must name them alike. */
  readonly nodes: readonly NodeConfig[];
}

export interface AdmitOptions {
  /** The name of one node. Without it, all are meant. */
  readonly node?: string;
  /** @default false */
  readonly force?: boolean;
}

const CONFIG_FIELDS = ['nodes', 'maxTtlMs', 'keyPrefix', 'fenceTtlMs', 'firstToken'];

/**
 * Leases with fencing tokens over independent Redis nodes.
 * The clients stay their owner's: they are neither configured nor closed here.
 */
export class Redlock extends LockService<Place> {
  readonly #nodes: Nodes;
  readonly #options: ResolvedOptions;
  readonly #admissions: Admissions;
  readonly #wakeUps: WakeUps;
  readonly #localQueue: LocalQueue;
  readonly #callForAdmission = (): void => this.#admissions.call();

  /** @throws {LockArgumentError} where a node has no name, a name is used twice or an option is out of range */
  constructor(config: RedlockConfig, runtime: Runtime = systemRuntime) {
    checkFields('the first argument of Redlock', config, CONFIG_FIELDS);
    checkRuntime(runtime);
    const options = resolveOptions(config);
    super('Redlock', options.maxTtlMs, runtime);
    this.#options = options;
    const named = nameNodes(config.nodes);
    const names = named.map(({ name }) => name);
    const tick = new Tick(runtime);
    const nodes = named.map((node) => {
      // With its own name, so that clients which swap the names of two nodes are refused, too.
      const digest = createHash('sha1')
        .update(JSON.stringify([names, node.name]))
        .digest('hex');
      const service = { ...options, members: `${STORAGE_VERSION} ${digest}`, names };
      return new RedisNode(node, service, runtime, tick);
    });
    this.#nodes = new Nodes(nodes, options, runtime);
    this.#admissions = new Admissions(nodes, this.#options, runtime);
    const channel = `${options.keyPrefix}turn:${runtime.uniqueId()}`;
    this.#localQueue = new LocalQueue(runtime);
    this.#wakeUps = new WakeUps(
      named.map(({ client }) => client),
      channel,
      runtime,
    );
  }

  /**
   * What every node is and whether its vote counts, as `fenced status` shows it. Changes nothing and never rejects; a node
   * that has not answered after two seconds counts as unreachable.
   */
  async status(): Promise<readonly NodeStatus[]> {
    return statusOf(this.#nodes.all, this.runtime);
  }

  /**
   * Lets nodes vote that may do so now. Clients do that by themselves whenever they meet such a node; with `force`, an operator
   * decides what no node can know:
   *
   * - Nobody holds a lease that a node has forgotten: it is not waited for.
   * - Without `node`, nodes that do not answer are gone for good: the others need not wait for them where no majority votes.
   * - With `node`, that one node's data has gone back in time while its process went on: it begins anew, as if restarted.
   *
   * Where that is wrong, two may hold a lock at once; where a node that had been given up comes back with its vote, tokens rest
   * on the clock.
   *
   * @returns `ok` only if it is known that a majority votes and, in addition: the node that was
   *   named; with `force` and no name, all nodes that answered. Else `reason` has every node's own
   *   answer. If a reply was lost, it is not known
   * @throws {LockArgumentError} where no node has that name
   */
  async admit(options: AdmitOptions = {}): Promise<AdmissionOutcome> {
    checkFields('the options of admit', options, ['node', 'force']);
    const { node = null, force = false } = options;
    if (typeof force !== 'boolean') {
      throw new LockArgumentError(
        `force must be true or false force=${String(force)} type=${typeof force}`,
      );
    }
    const index = node === null ? null : this.#nodes.all.findIndex(({ name }) => name === node);
    if (index === -1) throw new LockArgumentError(`no node has that name node=${String(node)}`);
    const round = await (force ? this.#admissions.force({ index }) : this.#admissions.admit());
    return outcomeOf(round, this.#nodes.all.length, index, force);
  }

  /** Releases what is held and ends waits with an error of code `closed`. Leaves the clients to their owner. */
  override async close(): Promise<void> {
    this.#admissions.close();
    const closed = super.close();
    // Who was handed a lock a moment ago has no lease yet that could be released.
    const handedOn = [...this.#localQueue.onTheWay].map((claim) => claim.release());
    await Promise.all([closed, ...handedOn]);
    this.#wakeUps.close();
  }

  protected override wait(request: Request): Place {
    return new Place(this.#nodes, request, this.#wakeUps, this.#localQueue, this.runtime);
  }

  protected override waitAtOnce(request: Request): Place | null {
    if (!this.#localQueue.first(request.resources)) return null;
    const place = this.wait(request);
    place.enter();
    return place;
  }

  protected override async attempt(request: Request, place: Place | null): Promise<Attempted> {
    const inherited = place?.takeInherited();
    if (inherited) return this.#leaseOf(inherited, () => this.#nodes.answers([]));
    const holding = this.#holdingFor(request, place);
    const untilMs = this.untilMs(request);
    const ran = await this.#run(request, place, holding, untilMs);
    const first = this.#end(ran, request, place, holding);
    if (first.ok || first.reason !== 'no-quorum' || place?.hasInherited) return first;
    if (!first.nodes.some((node) => node.answer === 'not-voting')) return first;
    const leftMs = Math.max(1, untilMs - this.runtime.nowMs());
    const admitting = inTime(this.runtime, nobody, this.#admissions.admit(), leftMs);
    const answer = await unlessAborted(admitting, request.signal);
    if (answer === null) return aborted(this.#nodes.all);
    const isLate = 'answer' in answer;
    const admission = isLate ? this.#admissions.last : answer;
    const majority = majorityOf(first.nodes.length);
    if (admission === null || (isLate && admission.voting.length >= majority)) {
      return { ...first, hint: UNDER_WAY };
    }
    const nodes = first.nodes.map((node, at) => admission.mismatches[at] ?? node);
    const mismatch = mismatchIn(nodes);
    if (mismatch) {
      return { ok: false, reason: mismatch, nodes, hint: describeMismatch(nodes), retryAfterMs: 0 };
    }
    if (admission.voting.length < majority) {
      return { ...first, hint: admission.reason, retryAfterMs: admission.retryAfterMs };
    }
    const next = this.#holdingFor(request, place);
    return this.#end(await this.#run(request, place, next, untilMs), request, place, next);
  }

  #holdingFor({ resources }: Request, place: Place | null): Holding {
    return place ? place.holding : new Holding(resources, this.runtime.uniqueId(), false);
  }

  #run(
    request: Request,
    place: Place | null,
    holding: Holding,
    untilMs: number,
  ): Promise<AttemptOutcome> {
    const { ttlMs, signal } = request;
    const take = (ticket: Ticket | null): Promise<AttemptOutcome> => {
      const call = this.#callForAdmission;
      const limitMs = this.answersMs(request, untilMs);
      place?.take();
      const attempt = new Attempt(this.#nodes, holding, ttlMs, limitMs, ticket, this.runtime, call);
      return attempt.run(signal);
    };
    const ticket = place ? place.showTicket() : null;
    if (place === null || ticket === null || place.hasTurn) return take(ticket);
    // Who stands in line takes nothing before its turn has come.
    const asked = place.untilPassed().then(() => {
      const limitMs = this.answersMs(request, untilMs);
      const standing = { holding, ticket, limitMs, signal };
      return standInLine(this.#nodes, standing, this.runtime, this.#callForAdmission);
    });
    return place.unlessInherited(asked).then((lost) => lost ?? take(ticket));
  }

  #end(
    outcome: AttemptOutcome,
    { resources, ttlMs }: Request,
    place: Place | null,
    holding: Holding,
  ): Attempted {
    place?.note(outcome);
    if (outcome.ok) {
      const { token, lastToken, deadlineMs, unasked, followers, othersWait, answers } = outcome;
      const kept = { token: lastToken, deadlineMs, unasked };
      const isOnAll = unasked.length === 0;
      const backfill = isOnAll ? null : new Backfill(this.#nodes, holding, kept, this.runtime);
      const heirs = place?.heirs(followers) ?? [];
      const grant = { holding, ttlMs, token, deadlineMs, backfill, heirs, othersWait };
      return this.#leaseOf(this.#tenure(grant), answers);
    }
    for (const node of outcome.nodes) {
      if (voteless.has(node.answer)) tell('fenced:lock:node-refused', () => ({ resources, node }));
    }
    if (!mismatchIn(outcome.nodes)) return outcome;
    return { ...outcome, hint: describeMismatch(outcome.nodes) };
  }

  #leaseOf(claim: LeaseClaim, answers: () => readonly NodeAnswer[]): Attempted {
    const { resources, token, deadlineMs } = claim;
    const lease = this.track(resources, token, deadlineMs, claim);
    return { ok: true, lease, answers };
  }

  #tenure(grant: Grant): Tenure {
    const [nodes, localQueue, call] = [this.#nodes, this.#localQueue, this.#callForAdmission];
    return new Tenure(nodes, grant, localQueue, this.runtime, call);
  }

  protected override nodesOf(resources: readonly string[], owner: string): LeaseNodes {
    const holding = new Holding(resources, owner, true, this.#nodes.first.all);
    const ttlMs = this.#options.maxTtlMs;
    const unknown = { token: 0n, deadlineMs: 0, backfill: null, heirs: [], othersWait: false };
    return this.#tenure({ holding, ttlMs, ...unknown });
  }
}

const UNDER_WAY =
  'nodes without a vote are being admitted, which takes longer than the call may: try again';

const voteless: ReadonlySet<NodeAnswer['answer']> = new Set([
  'not-voting',
  'not-master',
  'config-mismatch',
  'wrong-version',
  'ttl-too-long',
  'memory-full',
  'token-exhausted',
  'error',
]);

function aborted(nodes: readonly RedisNode[]): FailedAttempt {
  const pending = nodes.map(({ name }) => nodeAnswer(name, { answer: 'pending' }));
  return { ok: false, reason: 'aborted', nodes: pending, retryAfterMs: 0 };
}
