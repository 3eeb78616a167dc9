import { LATE_MS } from '../core/preferred-majority.js';
import { driftMs } from '../core/validity.js';
import type { Nodes, Ownership } from '../redis/nodes.js';
import { bringBack } from './extend.js';

/** The first and the longest pause between two tries, in milliseconds. Each is twice the last. */
const RETRY_MIN_MS = 20;
const RETRY_MAX_MS = 1_000;

/**
 * Copies a lease that a bare majority granted to the remaining nodes if the holder keeps it.
 * The lease can then be extended after the loss of one of the first nodes.
 *
 * It ends when all nodes hold the lease, when the lease is over, or when another process may have
 * released it.
 */
export class Backfill {
  readonly #nodes: Nodes;
  readonly #ownership: Ownership;
  readonly #token: bigint;
  #missing: readonly number[];
  #deadlineMs: number;
  #retryMs = RETRY_MIN_MS;
  #isShared = false;
  #isSending = false;
  #wasSent = false;
  #cancelTimer: (() => void) | null = null;

  /**
   * @param token the highest token that the nodes have stored for the lease
   * @param missing the nodes that do not hold the lease
   */
  constructor(
    nodes: Nodes,
    ownership: Ownership,
    token: bigint,
    deadlineMs: number,
    missing: readonly number[],
  ) {
    this.#nodes = nodes;
    this.#ownership = ownership;
    this.#token = token;
    this.#deadlineMs = deadlineMs;
    this.#missing = missing;
    this.begin();
  }

  /**
   * Plans the first try. It comes some milliseconds later, because a lease that is released so soon
   * needs no copies. After a hand-over, this begins again: the successor's lease may be as short.
   */
  begin(): void {
    if (!this.#wasSent) this.#sendAfter(Math.min(LATE_MS, this.#leftMs / 4));
  }

  /** @param ttlMs the nodes hold the lease for its remaining time, or for this time if longer */
  async send(ttlMs = 0): Promise<void> {
    this.end();
    if (this.#missing.length === 0 || (this.#isSending && ttlMs === 0)) return;
    const leftMs = this.#leftMs;
    if (this.#ownership.isReleased || leftMs <= 0) return;
    this.#isSending = true;
    this.#wasSent = true;
    const keptMs = Math.max(ttlMs, Math.ceil(leftMs + driftMs(leftMs)));
    const token = { number: this.#token.toString() };
    const broadcast = this.#nodes.backfill(this.#missing, this.#ownership, token, keptMs);
    broadcast.listener = {
      onAnswer: (index, reply) => {
        if (reply.answer === 'granted') {
          this.#missing = this.#missing.filter((other) => other !== index);
        }
        if (reply.answer === 'not-held' && reply.tokenBound) {
          const bounds = new Map([[index, reply.tokenBound]]);
          void bringBack(this.#nodes, this.#ownership, this.#token, bounds, keptMs);
        }
      },
    };
    while (!broadcast.isAnswered) await broadcast.change();
    this.#isSending = false;
    if (this.#isShared || this.#missing.length === 0 || this.#ownership.isReleased) return;
    this.#sendAfter(this.#retryMs);
    this.#retryMs = Math.min(RETRY_MAX_MS, 2 * this.#retryMs);
  }

  /**
   * Sends once more, but makes no further tries. From now on, another process may release the lease
   * by its owner id. A later try would write a released lease to nodes.
   */
  share(): void {
    if (this.#isShared) return;
    this.#isShared = true;
    void this.send();
  }

  /** Notes that the lease lasts longer. */
  extended(deadlineMs: number): void {
    this.#deadlineMs = deadlineMs;
  }

  /** Stops when the lease is given up. */
  end(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = null;
  }

  get #leftMs(): number {
    return this.#deadlineMs - this.#nodes.runtime.nowMs();
  }

  #sendAfter(delayMs: number): void {
    this.end();
    this.#cancelTimer = this.#nodes.after(delayMs, () => void this.send());
  }
}
