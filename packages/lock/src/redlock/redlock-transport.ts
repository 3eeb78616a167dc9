import { type NodeAnswer, nodeAnswer } from '../core/answers.js';
import type { AcquireFailure } from '../core/failure.js';
import { describeMismatch, mismatchIn } from '../core/mismatch.js';
import type { ResolvedOptions } from '../core/options.js';
import { majorityOf } from '../core/quorum.js';
import { answerLimitMs, LAST_ANSWERS_MS } from '../core/validity.js';
import { publish } from '../lease/events.js';
import type {
  AcquireRequest,
  ClaimResult,
  LockTransport,
  ReleaseOutcome,
  Waiter,
} from '../lease/transport.js';
import { standInLine } from '../queue/standing.js';
import { LocalQueue, Place } from '../queue/waiting.js';
import { WakeUps } from '../queue/wake-ups.js';
import type { NodeClient } from '../redis/client.js';
import type { RedisNode } from '../redis/node.js';
import { Holding, Nodes, type Ticket } from '../redis/nodes.js';
import { inTime, nobody, type Runtime, unlessAborted } from '../runtime/runtime.js';
import type { Admissions } from './admission.js';
import { Attempt, type AttemptOutcome } from './attempt.js';
import { Backfill } from './backfill.js';
import { type Grant, Tenure } from './tenure.js';

/** The Redlock algorithm over Redis nodes, with readmission and a wait queue. */
export class RedlockTransport implements LockTransport {
  readonly #nodes: Nodes;
  readonly #options: ResolvedOptions;
  readonly #admissions: Admissions;
  readonly #runtime: Runtime;
  readonly #wakeUps: WakeUps;
  readonly #localQueue: LocalQueue;
  readonly #callForAdmission = (): void => this.#admissions.call();

  constructor(
    nodes: readonly RedisNode[],
    clients: readonly NodeClient[],
    options: ResolvedOptions,
    admissions: Admissions,
    runtime: Runtime,
  ) {
    this.#nodes = new Nodes(nodes, options, runtime);
    this.#options = options;
    this.#admissions = admissions;
    this.#runtime = runtime;
    this.#localQueue = new LocalQueue(runtime);
    const channel = `${options.keyPrefix}turn:${runtime.uniqueId()}`;
    this.#wakeUps = new WakeUps(clients, channel, runtime);
  }

  async close(): Promise<void> {
    this.#admissions.close();
    // Who was handed a lock a moment ago has no lease yet that could be released.
    await Promise.all([...this.#localQueue.onTheWay].map((claim) => claim.release()));
    this.#wakeUps.close();
  }

  acquire(request: AcquireRequest): Promise<ClaimResult> {
    return this.#attempt(request, null);
  }

  wait(request: AcquireRequest): Waiter {
    return this.#waiter(request, this.#place(request));
  }

  waitBehindOthers(request: AcquireRequest): Waiter | null {
    if (!this.#localQueue.first(request.resources)) return null;
    const place = this.#place(request);
    place.enter();
    return this.#waiter(request, place);
  }

  #place(request: AcquireRequest): Place {
    return new Place(this.#nodes, request, this.#wakeUps, this.#localQueue, this.#runtime);
  }

  #waiter(request: AcquireRequest, place: Place): Waiter {
    return {
      acquire: () => this.#attempt(request, place),
      pause: (attempts, failure, leftMs) => place.pause(attempts, failure, leftMs),
      [Symbol.dispose]: () => place[Symbol.dispose](),
    };
  }

  async #attempt(request: AcquireRequest, place: Place | null): Promise<ClaimResult> {
    const inherited = place?.takeInherited();
    if (inherited) return { ok: true, claim: inherited, answers: () => this.#nodes.answers([]) };
    const holding = this.#holdingFor(request, place);
    const untilMs = Math.max(request.endMs, this.#runtime.nowMs() + LAST_ANSWERS_MS);
    const ran = await this.#run(request, place, holding, untilMs);
    const first = this.#end(ran, request, place, holding);
    if (first.ok || first.reason !== 'no-quorum' || place?.hasInherited) return first;
    if (!first.nodes.some((node) => node.answer === 'not-voting')) return first;
    const leftMs = Math.max(1, untilMs - this.#runtime.nowMs());
    const admitting = inTime(this.#runtime, nobody, this.#admissions.admit(), leftMs);
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

  #holdingFor({ resources }: AcquireRequest, place: Place | null): Holding {
    return place ? place.holding : new Holding(resources, this.#runtime.uniqueId(), false);
  }

  #run(
    request: AcquireRequest,
    place: Place | null,
    holding: Holding,
    untilMs: number,
  ): Promise<AttemptOutcome> {
    const { ttlMs, signal } = request;
    const take = (ticket: Ticket | null): Promise<AttemptOutcome> => {
      const call = this.#callForAdmission;
      const limitMs = answerLimitMs(ttlMs, untilMs - this.#runtime.nowMs());
      place?.take();
      const attempt = new Attempt(
        this.#nodes,
        holding,
        ttlMs,
        limitMs,
        ticket,
        this.#runtime,
        call,
      );
      return attempt.run(signal);
    };
    const ticket = place ? place.showTicket() : null;
    if (place === null || ticket === null || place.hasTurn) return take(ticket);
    // Who stands in line takes nothing before its turn has come.
    const asked = place.untilPassed().then(() => {
      const limitMs = answerLimitMs(ttlMs, untilMs - this.#runtime.nowMs());
      const standing = { holding, ticket, limitMs, signal };
      return standInLine(this.#nodes, standing, this.#runtime, this.#callForAdmission);
    });
    return place.unlessInherited(asked).then((lost) => lost ?? take(ticket));
  }

  #end(
    outcome: AttemptOutcome,
    { resources, ttlMs }: AcquireRequest,
    place: Place | null,
    holding: Holding,
  ): ClaimResult {
    place?.note(outcome);
    if (outcome.ok) {
      const { token, lastToken, deadlineMs, unasked, followers, othersWait, answers } = outcome;
      const kept = { token: lastToken, deadlineMs, unasked };
      const isOnAll = unasked.length === 0;
      const backfill = isOnAll ? null : new Backfill(this.#nodes, holding, kept, this.#runtime);
      const heirs = place?.heirs(followers) ?? [];
      const grant = { holding, ttlMs, token, deadlineMs, backfill, heirs, othersWait };
      return { ok: true, claim: this.#tenure(grant), answers };
    }
    for (const node of outcome.nodes) {
      if (voteless.has(node.answer))
        publish('fenced:lock:node-refused', () => ({ resources, node }));
    }
    if (!mismatchIn(outcome.nodes)) return outcome;
    return { ...outcome, hint: describeMismatch(outcome.nodes) };
  }

  #tenure(grant: Grant): Tenure {
    const [nodes, localQueue, call] = [this.#nodes, this.#localQueue, this.#callForAdmission];
    return new Tenure(nodes, grant, localQueue, this.#runtime, call);
  }

  extend(resources: readonly string[], owner: string, ttlMs: number): Promise<number> {
    return this.#heldElsewhere(resources, owner).extend(ttlMs);
  }

  release(resources: readonly string[], owner: string): Promise<ReleaseOutcome> {
    return this.#heldElsewhere(resources, owner).release();
  }

  #heldElsewhere(resources: readonly string[], owner: string): Tenure {
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

function aborted(nodes: readonly RedisNode[]): AcquireFailure {
  const pending = nodes.map(({ name }) => nodeAnswer(name, { answer: 'pending' }));
  return { ok: false, reason: 'aborted', nodes: pending, retryAfterMs: 0 };
}
