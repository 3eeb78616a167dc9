import {
  type Admission,
  type Inspection,
  nextGeneration,
  planFirstStart,
  planReadmission,
  unchanged,
} from './core/admission.js';
import type { ResolvedOptions } from './core/options.js';
import type { InspectReply, PromiseReply, RedisNode } from './redis/node.js';
import { inTime, type Runtime } from './runtime.js';

/** Whether another attempt may win now, and if not, why. */
export type AdmissionOutcome =
  | { readonly ok: true }
  | { readonly ok: false; readonly reason: string };

const NODE_TIMEOUT_MS = 2_000;
const ROUNDS_MAX = 5;
/** How long a node is left alone after an admission that came to nothing. */
const RETRY_MS = 250;

/** Lets nodes that lost their memory, or never had any, vote: at most one admission per node at a time. Never rejects. */
export class Admissions {
  readonly #nodes: readonly RedisNode[];
  readonly #options: ResolvedOptions;
  readonly #runtime: Runtime;
  /** What ends the wait for a node's turn, by the node's place; a node that has an entry is being taken care of. */
  readonly #under = new Map<number, () => void>();
  #firstStart: Promise<AdmissionOutcome> | null = null;
  #closed = false;

  /** @param nodes sorted by name */
  constructor(nodes: readonly RedisNode[], options: ResolvedOptions, runtime: Runtime) {
    this.#nodes = nodes;
    this.#options = options;
    this.#runtime = runtime;
  }

  /** A node is not admitted, or its votes do not count beside others': takes care of it in the background. */
  meet(index: number): void {
    if (!this.#under.has(index)) this.#after(index, 0);
  }

  close(): void {
    this.#closed = true;
    for (const cancel of this.#under.values()) cancel();
  }

  /**
   * Lets nodes vote for the first time, if all of them answer.
   *
   * Nodes are looked at twice. Where nothing changed between the two rounds, there was a moment at which all of them were
   * as seen, fewer than a majority voted, and so nobody could acquire; what the second round read covers every token
   * that was won before it. Several clients doing this at once do no harm: each ADMIT is carried out only by the very
   * incarnation that was inspected, and only once.
   */
  firstStart(): Promise<AdmissionOutcome> {
    this.#firstStart ??= this.#admitAll().finally(() => {
      this.#firstStart = null;
    });
    return this.#firstStart;
  }

  #after(index: number, delayMs: number): void {
    if (this.#closed) return;
    const cancel = this.#runtime.after(delayMs, () => void this.#tend(index), 'background');
    this.#under.set(index, cancel);
  }

