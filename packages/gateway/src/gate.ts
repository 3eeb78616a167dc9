import { canonicalTarget } from '@fenced/client/protocol/path';
import type { NextFunction, Request, Response } from 'express';
import { type Answer, writeAnswer } from './answer.js';
import { refusePages } from './browsers.js';
import { type Call, Calls, tokenIn, writeIdOf } from './calls.js';
import type { Caller, Credentials } from './credentials.js';
import { CLIENT_GONE, type EndedRequest } from './ended-request.js';
import type { Exchange, Route } from './exchange.js';
import { checkFraming, checkHeaders } from './framing.js';
import { messageOf } from './message.js';
import { nameOfPath } from './openapi.js';
import { Problem, writeProblem } from './problem.js';
import { problemOf } from './problem-of.js';
import { addressName, type RateLimit } from './rate-limit.js';
import type { Services } from './services.js';

/** Limits of requests per second. */
export interface Rates {
  /** Counts the requests of each caller, by its name. */
  readonly perKey: RateLimit;
  /** Counts, for each address, the requests without valid credentials. */
  readonly perAddress: RateLimit;
}

export interface GateOptions {
  readonly credentials?: Credentials;
  readonly rate?: Rates;
  /** `only`: the routes for the platform, which calls them by the address of the machine. */
  readonly operations?: 'here' | 'only' | 'elsewhere';
  readonly onRequest?: (ended: EndedRequest) => void;
}

type GateServices = Pick<Services, 'limits' | 'concurrency' | 'runtime' | 'drain'>;

/** The state of a request, from its first check to its end. */
interface Progress {
  readonly id: string;
  readonly startedMs: number;
  readonly gone: AbortController;
  /** Set as soon as a rate has counted the request. */
  isCounted: boolean;
  route: string | null;
  resource: string | null;
  caller: string | null;
  /** Set when the route's handler begins. */
  exchange: Exchange | null;
  failure: Answer['failure'];
  error: unknown;
}

/**
 * Time for which a client may go on sending after an early answer. The gateway throws these bytes
 * away.
 */
const LINGER_MS = 5_000;
/** The caller of a gateway without credentials. */
const ANYBODY: Caller = { name: 'anybody', may: () => true };
/** Headers that stay set when a problem document replaces the answer. */
const KEPT = ['x-request-id', 'x-content-type-options', 'connection', 'allow', 'keep-alive'];

/** Checks each request before its route, limits its time, and reports its end. */
export class Gate {
  readonly #options: GateOptions;
  readonly #services: GateServices;
  readonly #progress = new WeakMap<Request, Progress>();
  /** Responses that have not ended. */
  readonly #open = new Set<Response>();
  readonly #calls: Calls;

  constructor(options: GateOptions, services: GateServices) {
    this.#options = options;
    this.#services = services;
    this.#calls = new Calls(services, (ended) => options.onRequest?.(ended));
    services.drain.begun.signal.addEventListener('abort', () => {
      for (const response of this.#open) closeBehind(response);
    });
  }

  /**
   * The first step of every request: refuses it if it is malformed, and brings its path into the
   * canonical form.
   */
  begin(request: Request, response: Response, next: NextFunction): void {
    const { runtime } = this.#services;
    const progress: Progress = {
      id: runtime.uniqueId(),
      startedMs: runtime.nowMs(),
      gone: new AbortController(),
      isCounted: false,
      route: null,
      resource: null,
      caller: null,
      exchange: null,
      failure: undefined,
      error: undefined,
    };
    this.#progress.set(request, progress);
    response.setHeader('X-Request-Id', progress.id);
    // A browser must not take an answer for a page of this origin by its content.
    response.setHeader('X-Content-Type-Options', 'nosniff');
    if (this.#services.drain.begun.signal.aborted) closeBehind(response);
    this.#open.add(response);
    response.on('close', () => this.#end(request, response, progress));
    checkFraming(request, () => closeBehind(response));
    checkHeaders(request);
    const { credentials, operations } = this.#options;
    if (credentials === undefined && operations !== 'only') refusePages(request);
    request.url = canonicalTarget(request.url);
    next();
  }

  /**
   * Lets a request through to its route, if the caller may do that, and rates and limits allow it.
   */
  async admit(route: Route, request: Request, response: Response): Promise<void> {
    const progress = this.#progressOf(request);
    const { verb } = route;
    progress.route = route.path;
    const names = namesOf(request.params);
    if (verb === 'public' || verb === 'probe') {
      const refusal = await this.#countForAddress(request, response, verb);
      if (verb === 'public' && refusal) throw refusal;
      const free = { caller: ANYBODY, names, resource: route.path, leave: () => undefined };
      return this.#run(progress, { route, ...free }, request, response);
    }
    const caller = await this.#callerOf(request);
    progress.caller = caller.name;
    // Only now, because the resource can be malformed. Strangers do not learn that.
    const resource = route.resource(names);
    progress.resource = resource;
    const leave = this.#calls.enter(caller, route, resource);
    await this.#run(progress, { route, caller, names, resource, leave }, request, response);
  }

  async #run(
    progress: Progress,
    call: Pick<Call, 'route' | 'caller' | 'names' | 'resource' | 'leave'>,
    request: Request,
    response: Response,
  ): Promise<void> {
    const wire = {
      hasBegun: () => response.headersSent,
      cutOff: () => void response.destroy(),
      stay: () => void response.socket?.setTimeout(response.socket.timeout ?? 0),
    };
    const { gone } = progress;
    const origin = originOf(request);
    await this.#calls.run(
      { ...call, message: messageOf(request), gone, origin, wire },
      (exchange) => {
        progress.exchange = exchange;
      },
      (answer) => {
        progress.failure = answer.failure;
        return writeAnswer(response, answer);
      },
    );
  }

  /**
   * Ends a request that failed: with a problem document, or by cutting off an answer that had
   * begun.
   */
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
    for (const name of response.getHeaderNames())
      if (!KEPT.includes(name)) response.removeHeader(name);
    // After this answer, a client that sent `Expect: 100-continue` may send its body or not. So
    // nobody knows where its next request starts, and the connection closes.
    const isAwaited = request.complete || request.get('expect') !== undefined;
    if (isAwaited && !request.complete) closeBehind(response);
    writeProblem(response, problemOf(error), `urn:uuid:${progress.id}`);
    if (isAwaited) response.end();
    else this.#linger(request, () => response.end());
  }

