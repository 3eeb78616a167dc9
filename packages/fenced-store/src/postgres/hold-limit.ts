import { isServerError } from './client.js';
import { IN_FAILED_TRANSACTION } from './failures.js';
import type { Session } from './session.js';

/** A limit that differs by less from the lease's remaining time is not renewed. */
const SLACK_MS = 50;

/**
 * The time limit that the server keeps for a fenced transaction. The first limit goes to the server
 * with the token. From PostgreSQL 17 on, the server counts it for the whole transaction. Before
 * that, each statement and each pause between two has the whole limit.
 */
export class HoldLimit {
  readonly #session: Session;
  #sentAtMs = 0;
  #endsAtMs = 0;
  /** True if the server counts the limit for the whole transaction. */
  isForAll = false;

  constructor(session: Session, limitMs: number) {
    this.#session = session;
    this.#startWith(limitMs);
  }

  get isOver(): boolean {
    return this.#session.runtime.nowMs() >= this.#endsAtMs;
  }

  /**
   * Sends the lease's remaining time as the new limit if the lease was extended. Before PostgreSQL
   * 17, also sends it as the lease runs out, because the next statement would have the old limit.
   */
  async renew(limitMs: number): Promise<void> {
    const nowMs = this.#session.runtime.nowMs();
    const isExtended = nowMs + limitMs > this.#endsAtMs + SLACK_MS;
    const isOutdated = !this.isForAll && nowMs > this.#sentAtMs + SLACK_MS;
    if (!isExtended && !isOutdated) return;
    this.#startWith(limitMs);
    try {
      await this.#session.query('SELECT fenced.hold($1::integer)', [limitMs]);
    } catch (error) {
      // The transaction has failed. The caller's statement may roll back to a savepoint.
      if (!isServerError(error) || error.code !== IN_FAILED_TRANSACTION) throw error;
    }
  }

  #startWith(limitMs: number): void {
    this.#sentAtMs = this.#session.runtime.nowMs();
    this.#endsAtMs = this.#sentAtMs + limitMs;
  }
}
