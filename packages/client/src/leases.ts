import { checkFunction, checkSignal } from '@fenced/store/internal';
import { type GatewayHttp, pathOf } from './http.js';
import { LeaseError, type LeaseErrorCode, type ProblemDocument } from './problems.js';
import type { Runtime } from './runtime.js';
import type { SignedTokens } from './signed-tokens.js';

/** The least time between two extensions. */
const PAUSE_MIN_MS = 5;

export interface AcquireOptions {
  /** Milliseconds that the lease lasts, at most the gateway's `redis.maxTtlMs`. */
  readonly ttlMs: number;
  /**
   * Milliseconds to wait while another client holds the lock, at most the gateway's
   * `limits.waitMsMax`.
   *
   * @default 0
   */
  readonly waitMs?: number;
  readonly signal?: AbortSignal;
}

/**
 * A lease that a gateway granted. It has the members of `Lease` of `@fenced/lock` that a holder
 * uses.
 */
export class GatewayLease implements AsyncDisposable {
  /** The one resource that it locks. */
  readonly resources: readonly [string];
  /**
   * Greater than the token of every earlier holder. A write with it also presents the gateway's
   * signature.
   */
  readonly token: bigint;
  #id: string;
  #signedToken: string;
  readonly #leases: Leases;
  readonly #runtime: Runtime;
  readonly #controller = new AbortController();
  #deadlineMs: number;
  #cancelTimer: () => void = () => undefined;
  #released: Promise<'released' | 'expired' | 'unknown'> | undefined;

  /** Made by `acquire`. */
  constructor(facts: Granted & { readonly resource: string }, leases: Leases, runtime: Runtime) {
    this.resources = [facts.resource];
    this.token = facts.token;
    this.#id = facts.leaseId;
    this.#signedToken = facts.signedToken;
    this.#deadlineMs = facts.deadlineMs;
    this.#leases = leases;
    this.#runtime = runtime;
    this.#watch();
  }

  /**
   * The token with the gateway's signature, `34.k1.…`, for the header `Fencing-Token`, and for
   * `adopt` in another process. An extension renews the signature.
   */
  get signedToken(): string {
    return this.#signedToken;
  }

  /** Aborts when the lease is over, with a {@link LeaseError} as reason. */
  get signal(): AbortSignal {
    this.remainingMs();
    return this.#controller.signal;
  }

  /** Milliseconds for which the lease is valid, by a monotonic clock; 0 when it is over. */
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
   * @throws {LeaseError} `lease-lost`; after another code the lease may still last until its
   *   deadline
   */
  async extend(ttlMs: number): Promise<void> {
    this.ensure();
    try {
      const extended = await this.#leases.extend(this.resources[0], this.#id, ttlMs);
      this.ensure();
      // Their signatures are valid for longer.
      this.#id = extended.leaseId;
      this.#signedToken = extended.signedToken;
      this.#deadlineMs = Math.max(this.#deadlineMs, extended.deadlineMs);
      this.#watch();
    } catch (error) {
      if (error instanceof LeaseError && error.code === 'lease-lost') this.#lose(error.message);
      throw error;
    }
  }

  /** Releases the lock. Never throws. A second call returns the outcome of the first. */
  release(): Promise<'released' | 'expired' | 'unknown'> {
    this.#released ??= this.#leases.release(this.resources[0], this.#id).catch(() => 'unknown');
    this.#lose('the lease was released');
    return this.#released;
  }

  /** For `JSON.stringify`. It leaves out the lease's id, because that can release the lease. */
  toJSON(): object {
    const { resources, token } = this;
    return { resources, token: token.toString(), remainingMs: this.remainingMs() };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  #watch(): void {
    this.#cancelTimer();
    const delayMs = Math.max(0, Math.ceil(this.#deadlineMs - this.#runtime.nowMs()));
    this.#cancelTimer = this.#runtime.after(delayMs, () => {
      // Timers may fire a little early by the monotonic clock.
      if (this.remainingMs() > 0) this.#watch();
    });
  }

  #lose(detail: string): void {
    this.#cancelTimer();
    this.#controller.abort(lost(detail));
  }
}

interface Granted {
  readonly leaseId: string;
  readonly token: bigint;
  readonly signedToken: string;
  readonly deadlineMs: number;
}