  async #callerOf(request: Request): Promise<Caller> {
    const { credentials, rate } = this.#options;
    const caller = credentials
      ? await credentials.authenticate(request.get('authorization'))
      : ANYBODY;
    if (caller === null)
      throw new Problem(
        'unauthenticated',
        'send Authorization: Bearer KEY, with a key that this gateway knows',
      );
    this.#progressOf(request).isCounted = true;
    const taken = rate?.perKey.take(caller.name) ?? { ok: true };
    if (!taken.ok) throw tooMany(taken);
    return caller;
  }

  /**
   * Counts a request without valid credentials for its address. Beyond the rate, the answer is
   * delayed until the rate allows another request. The answer closes the connection, so the
   * pipelined requests behind it never begin. Probes have an allowance of their own, so only a
   * flood of probes can hold them up.
   *
   * @returns the refusal if the request exceeds the rate, else null
   */
  async #countForAddress(
    request: Request,
    response: Response,
    verb?: Route['verb'],
  ): Promise<Problem | null> {
    this.#progressOf(request).isCounted = true;
    const address = addressName(request.ip ?? '');
    const name = verb === 'probe' ? `probes of ${address}` : address;
    const taken = this.#options.rate?.perAddress.take(name);
    if (taken === undefined || taken.ok) return null;
    closeBehind(response);
    await new Promise<void>((resolve) => this.#services.runtime.after(taken.retryAfterMs, resolve));
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
    const { id, startedMs, route, caller, exchange, failure } = progress;
    const problem = progress.error === undefined ? undefined : problemOf(progress.error);
    const token = response.getHeader('fencing-token') ?? request.get('fencing-token');
    this.#options.onRequest?.({
      ...originOf(request),
      id,
      caller,
      method: request.method,
      resource: exchange?.named ?? progress.resource,
      error: failure?.error ?? progress.error,
      route: route && nameOfPath(route),
      path: request.url.split('?', 1)[0] ?? '',
      status: isWhole ? response.statusCode : CLIENT_GONE,
      outcome: isWhole ? (failure?.outcome ?? problem?.code ?? 'ok') : 'client-gone',
      token: tokenIn(token),
      writeId: writeIdOf(response.getHeader('fencing-write-id'), problem, exchange),
      durationMs: this.#services.runtime.nowMs() - startedMs,
    });
  }

  /**
   * Reads the rest of a request, and throws it away. If the connection closed at once, a client
   * that still sends could lose the answer.
   */
  #linger(request: Request, end: () => void): void {
    const cancel = this.#services.runtime.after(LINGER_MS, () => request.socket.destroy());
    request.once('end', end);
    request.once('close', cancel);
    request.resume();
  }
}

/** Closes the connection after the response, unless the response has begun. */
function closeBehind(response: Response): void {
  if (!response.headersSent) response.setHeader('Connection', 'close');
}

function originOf(request: Request): Call['origin'] {
  return { address: request.ip ?? null, traceparent: request.get('traceparent') ?? null };
}

function tooMany({ retryAfterMs }: { readonly retryAfterMs: number }): Problem {
  return new Problem('too-many-requests', 'ask less often', { retryAfterMs });
}

function namesOf(params: Request['params']): Record<string, string> {
  return Object.fromEntries(
    Object.entries(params).map(([name, value]) => [name, [value].flat().join('/')]),
  );
}
