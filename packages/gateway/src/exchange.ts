import type { ZodOpenApiOperationObject } from 'zod-openapi';
import type { Answer } from './answer.js';
import type { Caller, Verb } from './credentials.js';
import type { Deadline } from './deadline.js';
import type { Message } from './message.js';
import { Problem } from './problem.js';

/** One method of a path: its description for the OpenAPI document, and its handler. */
export interface Route {
  readonly method: Method;
  /** As Express writes it. `*name` matches several segments. */
  readonly path: string;
  /**
   * The right that the caller needs. `any`: credentials, and no right. `leases`: `lease` for each
   * resource that the body names, which the handler checks. `public` and `probe` need no
   * credentials. Beyond the rate of its address, a `public` request is refused. A `probe`
   * has a rate of its own, and is answered after a delay instead. The platform's probes may come
   * from the same address as a flood, such as a proxy's.
   */
  readonly verb: Verb | 'any' | 'leases' | 'public' | 'probe';
  /** The resource that the right is for: `objects/a/b`. */
  resource(names: Names): string;
  readonly operation: ZodOpenApiOperationObject;
  handle(exchange: Exchange): Promise<Answer>;
}

type Method = 'get' | 'head' | 'put' | 'post' | 'patch' | 'delete';

/** The names in a path, decoded. Segments of a wildcard are joined by slashes. */
export type Names = Readonly<Record<string, string>>;

/** One request that the gate let in. */
export interface Exchange {
  readonly message: Message;
  readonly caller: Caller;
  readonly names: Names;
  /** The resource of the route: `objects/a/b`, `records/invoices/42`. */
  readonly resource: string;
  /** Aborts when the client has gone, or the deadline is over. */
  readonly signal: AbortSignal;
  readonly deadline: Deadline;
  /**
   * Gives back the place in the limit of running requests: a wait for a lease counts against
   * another limit.
   */
  readonly leave: () => void;
  /** Cuts the answer off, because its client reads it too slowly. */
  readonly cutOff: () => void;
  /** The connection is not idle, although nothing is sent. */
  readonly stay: () => void;
  /**
   * Runs another route of this gateway for the same caller, with the rights, limits, log and
   * metrics of a request over HTTP. The rate has counted this request already.
   *
   * @param read takes the answer
   * @throws what the handler throws
   */
  ask<Result>(own: OwnCall, read: (answer: Answer) => Promise<Result>): Promise<Result>;
  /**
   * The write that may have reached the store, as `/v1/writes` names it. Null for a claim of a
   * record, which has no name. Undefined as long as certainly nothing was written.
   */
  writeId?: string | null;
  /** For the log, the resources that the body names, in place of `resource`. */
  named?: string;
}

/** A request of this process to one of its routes. */
export interface OwnCall {
  readonly route: Route;
  readonly names: Names;
  readonly message: Message;
  readonly signal: AbortSignal;
}

/** @throws {Problem} `forbidden` */
export function checkAllowed(caller: Caller, verb: Verb, resource: string): void {
  if (!caller.may(verb, resource))
    throw new Problem('forbidden', `these credentials do not have the right to ${verb} here`, {
      members: { verb, resource },
    });
}