  async #tend(index: number): Promise<void> {
    const waitMs = await this.#readmit(index);
    if (waitMs !== null) return this.#after(index, waitMs);
    // Attempts go on meeting a node that cannot be helped now; asking again at each of them would only be load.
    const forget = (): void => void this.#under.delete(index);
    this.#under.set(index, this.#runtime.after(RETRY_MS, forget, 'background'));
  }

  /** Null where nothing is left to do, else after how many milliseconds to try again. */
  async #readmit(subject: number): Promise<number | null> {
    const seen = await this.#inspect(subject);
    if (!seen || !this.#node(subject).isKnownAs(seen)) return null;
    const quarantineMs = this.#quarantineMs(subject, seen);
    if (!seen.admitted && seen.waitedMs < quarantineMs) return quarantineMs - seen.waitedMs;

    const admission = await this.#promised(subject, seen);
    // Where too few others vote, the next attempt to acquire will find out whether it is a first start.
    if (admission === null) return seen.admitted ? null : this.#retryMs();
    const request = this.#node(subject).admit(seen, admission, quarantineMs);
    const { answer } = await inTime(this.#runtime, request, NODE_TIMEOUT_MS);
    return answer === 'admitted' || answer === 'already-admitted' ? null : this.#retryMs();
  }

  /** Asks for promises until a majority has given them for one generation. */
  async #promised(subject: number, seen: Inspection): Promise<Admission | null> {
    // A node that votes asks for what it has: so it learns what else was promised, and nobody is told anything new.
    let generation: number | null = seen.generation + (seen.admitted ? 0 : 1);
    for (let round = 1; round <= ROUNDS_MAX && generation !== null; round += 1) {
      const replies = await this.#askForPromises(subject, seen.incarnation, generation);
      const promises = replies.flatMap((one) => (one.answer === 'promised' ? [one] : []));
      const admission = planReadmission(subject, generation, promises, this.#nodes.length);
      if (admission) return admission;
      const refusals = replies.flatMap((one) => (one.answer === 'refused' ? [one] : []));
      const next = nextGeneration(seen, generation, refusals);
      if (next === generation) return null;
      generation = next;
    }
    return null;
  }

  async #askForPromises(
    subject: number,
    incarnation: string,
    generation: number,
  ): Promise<({ readonly index: number } & PromiseReply)[]> {
    const name = this.#runtime.uniqueId();
    const peers = [...this.#nodes.keys()].filter((index) => index !== subject);
    return Promise.all(
      peers.map(async (index) => {
        const request = this.#node(index).promise(subject, incarnation, generation, name);
        return { index, ...(await inTime(this.#runtime, request, NODE_TIMEOUT_MS)) };
      }),
    );
  }

  /**
   * The Redis documentation asks that a node which crashed stays out for the longest TTL, as it may have forgotten a lease.
   * That protects mutual exclusion; tokens do not rest on it.
   */
  #quarantineMs(index: number, seen: Inspection): number {
    const forgotNothing = this.#node(index).durable && seen.generation > 0;
    return forgotNothing ? 0 : this.#options.maxTtlMs;
  }

  async #admitAll(): Promise<AdmissionOutcome> {
    let before = await this.#inspectAll();
    for (let round = 1; round <= ROUNDS_MAX; round += 1) {
      const after = before.silent.length > 0 ? before : await this.#inspectAll();
      if (after.silent.length > 0) return { ok: false, reason: silence(after.silent) };
      if (unchanged(before.inspections, after.inspections)) {
        return this.#carryOut(after.inspections);
      }
      before = after;
    }
    return { ok: false, reason: 'nodes keep restarting while they are being admitted' };
  }

  async #carryOut(inspections: readonly Inspection[]): Promise<AdmissionOutcome> {
    const stranger = inspections.findIndex((seen, index) => !this.#node(index).isKnownAs(seen));
    if (stranger !== -1) return { ok: false, reason: strange(this.#node(stranger)) };
    const names = this.#nodes.map((node) => node.name);
    const { firstToken } = this.#options;
    const wallClockUs = BigInt(Math.floor(this.#runtime.wallClockMs() * 1_000));
    const start = planFirstStart(names, inspections, { wallClockUs, firstToken });
    if (start.plan === 'refuse') return { ok: false, reason: start.reason };
    if (start.plan === 'not-needed') return { ok: true };
    await Promise.all(
      start.admissions.map((admission) => {
        const seen = inspections[admission.index];
        if (!seen) throw new Error(`node ${admission.index} was not inspected`);
        const request = this.#node(admission.index).admit(seen, admission, 0);
        return inTime(this.#runtime, request, NODE_TIMEOUT_MS);
      }),
    );
    // Whatever they answered, the next attempt will tell who votes.
    return { ok: true };
  }

  async #inspectAll(): Promise<Inspected> {
    const replies = await Promise.all([...this.#nodes.keys()].map((index) => this.#ask(index)));
    return {
      inspections: replies.flatMap((reply) => (reply.answer === 'inspected' ? [reply] : [])),
      silent: replies.flatMap((reply, at) =>
        reply.answer === 'error' ? [`${this.#nodes[at]?.name} (${reply.error.message})`] : [],
      ),
    };
  }

  async #inspect(index: number): Promise<Inspection | null> {
    const reply = await this.#ask(index);
    return reply.answer === 'inspected' ? reply : null;
  }

  #ask(index: number): Promise<InspectReply> {
    const request = this.#node(index).inspect(this.#runtime.uniqueId());
    return inTime(this.#runtime, request, NODE_TIMEOUT_MS);
  }

  #retryMs(): number {
    return RETRY_MS * (1 + this.#runtime.random());
  }

  #node(index: number): RedisNode {
    const node = this.#nodes[index];
    if (!node) throw new Error(`there is no node ${index}`);
    return node;
  }
}

interface Inspected {
  readonly inspections: readonly Inspection[];
  /** What each node that did not answer said instead. */
  readonly silent: readonly string[];
}

function silence(silent: readonly string[]): string {
  return `nodes without memory are admitted only while all nodes answer; bring back ${silent.join(', ')}`;
}

function strange(node: RedisNode): string {
  return `node ${node.name} was admitted by clients that name the nodes otherwise: configure the same names in every client`;
}
