import { PATIENCE_MS } from './attempt.js';
import type { Holding, Nodes } from './redis/nodes.js';
import type { Runtime } from './runtime.js';

/** After how long what was in the way may be gone, at first and at most. */
const AGAIN_MIN_MS = 20;
const AGAIN_MAX_MS = 1_000;

/**
 * Has a lease that a bare majority granted held by the rest of the nodes, too, if it is kept: so that it can be extended when one of the
 * first is lost. Goes on until all of them hold it, or it has ended.
 */
export class Rest {
  readonly #nodes: Nodes;
  readonly #holding: Holding;
  readonly #token: bigint;
  readonly #runtime: Runtime;
  readonly #missing: Set<number>;
  #ttlMs: number;
  #deadlineMs: number;
  #againMs = AGAIN_MIN_MS;
  #cancel: () => void;

  constructor(
    nodes: Nodes,
    holding: Holding,
    lease: { readonly token: bigint; readonly deadlineMs: number; readonly ttlMs: number },
    runtime: Runtime,
  ) {
    this.#nodes = nodes;
    this.#holding = holding;
    this.#token = lease.token;
    this.#ttlMs = lease.ttlMs;
    this.#deadlineMs = lease.deadlineMs;
    this.#runtime = runtime;
    this.#missing = new Set(nodes.first.rest);
    this.#cancel = nodes.after(Math.min(PATIENCE_MS, lease.ttlMs / 4), () => this.ask());
  }

  /** Now: there is a reason not to wait. */
  ask(): void {
    this.#cancel();
    const isOver = this.#holding.isGivenUp || this.#runtime.nowMs() >= this.#deadlineMs;
    if (isOver || this.#missing.size === 0) return;
    let unanswered = this.#missing.size;
    this.#nodes.keep(
      [...this.#missing],
      this.#holding,
      this.#token,
      this.#ttlMs,
      (index, { answer }) => {
        unanswered -= 1;
        if (answer === 'granted') this.#missing.delete(index);
        if (unanswered === 0) this.#askAgain();
      },
    );
  }

  /** The lease lasts longer now. */
  extended(ttlMs: number, deadlineMs: number): void {
    this.#ttlMs = ttlMs;
    this.#deadlineMs = deadlineMs;
  }

  /** The lease is given up. */
  end(): void {
    this.#cancel();
  }

  #askAgain(): void {
    if (this.#missing.size === 0 || this.#holding.isGivenUp) return;
    this.#cancel();
    this.#cancel = this.#nodes.after(this.#againMs, () => this.ask());
    this.#againMs = Math.min(AGAIN_MAX_MS, 2 * this.#againMs);
  }
}
