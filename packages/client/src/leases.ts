import { checkFunction, checkOptions, checkSignal } from '@fenced/store/internal';
import type { GatewayHttp, GatewayRequest } from './http.js';
import {
  abortForClose,
  GatewayLease,
  type Granted,
  type LeaseClient,
  type ReleaseOutcome,
} from './lease.js';
import {
  ACQUIRE_FIELDS,
  type AcquireOptions,
  type CloseOptions,
  type CloseResult,
  checkHeld,
  drainMsOf,
  type LeaseReference,
  maxHoldMsOf,
  type Resources,
  resourcesOf,
  TIMES,
  TRY_FIELDS,
  type TryAcquireOptions,
  USING_FIELDS,
  type UsingOptions,
} from './lease-arguments.js';
import { LeaseError, type LeaseErrorCode, type ProblemDocument } from './problems.js';
import { Routines } from './routines.js';
import type { Runtime } from './runtime.js';
import type { SignedTokens } from './signed-tokens.js';

/**
 * Time to wait for the answer to an abandoned acquisition. If the answer grants a lease, it is
 * released.
 */
const LATE_ANSWER_MS = 2_500;
/**
 * Pauses between the requests of a wait, after failures that pass. They double, and half of each is
 * random.
 */
const PAUSE_FIRST_MS = 50;
const PAUSE_MAX_MS = 2_000;

/** Failures that are a result of `tryAcquire`. All others are errors of the call or the key. */
const FAILURES = [
  'held',
  'no-quorum',
  'lock-setup',
  'unavailable',
  'overloaded',
  'shutting-down',
  'too-many-requests',
] as const;

/**
 * Failures that pass, after which a wait asks again. `held` is not one of them: the gateway itself
 * waits for the lock.
 */
const PASSING: readonly unknown[] = FAILURES.filter(
  (code) => !['held', 'lock-setup'].includes(code),
);

/** A lease, or the reason why there is none. */
export type AcquireResult =
  | { readonly ok: true; readonly lease: GatewayLease }
  | {
      readonly ok: false;
      readonly reason: (typeof FAILURES)[number] | 'aborted';
      /** Milliseconds after which another acquisition could win; 0 if nothing is known. */
      readonly retryAfterMs: number;
      /** The error that `acquire` would have thrown. */
      readonly error: unknown;
    };

/** The lease routes of a gateway. */
export class Leases implements LeaseClient {
  readonly runtime: Runtime;
  readonly #http: GatewayHttp;
  readonly #tokens: SignedTokens;
  readonly #closing = new AbortController();
  /** The leases of this client that have not ended, by the first part of their ids. */
  readonly #held = new Map<string, GatewayLease>();
  readonly #routines: Routines;
  #closed: Promise<CloseResult> | undefined;
  /** Acquisitions under way, and releases of leases that came too late for their callers. */
  readonly #work = new Set<Promise<unknown>>();

  constructor(http: GatewayHttp, tokens: SignedTokens, runtime: Runtime) {
    this.#http = http;
    this.#tokens = tokens;
    this.runtime = runtime;
    this.#routines = new Routines(runtime);
  }

  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  acquire(resource: Resources, options: AcquireOptions): Promise<GatewayLease> {
    return this.#tracked(this.#acquire(resource, options, ACQUIRE_FIELDS));
  }

