import { canonicalTarget } from '@fenced/client/protocol/path';
import type { NextFunction, Request, Response } from 'express';
import { Deadline } from './deadline.js';
import {
  checkAllowed,
  checkFraming,
  checkHeaders,
  type Exchange,
  type Handler,
  type Route,
} from './exchange.js';
import { problemOf } from './failures.js';
import type { Caller, Credentials } from './keys.js';
import type { AllLimits } from './limits.js';
import { Problem, writeProblem } from './problem.js';
import { addressName, type RateLimit } from './rate-limit.js';
import type { Rooms } from './room.js';
import type { Runtime } from './runtime.js';
import { outcomeUnknown } from './write-id.js';

/** What can be told of a request when it has ended: for logs and metrics. */
export interface EndedRequest {
  readonly id: string;
  readonly method: string;
  /** Without its query; each name encoded in one way, however it was sent. As sent if it is refused as no path. */
  readonly path: string;
  readonly address: string | null;
  /** As the OpenAPI document names it, `/v1/objects/{key}`; null where there was none. */
  readonly route: string | null;
  /** What the caller's rights were looked up by. */
  readonly resource: string | null;
  readonly caller: string | null;
  /** 499 if the client did not wait for all of the answer, whatever it was. */
  readonly status: number;
  /** `ok`, the code of a problem, `not-ready`, or `client-gone` if the client did not wait for all of the answer. */
  readonly outcome: string;
  /** The token that was issued, presented or found, without its signature. */
  readonly token: bigint | null;
  /** Of a write that was sent to the store, as `/v1/writes` knows it. */
  readonly writeId: string | null;
  readonly durationMs: number;
  readonly traceparent: string | null;
  /** What went wrong, with its cause. */
  readonly error: unknown;
}

/** How often one may ask. */
export interface Rates {
  /** Of each caller, by its name. */
  readonly perKey: RateLimit;
  /** Of each address, for all that is answered without good credentials: what needs none, and what cannot be understood, too. */
  readonly perAddress: RateLimit;
}

export interface GateOptions {
  readonly keys?: Credentials;
  readonly rate?: Rates;
  readonly draining?: AbortSignal;
  readonly graceOver?: AbortSignal;
  readonly onRequest?: (ended: EndedRequest) => void;
}

/** What is known of a request so far. */
interface Progress {
  readonly id: string;
  readonly startedMs: number;
  readonly gone: AbortController;
  /** Whether some rate has counted it. */
  isCounted: boolean;
  route: string | null;
  resource: string | null;
  caller: string | null;
  /** The write that was sent last; null if it has no name; undefined if none was sent. */
  writeId: string | null | undefined;
  error: unknown;
  /** Null if the error says it. */
  outcome: string | null;
}

/** The status that nginx logs for a client that closed its connection. It is never sent. */
const CLIENT_GONE = 499;
/** How long a client that was answered early may go on sending what nobody reads. */
const LINGER_MS = 5_000;
const RETRY_AFTER_MS = 1_000;
/** Where no credentials are asked for. */
const ANYBODY: Caller = { name: 'anybody', may: () => true };

/** Lets requests in, and sees them out. */
export class Gate {
  readonly #options: GateOptions;
  readonly #limits: AllLimits;
  readonly #rooms: Rooms;
  readonly #runtime: Runtime;
  readonly #progress = new WeakMap<Request, Progress>();
  /** Responses that have not ended. */
  readonly #open = new Set<Response>();
  /** What ends each request that is under way, as its deadline does. */
  readonly #underWay = new Set<() => void>();

  constructor(options: GateOptions, limits: AllLimits, rooms: Rooms, runtime: Runtime) {
    this.#options = options;
    this.#limits = limits;
    this.#rooms = rooms;
    this.#runtime = runtime;
    options.draining?.addEventListener('abort', () => this.#open.forEach(closeBehind), {
      once: true,
    });
    options.graceOver?.addEventListener('abort', () => {
      for (const end of this.#underWay) end();
    });
  }

