import type { VoteReply } from '../core/answers.js';
import { PATIENCE_MS } from '../core/first-asked.js';
import { driftMs } from '../core/validity.js';
import type { Holding, Nodes } from '../redis/nodes.js';
import type { Runtime } from '../runtime/runtime.js';
import { writeBack } from './holding.js';

const nothing = (): void => {};

/** After how long what was in the way may be gone, at first and at most. */
const AGAIN_MIN_MS = 20;
const AGAIN_MAX_MS = 1_000;

/**
 * Copies a lease that a bare majority granted to the remaining nodes if the holder keeps it.
 * The lease can then be extended after the loss of one of the first nodes.
 *
 * It ends when all nodes hold the lease, when the lease is over, or when another process may have
 * released it.
 */
export class Backfill {
  readonly #nodes: Nodes;
  readonly #holding: Holding;
  readonly #token: bigint;
  readonly #runtime: Runtime;
  #missing: readonly number[];
  #deadlineMs: number;
  #againMs = AGAIN_MIN_MS;
  #isShared = false;
  #isAsking = false;
  #wasAsked = false;
  #cancel: () => void = nothing;

  constructor(
    nodes: Nodes,
    holding: Holding,
    lease: {
      readonly token: bigint;
      readonly deadlineMs: number;
      readonly unasked: readonly number[];
    },
    runtime: Runtime,
  ) {
    this.#nodes = nodes;
    this.#holding = holding;
    this.#token = lease.token;
    this.#deadlineMs = lease.deadlineMs;
    this.#runtime = runtime;
    this.#missing = lease.unasked;
    this.begin();
  }

  /** As if the lease began now: it has been handed on, and the next may be as short. What was asked for already goes on. */
  begin(): void {
    if (this.#wasAsked) return;
    this.#cancel();
    const delayMs = Math.min(PATIENCE_MS, this.#leftMs / 4);
    this.#cancel = this.#nodes.after(delayMs, () => this.ask());
  }

  /**
   * Now: there is a reason not to wait.
   *
   * @param ttlMs for how long they are to hold it, where that is longer than the lease lasts
   */
  ask(ttlMs = 0): void {
    this.end();
    if (this.#missing.length === 0 || (this.#isAsking && ttlMs === 0)) return;
    const leftMs = this.#leftMs;
    if (this.#holding.isGivenUp || leftMs <= 0) return;
    this.#isAsking = true;
    this.#wasAsked = true;
    let unanswered = this.#missing.length;
    const keptMs = Math.max(ttlMs, Math.ceil(leftMs + driftMs(leftMs)));
    const hear = (index: number, reply: VoteReply): void => {
      if (reply.answer === 'granted') {
        this.#missing = this.#missing.filter((other) => other !== index);
      }
      if (reply.answer === 'not-held' && reply.given) {
        const told = new Map([[index, reply.given]]);
        void writeBack(this.#nodes, this.#holding, told, keptMs, this.#runtime);
      }
      unanswered -= 1;
      if (unanswered > 0) return;
      this.#isAsking = false;
      if (!this.#isShared) this.#askAgain();
    };
    const token = { number: this.#token.toString() };
    this.#nodes.keep(this.#missing, this.#holding, token, keptMs, hear);
  }

  /** Others are about to know the owner: they may release the lease. What is asked after that could lock everybody out. */
  share(): void {
    if (this.#isShared) return;
    this.#isShared = true;
    this.ask();
  }

  /** The lease lasts longer now. */
  extended(deadlineMs: number): void {
    this.#deadlineMs = deadlineMs;
  }

  /** The lease is given up. */
  end(): void {
    this.#cancel();
    // A lease may be held for long: it needs no timer that is over.
    this.#cancel = nothing;
  }

  get #leftMs(): number {
    return this.#deadlineMs - this.#runtime.nowMs();
  }

  #askAgain(): void {
    if (this.#missing.length === 0 || this.#holding.isGivenUp) return;
    this.end();
    this.#cancel = this.#nodes.after(this.#againMs, () => this.ask());
    this.#againMs = Math.min(AGAIN_MAX_MS, 2 * this.#againMs);
  }
}
