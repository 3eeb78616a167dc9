import { LeaseLostError } from '../core/errors.js';
import type { Lease } from '../lease/lease.js';

/** The part of a lease that an election needs. The leases of all lock services have it. */
export interface ElectionLease extends Pick<Lease, 'token' | 'signal' | 'remainingMs' | 'extend'> {
  release(): Promise<unknown>;
}

/** One term of this process as the leader. */
export interface Leadership {
  readonly resource: string;
  /** Greater than the token of every earlier leader: present it with each write. */
  readonly token: bigint;
  /** Aborts when this process may no longer rely on leading. */
  readonly signal: AbortSignal;
  /**
   * Milliseconds for which this process may rely on leading, without a further extension; 0 when
   * the term is over.
   */
  remainingMs(): number;
  /**
   * Passes if at least `ms` milliseconds remain. The process may pause right after this call, so
   * only the storage's check of the token protects a write.
   *
   * @throws {LeaseLostError}
   */
  ensure(ms?: number): void;
}

/** A leadership, with the parts that are for its elector alone. */
export class Term implements Leadership {
  readonly resource: string;
  readonly token: bigint;
  readonly #lease: ElectionLease;
  /** The notice that is on its way to the board; null if there is none. It never rejects. */
  publishing: Promise<void> | null = null;
  readonly #end = new AbortController();
  readonly #signal: AbortSignal;

  constructor(resource: string, lease: ElectionLease) {
    this.resource = resource;
    this.token = lease.token;
    this.#lease = lease;
    this.#signal = AbortSignal.any([this.#end.signal, lease.signal]);
  }

  get signal(): AbortSignal {
    // After a pause of the process, this may run before the timer that ends the lease.
    if (this.#lease.remainingMs() === 0) this.#abort('the lease of the leader is over');
    return this.#signal;
  }

  remainingMs(): number {
    return this.signal.aborted ? 0 : this.#lease.remainingMs();
  }

  ensure(ms = 1): void {
    if (this.remainingMs() >= ms && !this.#signal.aborted) return;
    const { cause, message } = Object(this.#signal.reason);
    throw new LeaseLostError(message ?? `not enough of the lease is left neededMs=${ms}`, {
      cause,
    });
  }

  /** For `JSON.stringify`. */
  toJSON(): object {
    const { resource, token } = this;
    return { resource, token: String(token), remainingMs: this.remainingMs() };
  }

  /**
   * Lets the term last for `ttlMs` from now on. If that fails, the term goes on while its lease
   * lasts, and the next call tries again.
   */
  async extend(ttlMs: number): Promise<void> {
    await this.#lease.extend(ttlMs).catch(() => {});
    this.ensure();
  }

  /** Ends the term, with that reason, and releases the lease. */
  async end(reason: string, cause?: unknown): Promise<void> {
    this.#abort(reason, cause);
    await this.#lease.release();
  }

  #abort(reason: string, cause?: unknown): void {
    const { resource, token } = this;
    const message = `${reason} resource=${resource} token=${token}`;
    this.#end.abort(new LeaseLostError(message, { cause }));
  }
}