  /** Waits for up to `waitMs`, also while no gateway can be reached. */
  async #acquire(
    resource: Resources,
    options: UsingOptions,
    fields: readonly string[],
  ): Promise<GatewayLease> {
    const resources = resourcesOf(resource);
    checkOptions(options, fields, TIMES);
    const { ttlMs, waitMs = 0, signal: given } = options;
    const maxHoldMs = maxHoldMsOf(options);
    checkSignal('signal', given);
    const signal = AbortSignal.any([this.#closing.signal, ...(given ? [given] : [])]);
    const endMs = this.runtime.nowMs() + waitMs;
    let leftMs = waitMs;
    for (let attempt = 1; ; attempt += 1) {
      signal.throwIfAborted();
      try {
        const granted = await this.#granted(resources, { ttlMs, waitMs: leftMs }, signal);
        const lease = new GatewayLease(resources, granted, maxHoldMs, this);
        this.#held.set(nameOf(granted.leaseId), lease);
        return lease;
      } catch (error) {
        const pauseMs = this.#pauseMs(attempt, error);
        leftMs = Math.floor(endMs - this.runtime.nowMs() - pauseMs);
        if (leftMs < 1 || !PASSING.includes(Object(error).code)) throw error;
        await this.runtime.sleep(pauseMs, signal);
      }
    }
  }

  #pauseMs(attempt: number, error: unknown): number {
    const ceilingMs = Math.min(PAUSE_MAX_MS, PAUSE_FIRST_MS * 2 ** (attempt - 1));
    const jitteredMs = (ceilingMs / 2) * (1 + this.runtime.random());
    return Math.max(jitteredMs, Object(error).retryAfterMs ?? 0);
  }

  /**
   * Asks once. A lease that comes too late for the caller is released, so that other clients need
   * not wait until it expires.
   */
  async #granted(
    resources: readonly string[],
    times: { readonly ttlMs: number; readonly waitMs: number },
    signal: AbortSignal,
  ): Promise<Granted> {
    const late = new AbortController();
    const { promise: aborted, reject } = Promise.withResolvers<never>();
    const giveUp = (): void => {
      reject(signal.reason);
      const end = (): void => late.abort(signal.reason);
      if (times.waitMs > 0) end();
      else this.runtime.after(LATE_ANSWER_MS, end);
    };
    signal.addEventListener('abort', giveUp, { once: true });
    const asked = this.#grant(resources, null, times, late.signal);
    try {
      const granted = await Promise.race([asked, aborted]);
      signal.throwIfAborted();
      if (granted.deadlineMs <= this.runtime.nowMs()) throw tooLate();
      return granted;
    } catch (error) {
      const undone = asked.then(({ leaseId }) => this.releaseHeld(resources, leaseId));
      this.#tracked(undone).catch(() => undefined);
      throw error;
    } finally {
      signal.removeEventListener('abort', giveUp);
    }
  }

  /** Registers work for which `close` waits. */
  #tracked<Result>(work: Promise<Result>): Promise<Result> {
    const end = (): void => void this.#work.delete(work);
    this.#work.add(work);
    work.then(end, end);
    return work;
  }

  async tryAcquire(resource: Resources, options: TryAcquireOptions): Promise<AcquireResult> {
    checkOptions(options, TRY_FIELDS, TIMES);
    const { ttlMs, signal } = options;
    checkSignal('signal', signal);
    signal?.throwIfAborted();
    this.#closing.signal.throwIfAborted();
    try {
      const lease = await this.acquire(resource, { ttlMs, ...(signal && { signal }) });
      return { ok: true, lease };
    } catch (error) {
      const isAborted = signal?.aborted || this.#closing.signal.aborted;
      const reason = isAborted ? 'aborted' : failureOf(error);
      if (reason === undefined) throw error;
      return { ok: false, reason, retryAfterMs: Object(error).retryAfterMs ?? 0, error };
    }
  }

  async using<Result>(
    resource: Resources,
    options: UsingOptions,
    routine: (lease: GatewayLease) => Promise<Result> | Result,
  ): Promise<Result> {
    checkFunction('routine', routine);
    const lease = await this.#tracked(this.#acquire(resource, options, USING_FIELDS));
    // If `close` was called at this moment, it releases the lease: it does not know the routine.
    this.#closing.signal.throwIfAborted();
    const times = { ttlMs: options.ttlMs, maxHoldMs: maxHoldMsOf(options) };
    return this.#routines.run(lease, times, routine);
  }

  async extend(held: LeaseReference, ttlMs: number): Promise<number> {
    const { resources, owner } = checkHeld(held);
    const { deadlineMs } = await this.extendHeld(resources, owner, ttlMs);
    return Math.max(0, deadlineMs - this.runtime.nowMs());
  }

  async release(held: LeaseReference): Promise<ReleaseOutcome> {
    const { resources, owner } = checkHeld(held);
    const own = this.#held.get(nameOf(owner));
    if (own) return own.release();
    return this.releaseHeld(resources, owner).catch((error: unknown) => {
      if (failureOf(error) === undefined) throw error;
      return 'unknown';
    });
  }

  close(options: CloseOptions): Promise<CloseResult> {
    const drainMs = drainMsOf(options);
    this.#closed ??= this.#close(drainMs);
    return this.#closed;
  }

  async #close(drainMs: number): Promise<CloseResult> {
    const detail = 'this FencedGateway was closed';
    this.#closing.abort(new LeaseError({ code: 'closed', detail, retryAfterMs: undefined }));
    for (const lease of this.#held.values()) abortForClose(lease);
    const abandoned = await this.#routines.drain(drainMs);
    const released = [...this.#held.values()].filter((lease) => !abandoned.has(lease));
    await Promise.all(released.map((lease) => lease.release()));
    // Work that ends may begin the release of its lease.
    while (this.#work.size > 0) await Promise.allSettled(this.#work);
    return { abandoned: [...abandoned.values()] };
  }

  extendHeld(
    resources: readonly string[],
    leaseId: string,
    ttlMs: number,
    signal?: AbortSignal,
  ): Promise<Granted> {
    return this.#grant(resources, leaseId, { ttlMs }, signal);
  }

  async releaseHeld(resources: readonly string[], leaseId: string): Promise<ReleaseOutcome> {
    const [resource = '', second] = resources;
    const response =
      second === undefined
        ? await this.#send(resource, 'DELETE', `leases/${resource}/${leaseId}`)
        : await this.#send(resource, 'POST', `lease-sets/${leaseId}/release`, { resources });
    return ((await response.json()) as { outcome: ReleaseOutcome }).outcome;
  }

  ended(leaseId: string): void {
    this.#held.delete(nameOf(leaseId));
  }

  /** @param leaseId null for a new lease */
  async #grant(
    resources: readonly string[],
    leaseId: string | null,
    times: { readonly ttlMs: number; readonly waitMs?: number },
    signal?: AbortSignal,
  ): Promise<Granted> {
    const [resource = '', second] = resources;
    const sentMs = this.runtime.nowMs();
    const response =
      second === undefined
        ? await (leaseId === null
            ? this.#send(resource, 'POST', `leases/${resource}`, times, signal)
            : this.#send(resource, 'PATCH', `leases/${resource}/${leaseId}`, times, signal))
        : await this.#send(
            ...([resources.join(','), 'POST'] as const),
            leaseId === null ? 'lease-sets' : `lease-sets/${leaseId}/extend`,
            ...([{ resources, ...times }, signal] as const),
          );
    const receivedMs = this.runtime.nowMs();
    const answer = (await response.json()) as Answer;
    const { token: signed = '', tokens = [{ resource, token: signed }] } = answer;
    let token = 0n;
    for (const one of tokens) token = this.#tokens.keep(one.token, one.resource);
    return {
      token,
      leaseId: answer.leaseId,
      signedTokens: new Map(tokens.map((one) => [one.resource, one.token])),
      deadlineMs: deadlineOf(sentMs, receivedMs, answer),
    };
  }

  /** @param resource for messages */
  async #send(
    resource: string,
    method: GatewayRequest['method'],
    path: string,
    content?: { readonly waitMs?: number; readonly resources?: readonly string[] },
    signal?: AbortSignal,
  ): Promise<Response> {
    const headers = content && { 'Content-Type': 'application/json' };
    const body = content && Buffer.from(JSON.stringify(content));
    const answer = await this.#http.ask({
      method,
      path,
      resource,
      isWrite: false,
      body,
      signal,
      ...(headers && { headers }),
    });
    if (answer.ok) return answer.response;
    const code = codeOf(answer.problem, content?.waitMs ?? 0);
    throw new LeaseError({ ...answer.problem, code });
  }
}