  /** What every request goes through first. */
  begin(request: Request, response: Response, next: NextFunction): void {
    const progress: Progress = {
      id: this.#runtime.uniqueId(),
      startedMs: this.#runtime.nowMs(),
      gone: new AbortController(),
      ...{ route: null, resource: null, caller: null, writeId: undefined, error: undefined },
      ...{ isCounted: false, outcome: null },
    };
    this.#progress.set(request, progress);
    response.setHeader('X-Request-Id', progress.id);
    if (this.#options.draining?.aborted) closeBehind(response);
    this.#open.add(response);
    response.on('close', () => this.#end(request, response, progress));
    checkFraming(request, () => closeBehind(response));
    checkHeaders(request);
    request.url = canonicalTarget(request.url);
    next();
  }

  /** Lets a request through to its handler, if its caller may do that. */
  async admit(
    { path, resource }: Route,
    { verb, handle }: Handler,
    request: Request,
    response: Response,
  ): Promise<void> {
    const progress = this.#progressOf(request);
    progress.route = path;
    const names = namesOf(request.params);
    const exchange = { request, response, names };
    if (verb === 'public' || verb === 'probe') {
      const refusal = await this.#countForAddress(request, response);
      if (verb === 'public' && refusal) throw refusal;
      return this.#inTime(progress, verb, { ...exchange, caller: ANYBODY }, handle);
    }
    const caller = await this.#callerOf(request);
    progress.caller = caller.name;
    progress.resource = resource(names);
    checkAllowed(caller, verb, progress.resource);
    const leave = this.#rooms.requests.enter(caller.name);
    // What was answered late goes on, and counts until it ends.
    const counted: Handler['handle'] = (given) => handle(given).finally(leave);
    await this.#inTime(progress, verb, { ...exchange, caller }, counted, leave);
  }

  /** Runs a handler until its deadline at most, and then says what is known of the write that it has sent. */
  async #inTime(
    progress: Progress,
    verb: Handler['verb'],
    exchange: Pick<Exchange, 'request' | 'response' | 'names' | 'caller'>,
    handle: Handler['handle'],
    leave: () => void = () => undefined,
  ): Promise<void> {
    const { promise: late, reject } = Promise.withResolvers<never>();
    const end = (): void => {
      if (exchange.response.headersSent) return;
      const { writeId } = progress;
      const { graceOver } = this.#options;
      const problem =
        writeId !== undefined
          ? outcomeUnknown(writeId)
          : graceOver?.aborted
            ? new Problem('shutting-down', 'try another gateway', { retryAfterMs: 1 })
            : lateProblem(verb);
      reject(problem);
      progress.gone.abort(problem);
    };
    const deadline = new Deadline(this.#limits.storeTimeoutMs, this.#runtime, end);
    this.#underWay.add(end);
    const noteWrite = (writeId: string | null): void => {
      progress.writeId = writeId;
    };
    const noteFailure = (outcome: string, error: unknown): void => {
      Object.assign(progress, { outcome, error });
    };
    const whileWaiting: Exchange['whileWaiting'] = (waitMs, wait) => {
      const leaveWait = this.#rooms.waits.enter(exchange.caller.name);
      leave();
      deadline.restart(waitMs);
      return wait().finally(leaveWait);
    };
    const { signal } = progress.gone;
    const notes = { noteWrite, noteFailure, whileWaiting };
    try {
      await Promise.race([handle({ ...exchange, signal, deadline, ...notes }), late]);
    } finally {
      deadline.stop();
      this.#underWay.delete(end);
    }
  }

  /** Ends a request that failed: with a problem document, or by cutting off an answer that had begun. */
  async fail(reason: unknown, request: Request, response: Response): Promise<void> {
    const progress = this.#progressOf(request);
    progress.error = reason;
    const refusal = progress.isCounted ? null : await this.#countForAddress(request, response);
    const error = refusal ?? reason;
    progress.error = error;
    if (response.headersSent || response.destroyed) {
      response.destroy();
      return;
    }
    const problem = problemOf(error);
    for (const name of response.getHeaderNames())
      if (!KEPT.includes(name)) response.removeHeader(name);
    // Whoever was not told to go on may or may not do so: nobody could tell where the next request begins.
    const isAwaited = request.complete || request.get('expect') !== undefined;
    if (isAwaited && !request.complete) closeBehind(response);
    writeProblem(response, problem, `urn:uuid:${progress.id}`);
    if (isAwaited) response.end();
    else this.#linger(request, () => response.end());
  }

  async #callerOf(request: Request): Promise<Caller> {
    const { keys, rate } = this.#options;
    const caller = keys ? await keys.authenticate(request.get('authorization')) : ANYBODY;
    if (caller === null)
      throw new Problem(
        'unauthenticated',
        'send Authorization: Bearer with a key that this gateway knows',
      );
    this.#progressOf(request).isCounted = true;
    const taken = rate?.perKey.take(caller.name) ?? { ok: true };
    if (!taken.ok) throw tooMany(taken);
    return caller;
  }

  /**
   * Counts what is answered without good credentials. Beyond the address's allowance, the answer comes no earlier than another try
   * would be let in, and closes the connection: the requests that a client sent behind this one, without waiting for answers, are
   * never begun. So a client that floods waits, and not everybody.
   *
   * @returns the refusal if it was one too many
   */
  async #countForAddress(request: Request, response: Response): Promise<Problem | null> {
    this.#progressOf(request).isCounted = true;
    const taken = this.#options.rate?.perAddress.take(addressOf(request)) ?? { ok: true };
    if (taken.ok) return null;
    closeBehind(response);
    await new Promise<void>((resolve) => this.#runtime.after(taken.retryAfterMs, resolve));
    return tooMany(taken);
  }

  #progressOf(request: Request): Progress {
    const progress = this.#progress.get(request);
    if (progress === undefined) throw new Error('the request did not come through the gate');
    return progress;
  }

