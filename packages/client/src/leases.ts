import { checkSignal } from '@fenced/store/internal';
import { type Calls, pathOf } from './calls.js';
import { LeaseError } from './problems.js';
import type { Runtime } from './runtime.js';
import type { SignedTokens } from './signed-tokens.js';

export interface AcquireOptions {
  /** How long the lease lasts, in milliseconds, at most the gateway's `redis.maxTtlMs`. */
  readonly ttlMs: number;
  /** How long to wait while somebody else holds it, at most the gateway's `limits.waitMsMax`. @default 0 */
  readonly waitMs?: number;
  readonly signal?: AbortSignal;
}

/** What a gateway says of a lease. */
interface Told {
  readonly leaseId: string;
  readonly token: string;
  readonly remainingMs: number;
  /** How long the gateway itself took to get it. */
  readonly elapsedMs: number;
}

/** A lease that was had through a gateway; a `Lease` of `@fenced/lock` as far as a holder uses it. */
export class GatewayLease implements AsyncDisposable {
  readonly resource: string;
  /** Greater than the token of every earlier holder. What is written with it presents the gateway's signature, too. */
  readonly token: bigint;
  #signedToken: string;
  #id: string;
  readonly #leases: Leases;
  readonly #runtime: Runtime;
  readonly #controller = new AbortController();
  #deadlineMs: number;
  #cancelTimer: () => void = () => undefined;
  #released: Promise<'released' | 'expired' | 'unknown'> | undefined;

  /** Made by `acquire`. */
  constructor(
    facts: {
      readonly resource: string;
      readonly token: bigint;
      readonly signedToken: string;
      readonly leaseId: string;
      readonly deadlineMs: number;
    },
    leases: Leases,
    runtime: Runtime,
  ) {
    this.resource = facts.resource;
    this.token = facts.token;
    this.#signedToken = facts.signedToken;
    this.#id = facts.leaseId;
    this.#deadlineMs = facts.deadlineMs;
    this.#leases = leases;
    this.#runtime = runtime;
    this.#watch();
  }

  /**
   * The token with the gateway's signature, `34.k1.…`, for the header `Fencing-Token`, and for `adopt` in another process. An
   * extension renews the signature.
   */
  get signedToken(): string {
    return this.#signedToken;
  }

  /** Aborts, with a {@link LeaseError} as reason, when the lease may no longer be relied on. */
  get signal(): AbortSignal {
    this.remainingMs();
    return this.#controller.signal;
  }

  /** Milliseconds for which the lease may be relied on, by a monotonic clock; 0 when it is over. */
  remainingMs(): number {
    if (this.#controller.signal.aborted) return 0;
    const remainingMs = this.#deadlineMs - this.#runtime.nowMs();
    if (remainingMs > 0) return remainingMs;
    this.#lose('the lease is over: its time has passed');
    return 0;
  }

  /** Passes if at least `ms` milliseconds of the lease remain. @throws {LeaseError} `lease-lost` */
  ensure(ms = 1): void {
    if (this.remainingMs() >= ms && !this.#controller.signal.aborted) return;
    throw lost('not enough of the lease is left');
  }

  /**
   * Lets the lease last at least `ttlMs` from now on, with the same token.
   *
   * @throws {LeaseError} `lease-lost`; another one where it may still last until its deadline
   */
  async extend(ttlMs: number): Promise<void> {
    this.ensure();
    try {
      const extended = await this.#leases.extend(this.resource, this.#id, ttlMs);
      const { leaseId, signedToken, deadlineMs } = extended;
      this.ensure();
      // Their signatures are valid for longer.
      this.#id = leaseId;
      this.#signedToken = signedToken;
      this.#deadlineMs = Math.max(this.#deadlineMs, deadlineMs);
      this.#watch();
    } catch (error) {
      if (error instanceof LeaseError && error.code === 'lease-lost') this.#lose(error.message);
      throw error;
    }
  }

  /** Gives the lock up. Never throws; a second call has the outcome of the first. */
  release(): Promise<'released' | 'expired' | 'unknown'> {
    this.#released ??= this.#leases.release(this.resource, this.#id).catch(() => 'unknown');
    this.#lose('the lease was released');
    return this.#released;
  }

  /** For `JSON.stringify`. Without the lease's id: whoever knows that can release the lease. */
  toJSON(): object {
    const { resource, token } = this;
    return { resource, token: token.toString(), remainingMs: this.remainingMs() };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  #watch(): void {
    this.#cancelTimer();
    const delayMs = Math.max(0, Math.ceil(this.#deadlineMs - this.#runtime.nowMs()));
    this.#cancelTimer = this.#runtime.after(delayMs, () => {
      // Timers may fire a little early by the clock that counts.
      if (this.remainingMs() > 0) this.#watch();
    });
  }

  #lose(detail: string): void {
    this.#cancelTimer();
    this.#controller.abort(lost(detail));
  }
}

/** The lease routes of a gateway. */
export class Leases {
  readonly #calls: Calls;
  readonly #tokens: SignedTokens;
  readonly #runtime: Runtime;

  constructor(calls: Calls, tokens: SignedTokens, runtime: Runtime) {
    this.#calls = calls;
    this.#tokens = tokens;
    this.#runtime = runtime;
  }

  async acquire(resource: string, options: AcquireOptions): Promise<GatewayLease> {
    const { ttlMs, waitMs = 0, signal } = options;
    checkSignal('signal', signal);
    const told = await this.#ask('POST', resource, '', { ttlMs, waitMs }, signal);
    return new GatewayLease({ resource, ...told }, this, this.#runtime);
  }

  async extend(
    resource: string,
    leaseId: string,
    ttlMs: number,
  ): Promise<{
    readonly leaseId: string;
    readonly signedToken: string;
    readonly deadlineMs: number;
  }> {
    return this.#ask('PATCH', resource, `/${leaseId}`, { ttlMs });
  }

  async release(resource: string, leaseId: string): Promise<'released' | 'expired'> {
    const answer = await this.#calls.ask({
      ...{ method: 'DELETE', path: `leases/${resource}/${leaseId}`, resource, isWrite: false },
    });
    if (!answer.ok) throw new LeaseError(answer.problem);
    return ((await answer.response.json()) as { outcome: 'released' | 'expired' }).outcome;
  }

  async #ask(
    method: 'POST' | 'PATCH',
    resource: string,
    suffix: string,
    body: object,
    signal?: AbortSignal,
  ) {
    pathOf(resource);
    const sentMs = this.#runtime.nowMs();
    const answer = await this.#calls.ask({
      ...{ method, path: `leases/${resource}${suffix}`, resource, isWrite: false, signal },
      headers: { 'Content-Type': 'application/json' },
      body: Buffer.from(JSON.stringify(body)),
    });
    if (!answer.ok) throw new LeaseError(answer.problem);
    const { leaseId, token, remainingMs, elapsedMs } = (await answer.response.json()) as Told;
    // Invariant: never later than the true deadline. The answer cannot have left the gateway before `sentMs + elapsedMs`.
    const deadlineMs = sentMs + elapsedMs + remainingMs;
    return {
      ...{ leaseId, deadlineMs, signedToken: token },
      token: this.#tokens.keep(token, resource),
    };
  }
}

function lost(detail: string): LeaseError {
  return new LeaseError({ code: 'lease-lost', detail, retryAfterMs: undefined });
}
