import type { Request, Response } from 'express';
import type { ZodOpenApiOperationObject } from 'zod-openapi';
import type { Caller, Verb } from './credentials.js';
import type { Deadline } from './deadline.js';
import { Problem } from './problem.js';

/**
 * Header of the requests that this gateway sends to itself. Its value is a name that is valid once.
 */
export const OWN_REQUEST = 'fenced-own-request';

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
  handle(exchange: Exchange): Promise<void>;
}

type Method = 'get' | 'head' | 'put' | 'post' | 'patch' | 'delete';

/** The names in a path, decoded. Segments of a wildcard are joined by slashes. */
export type Names = Readonly<Record<string, string>>;

/** One request that the gate let in, and its response. */
export interface Exchange {
  readonly request: Request;
  readonly response: Response;
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
  /**
   * The write that may have reached the store, as `/v1/writes` names it. Null for a claim of a
   * record, which has no name. Undefined as long as certainly nothing was written.
   */
  writeId?: string | null;
  /** For the log, the resources that the body names, in place of `resource`. */
  named?: string;
  /** The failure for log and metrics, if the handler answered it without a problem document. */
  failure?: { readonly outcome: string; readonly error: unknown };
}

/** @throws {Problem} `forbidden` */
export function checkAllowed(caller: Caller, verb: Verb, resource: string): void {
  if (!caller.may(verb, resource))
    throw new Problem('forbidden', `these credentials do not have the right to ${verb} here`, {
      members: { verb, resource },
    });
}

/** Sends JSON that no cache may keep, with the status that was set. */
export function reply(response: Response, body: Readonly<Record<string, unknown>>): void {
  const bytes = Buffer.from(JSON.stringify(body));
  response.setHeader('Cache-Control', 'no-store');
  // Express's own method would add a charset, which `application/json` does not have.
  response.setHeader('Content-Type', 'application/json');
  response.setHeader('Content-Length', bytes.length);
  response.end(bytes);
}
