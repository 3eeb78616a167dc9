import type { Request, Response } from 'express';
import type { Caller, Verb } from './keys.js';
import { segmentsOf } from './path.js';
import { Problem } from './problem.js';
import type { Seal } from './seal.js';

/** One request that was let in, and its response. */
export interface Exchange {
  readonly request: Request;
  readonly response: Response;
  readonly caller: Caller;
  /** The names in the path, decoded: those of a wildcard joined by slashes. */
  readonly names: Readonly<Record<string, string>>;
  /** Aborts when nobody waits for the response any more. */
  readonly signal: AbortSignal;
}

/** What stands behind one method of a path. */
export interface Handler {
  /** What the caller must be allowed to do; `public` asks for no credentials. */
  readonly verb: Verb | 'public';
  handle(exchange: Exchange): Promise<void>;
}

export type Method = 'get' | 'head' | 'put' | 'post' | 'patch' | 'delete';

/** One path of Express, with what it stands for when the caller's rights are looked up. */
export interface Route {
  readonly path: string;
  resource(names: Readonly<Record<string, string>>): string;
  readonly methods: Readonly<Partial<Record<Method, Handler>>>;
}

/** Headers that mean something only once. Node keeps the first of some and joins others by commas. */
const ONCE = [
  ...['authorization', 'content-encoding', 'content-length', 'content-type', 'expect'],
  ...['fencing-resource', 'fencing-token', 'host', 'if-match', 'if-none-match', 'if-range'],
  ...['range', 'traceparent', 'transfer-encoding', 'x-request-id'],
];

/**
 * Refuses a message whose end two readers could see in two places, so that one takes for the next request what is the other's
 * body. RFC 9112, 6.1: HTTP/1.0 knows no Transfer-Encoding.
 *
 * @throws {Problem} `invalid-request`. Nothing more may be read from the connection
 */
export function checkFraming(request: Request): void {
  const coding = request.get('transfer-encoding');
  if (coding === undefined) return;
  if (request.httpVersion === '1.0')
    throw new Problem('invalid-request', 'HTTP/1.0 knows no Transfer-Encoding: send HTTP/1.1');
  if (coding.toLowerCase() !== 'chunked')
    throw new Problem('invalid-request', 'of Transfer-Encoding, only chunked is known');
}

/** @throws {Problem} `invalid-request`, where a header that means something only once is there twice, or the host is missing. */
export function checkHeaders(request: Request): void {
  if (request.httpVersionMajor !== 1)
    throw new Problem('invalid-request', 'this is an HTTP/1.1 server');
  if (request.get('host') === undefined && request.httpVersion !== '1.0')
    throw new Problem('invalid-request', 'the header Host is missing');
  for (const name of ONCE)
    if ((request.headersDistinct[name]?.length ?? 0) > 1)
      throw new Problem('invalid-request', `the header ${name} may be sent only once`);
}

/** @throws {Problem} `forbidden` */
export function checkAllowed(caller: Caller, verb: Verb, resource: string): void {
  if (!caller.may(verb, resource))
    throw new Problem('forbidden', `these credentials do not allow to ${verb} here`, {
      members: { verb, resource },
    });
}

/**
 * The token that a request presents; undefined where there is none.
 *
 * @param key what is read or written: the token was issued for a lease of that name, unless `Fencing-Resource` names another
 *   one, which its holder may lease
 * @throws {Problem} {@link SealError} {@link InvalidTokenError}
 */
export function presentedToken(
  { request, caller }: Exchange,
  seal: Seal,
  key: string,
): bigint | undefined {
  const text = request.get('fencing-token');
  if (text === undefined) return undefined;
  const encoded = request.get('fencing-resource');
  if (encoded === undefined) return seal.open(text, { purpose: 'token', resource: key });
  const resource = segmentsOf(`/${encoded}`).join('/');
  checkAllowed(caller, 'lease', `leases/${resource}`);
  return seal.open(text, { purpose: 'token', resource });
}

/** As `presentedToken`. @throws {Problem} `token-required`, too. */
export function requiredToken(exchange: Exchange, seal: Seal, key: string): bigint {
  const token = presentedToken(exchange, seal, key);
  if (token !== undefined) return token;
  throw new Problem(
    'token-required',
    'send the token of the lease under which this is done in the header Fencing-Token',
  );
}

/** Sends JSON that nobody may keep, with the status that was set. */
export function reply(response: Response, body: Readonly<Record<string, unknown>>): void {
  const bytes = Buffer.from(JSON.stringify(body));
  response.setHeader('Cache-Control', 'no-store');
  // Not by Express, which would add a charset that this type does not have.
  response.setHeader('Content-Type', 'application/json');
  response.setHeader('Content-Length', bytes.length);
  response.end(bytes);
}