interface Answer {
  readonly leaseId: string;
  readonly remainingMs: number;
  readonly elapsedMs: number;
  /** The token of a lease of one resource. */
  readonly token?: string;
  /** The tokens of a lease of several resources. */
  readonly tokens?: readonly { readonly resource: string; readonly token: string }[];
}

/** As `driftMs` of `@fenced/lock`: the clocks of two machines may run at different speeds. */
const DRIFT_FRACTION = 0.01;
const DRIFT_CONSTANT_MS = 2;

/**
 * The end of a lease for its holder, on the clock of `sentMs` and `receivedMs`.
 *
 * Invariant: never later than the true deadline, which is `remainingMs` after the answer left the
 * gateway. The answer left before it was received. It also left `elapsedMs` after the request was
 * received, by the gateway's clock, which may be the faster one.
 */
function deadlineOf(sentMs: number, receivedMs: number, answer: Answer): number {
  const { elapsedMs, remainingMs } = answer;
  const waitedMs = elapsedMs - (elapsedMs * DRIFT_FRACTION + DRIFT_CONSTANT_MS);
  return Math.min(sentMs + waitedMs, receivedMs) + remainingMs;
}

function tooLate(): LeaseError {
  const detail = 'the answer of the gateway came after the lease was over';
  return new LeaseError({ code: 'no-quorum', detail, retryAfterMs: 1 });
}

/** The part of a lease id that stays when the lease is extended. */
function nameOf(leaseId: string): string {
  return leaseId.split('.', 1)[0] ?? '';
}

/** The code of the same failure in `@fenced/lock`, or the gateway's own. */
function codeOf({ code }: ProblemDocument, waitMs: number): LeaseErrorCode | null {
  if (code === 'held' && waitMs > 0) return 'timeout';
  if (code === 'invalid-request' || code === 'invalid-path') return 'invalid-argument';
  return code;
}

function failureOf(error: unknown): (typeof FAILURES)[number] | undefined {
  return FAILURES.find((code) => code === Object(error).code);
}