/** The lease routes of a gateway. */
export class Leases {
  readonly #http: GatewayHttp;
  readonly #tokens: SignedTokens;
  readonly #runtime: Runtime;

  constructor(http: GatewayHttp, tokens: SignedTokens, runtime: Runtime) {
    this.#http = http;
    this.#tokens = tokens;
    this.#runtime = runtime;
  }

  async acquire(resource: string, options: AcquireOptions): Promise<GatewayLease> {
    const { ttlMs, waitMs = 0, signal } = options;
    checkSignal('signal', signal);
    const granted = await this.#grant('POST', resource, '', { ttlMs, waitMs }, signal);
    return new GatewayLease({ resource, ...granted }, this, this.#runtime);
  }

  async using<Result>(
    resource: string,
    options: AcquireOptions,
    routine: (lease: GatewayLease) => Promise<Result> | Result,
  ): Promise<Result> {
    checkFunction('routine', routine);
    const ended = new AbortController();
    await using lease = await this.acquire(resource, options);
    const signal = AbortSignal.any([lease.signal, ended.signal]);
    // It ends with the routine or the lease, whose signals end the sleep.
    this.#keepAlive(lease, options.ttlMs, signal).catch(() => undefined);
    try {
      const result = await routine(lease);
      lease.ensure();
      return result;
    } finally {
      ended.abort();
    }
  }

  /** Extends the lease each time half of the rest has passed. */
  async #keepAlive(lease: GatewayLease, ttlMs: number, signal: AbortSignal): Promise<void> {
    for (;;) {
      await this.#runtime.sleep(Math.max(PAUSE_MIN_MS, lease.remainingMs() / 2), signal);
      // After a failure, the next try follows within the rest of the lease.
      await lease.extend(ttlMs).catch(() => undefined);
    }
  }

  extend(resource: string, leaseId: string, ttlMs: number): Promise<Granted> {
    return this.#grant('PATCH', resource, `/${leaseId}`, { ttlMs });
  }

  async release(resource: string, leaseId: string): Promise<'released' | 'expired'> {
    const response = await this.#send('DELETE', resource, `/${leaseId}`, {});
    return ((await response.json()) as { outcome: 'released' | 'expired' }).outcome;
  }

  async #grant(
    method: 'POST' | 'PATCH',
    resource: string,
    suffix: string,
    times: { readonly ttlMs: number; readonly waitMs?: number },
    signal?: AbortSignal,
  ): Promise<Granted> {
    pathOf(resource);
    const sentMs = this.#runtime.nowMs();
    const body = Buffer.from(JSON.stringify(times));
    const headers = { 'Content-Type': 'application/json' };
    const sent = { headers, body, signal };
    const response = await this.#send(method, resource, suffix, sent, times.waitMs);
    const { leaseId, token, remainingMs, elapsedMs } = (await response.json()) as {
      readonly [name in 'leaseId' | 'token']: string;
    } & { readonly [name in 'remainingMs' | 'elapsedMs']: number };
    // Invariant: never later than the true deadline. The answer cannot have left the gateway before
    // `sentMs + elapsedMs`.
    const deadlineMs = sentMs + elapsedMs + remainingMs;
    return { leaseId, deadlineMs, signedToken: token, token: this.#tokens.keep(token, resource) };
  }

  async #send(
    method: 'POST' | 'PATCH' | 'DELETE',
    resource: string,
    suffix: string,
    sent: Pick<Parameters<GatewayHttp['ask']>[0], 'headers' | 'body' | 'signal'>,
    waitMs = 0,
  ): Promise<Response> {
    const path = `leases/${resource}${suffix}`;
    const answer = await this.#http.ask({ method, path, resource, isWrite: false, ...sent });
    if (answer.ok) return answer.response;
    throw new LeaseError({ ...answer.problem, code: codeOf(answer.problem, waitMs) });
  }
}

/** The code of the same failure in `@fenced/lock`, or the gateway's own. */
function codeOf({ code }: ProblemDocument, waitMs: number): LeaseErrorCode | null {
  if (code === 'held' && waitMs > 0) return 'timeout';
  if (code === 'invalid-request' || code === 'invalid-path') return 'invalid-argument';
  return code;
}

function lost(detail: string): LeaseError {
  return new LeaseError({ code: 'lease-lost', detail, retryAfterMs: undefined });
}
