import type { Answer } from './answer.js';
import type { Caller } from './credentials.js';
import { Deadline } from './deadline.js';
import { CLIENT_GONE, type EndedRequest } from './ended-request.js';
import { checkAllowed, type Exchange, type Names, type OwnCall, type Route } from './exchange.js';
import type { Message } from './message.js';
import { nameOfPath } from './openapi.js';
import { Problem } from './problem.js';
import { problemOf } from './problem-of.js';
import type { Services } from './services.js';
import { outcomeUnknown } from './write-id.js';

type CallServices = Pick<Services, 'limits' | 'concurrency' | 'runtime' | 'drain'>;

/** A request that may go to its handler. */
export interface Call {
  readonly route: Route;
  readonly caller: Caller;
  readonly names: Names;
  readonly resource: string;
  readonly message: Message;
  readonly gone: AbortController;
  readonly leave: () => void;
  readonly origin: Pick<EndedRequest, 'address' | 'traceparent'>;
  /** The connection of the client; null for a tool of an agent. */
  readonly wire: Wire | null;
}

interface Wire {
  /** True if the answer has begun, so that no problem can take its place. */
  hasBegun(): boolean;
  cutOff(): void;
  stay(): void;
}

const RETRY_AFTER_MS = 1_000;

/** Runs the handlers of requests, and limits their time. */
export class Calls {
  readonly #services: CallServices;
  readonly #onEnd: (ended: EndedRequest) => void;
  /** One function for each running request: ends it, as its deadline would. */
  readonly #running = new Set<() => void>();

  constructor(services: CallServices, onEnd: (ended: EndedRequest) => void) {
    this.#services = services;
    this.#onEnd = onEnd;
    services.drain.graceOver.signal.addEventListener('abort', () => {
      for (const end of this.#running) end();
    });
  }

  /**
   * Takes a place among the running requests, if the caller may use the route.
   *
   * @throws {Problem} `forbidden`, `too-many-requests`, `overloaded`
   */
  enter(caller: Caller, { verb }: Route, resource: string): () => void {
    if (verb !== 'any' && verb !== 'leases' && verb !== 'public' && verb !== 'probe')
      checkAllowed(caller, verb, resource);
    return this.#services.concurrency.requests.enter(caller.name);
  }

  /**
   * Runs a handler until its deadline. If it is late, the problem reports what is known of the
   * write.
   *
   * @param finish takes the answer. The place of the request is free when it has ended.
   */
  async run<Result>(
    call: Call,
    onBegin: (exchange: Exchange) => void,
    finish: (answer: Answer) => Promise<Result>,
  ): Promise<Result> {
    const { limits, runtime } = this.#services;
    const { route, gone, wire, leave, caller, names, resource, message } = call;
    const { promise: late, reject } = Promise.withResolvers<never>();
    const end = (): void => {
      if (wire?.hasBegun()) return;
      const problem = this.#lateProblem(route.verb, exchange.writeId);
      reject(problem);
      gone.abort(problem);
    };
    const deadline = new Deadline(limits.storeTimeoutMs, runtime, end);
    const exchange: Exchange = {
      ...{ message, caller, names, resource, leave, deadline },
      signal: gone.signal,
      cutOff: () => wire?.cutOff(),
      stay: () => wire?.stay(),
      ask: (own, read) => {
        // From here on, the own call has the deadline. Its problem says what became of the write.
        deadline.stop();
        this.#running.delete(end);
        leave();
        return this.#ask(call, own, read);
      },
    };
    onBegin(exchange);
    this.#running.add(end);
    try {
      // After the deadline, the client has its answer. The handler goes on, and counts against the
      // limit of requests until it ends.
      return await Promise.race([route.handle(exchange).then(finish).finally(leave), late]);
    } finally {
      deadline.stop();
      this.#running.delete(end);
    }
  }

  async #ask<Result>(
    { caller, origin, gone: outer }: Call,
    { route, names, message, signal }: OwnCall,
    read: (answer: Answer) => Promise<Result>,
  ): Promise<Result> {
    const { runtime } = this.#services;
    const startedMs = runtime.nowMs();
    const gone = new AbortController();
    const stop = AbortSignal.any([outer.signal, signal]);
    const abort = (): void => gone.abort(stop.reason);
    let resource: string | null = null;
    let exchange: Exchange | undefined;
    let answer: Answer | undefined;
    let error: unknown;
    try {
      if (stop.aborted) throw stop.reason;
      stop.addEventListener('abort', abort);
      resource = route.resource(names);
      const leave = this.enter(caller, route, resource);
      const call = { route, caller, names, resource, message, gone, leave, origin, wire: null };
      return await this.run(
        call,
        (begun) => {
          exchange = begun;
        },
        async (given) => {
          answer = given;
          return read(given);
        },
      );
    } catch (reason) {
      error = reason;
      throw reason;
    } finally {
      stop.removeEventListener('abort', abort);
      const problem = error === undefined ? undefined : problemOf(error);
      this.#onEnd({
        ...origin,
        id: runtime.uniqueId(),
        method: message.method,
        path: pathOf(route, names),
        route: nameOfPath(route.path),
        resource: exchange?.named ?? resource,
        caller: caller.name,
        status: stop.aborted ? CLIENT_GONE : (problem?.status ?? answer?.status ?? 0),
        outcome: stop.aborted ? 'client-gone' : (problem?.code ?? 'ok'),
        token: tokenIn(answer?.headers['Fencing-Token'] ?? message.get('fencing-token')),
        writeId: writeIdOf(answer?.headers['Fencing-Write-Id'], problem, exchange),
        durationMs: runtime.nowMs() - startedMs,
        error,
      });
    }
  }

  #lateProblem(verb: Route['verb'], writeId: Exchange['writeId']): Problem {
    if (writeId !== undefined) return outcomeUnknown(writeId);
    if (this.#services.drain.graceOver.signal.aborted)
      return new Problem('shutting-down', 'try another gateway', { retryAfterMs: 1 });
    const retry = { retryAfterMs: RETRY_AFTER_MS };
    return verb === 'lease' || verb === 'leases'
      ? new Problem('no-quorum', 'the lock nodes did not answer in time', retry)
      : new Problem('unavailable', 'the store did not answer in time', retry);
  }
}

/** The token that a header shows, without its signature. */
export function tokenIn(header: unknown): bigint | null {
  const [digits] = /^[1-9][0-9]{0,18}(?=\.|$)/.exec(String(header)) ?? [];
  return digits === undefined ? null : BigInt(digits);
}

/** The write that was sent to the store, as `/v1/writes` names it. */
export function writeIdOf(
  header: unknown,
  problem: Problem | undefined,
  exchange: Exchange | null | undefined,
): string | null {
  const named = header ?? problem?.members.writeId ?? exchange?.writeId;
  return typeof named === 'string' ? named : null;
}

function pathOf({ path }: Route, names: Names): string {
  return path.replace(/[:*](\w+)/g, (_, name: string) =>
    (names[name] ?? '').split('/').map(encodeURIComponent).join('/'),
  );
}