  #end(request: Request, response: Response, progress: Progress): void {
    this.#open.delete(response);
    const isWhole = response.writableFinished;
    if (!isWhole) progress.gone.abort(new Error('the client has gone'));
    else if (!request.complete) this.#linger(request, () => undefined);
    const { id, startedMs, route, resource, caller, error } = progress;
    const isTold = error === undefined || progress.outcome !== null;
    const problem = isTold ? undefined : problemOf(error);
    const told = response.getHeader('fencing-write-id') ?? problem?.members.writeId;
    const writeId = told ?? progress.writeId;
    const token = response.getHeader('fencing-token') ?? request.get('fencing-token');
    const [digits] = /^[1-9][0-9]{0,18}(?=\.|$)/.exec(String(token)) ?? [];
    this.#options.onRequest?.({
      ...{ id, resource, caller, error, method: request.method },
      route: route && nameOfRoute(route),
      path: request.url.split('?', 1)[0] ?? '',
      address: request.ip ?? null,
      status: isWhole ? response.statusCode : CLIENT_GONE,
      outcome: isWhole ? (progress.outcome ?? problem?.code ?? 'ok') : 'client-gone',
      token: digits === undefined ? null : BigInt(digits),
      writeId: typeof writeId === 'string' ? writeId : null,
      durationMs: this.#runtime.nowMs() - startedMs,
      traceparent: request.get('traceparent') ?? null,
    });
  }

  /** Lets the client send what nobody reads: to close at once would lose the answer on its way to a client that still sends. */
  #linger(request: Request, end: () => void): void {
    const cancel = this.#runtime.after(LINGER_MS, () => request.socket.destroy());
    request.once('end', end);
    request.once('close', cancel);
    request.resume();
  }
}

/** What a request is answered that is late, and has written nothing. */
function lateProblem(verb: Handler['verb']): Problem {
  const retry = { retryAfterMs: RETRY_AFTER_MS };
  return verb === 'lease'
    ? new Problem('no-quorum', 'the lock nodes did not answer in time', retry)
    : new Problem('unavailable', 'the store did not answer in time', retry);
}

/** The address that a request is counted under: the client's, or the nearest that no trusted proxy has. */
function addressOf(request: Request): string {
  return addressName(request.ip ?? '');
}

/** Has the connection closed behind the response, where that is not under way yet. */
function closeBehind(response: Response): void {
  if (!response.headersSent) response.setHeader('Connection', 'close');
}

function tooMany({ retryAfterMs }: { readonly retryAfterMs: number }): Problem {
  return new Problem('too-many-requests', 'ask less often', { retryAfterMs });
}

/** Headers of an answer that hold for a problem, too. */
const KEPT = ['x-request-id', 'connection', 'allow', 'keep-alive'];

/** A path of Express as OpenAPI writes it. */
export function nameOfRoute(path: string): string {
  return path.replace(/[:*](\w+)/g, '{$1}');
}

function namesOf(params: Request['params']): Record<string, string> {
  return Object.fromEntries(
    Object.entries(params).map(([name, value]) => [
      name,
      Array.isArray(value) ? value.join('/') : String(value),
    ]),
  );
}
