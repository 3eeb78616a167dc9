import { segmentsOf } from '@fenced/client/protocol/path';
import type { Request, Response } from 'express';
import type { LeaseOf } from './bindings.js';
import type { Deadline } from './deadline.js';
import type { Caller, Verb } from './keys.js';
import { Problem } from './problem.js';
import { SignatureError, type TokenSigner } from './token-signer.js';

/** One request that was let in, and its response. */
export interface Exchange {
  readonly request: Request;
  readonly response: Response;
  readonly caller: Caller;
  /** The names in the path, decoded: those of a wildcard joined by slashes. */
  readonly names: Readonly<Record<string, string>>;
  /** Aborts when the client has gone, or the deadline is over. */
  readonly signal: AbortSignal;
  readonly deadline: Deadline;
  /** Waits for a lease: the request then no longer counts as under way, and the time is not the store's. */
  whileWaiting<Outcome>(waitMs: number, wait: () => Promise<Outcome>): Promise<Outcome>;
  /**
   * Notes that a write may have been sent from now on, so that the request can no longer end with "nothing was written".
   *
   * @param writeId as `/v1/writes` knows it; null for a claim of a record, which has none
   */
  noteWrite(writeId: string | null): void;
  /** Notes what logs and metrics say of a request that failed and is answered by something else than a problem. */
  noteFailure(outcome: string, error: unknown): void;
}

/** What stands behind one method of a path. */
export interface Handler {
  /**
   * What the caller must be allowed to do. Two ask for no credentials: too many requests of an address for `public` are refused;
   * those for `probe` are answered late, since the platform's probes may come from the address that floods, a proxy's.
   */
  readonly verb: Verb | 'public' | 'probe';
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
 * @param onBroken called if nothing more may be read from the connection
 * @throws {Problem} `invalid-request`
 */
export function checkFraming(request: Request, onBroken: () => void): void {
  const coding = request.get('transfer-encoding');
  if (coding === undefined) return;
  if (request.httpVersion === '1.1' && coding.toLowerCase() === 'chunked') return;
  onBroken();
  if (request.httpVersion === '1.0')
    throw new Problem('invalid-request', 'HTTP/1.0 knows no Transfer-Encoding: send HTTP/1.1');
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

/** The parts that open the token of a request. */
export interface TokenParts {
  readonly signer: TokenSigner;
  readonly leaseOf: LeaseOf;
}

/**
 * The token that a request presents.
 *
 * @param stored the value that is read or written: `objects/a/b`, `records/invoices/42`. The token must be of the lease that guards
 *   it; if that can be any, `Fencing-Resource` names one that the caller may lease
 * @throws {Problem} `token-required`, `wrong-lease`, `invalid-token`, `forbidden` @throws {InvalidTokenError}
 */
export function requiredToken(
  { request, caller }: Exchange,
  { signer, leaseOf }: TokenParts,
  stored: string,
): bigint {
  const text = request.get('fencing-token');
  if (text === undefined)
    throw new Problem(
      'token-required',
      'send the token of the lease under which this is done in the header Fencing-Token',
    );
  const encoded = request.get('fencing-resource');
  const named = encoded === undefined ? undefined : segmentsOf(`/${encoded}`).join('/');
  const bound = leaseOf(stored);
  if (bound === null && named !== undefined) checkAllowed(caller, 'lease', `leases/${named}`);
  else if (named !== undefined && named !== bound)
    throw new Problem(
      'wrong-lease',
      `${stored} is guarded by the lease ${bound}: acquire that one and present its token. To let another lease guard it, an operator adds a rule to bindings in the configuration of the gateway`,
      { members: { resource: stored, lease: bound } },
    );
  return tokenIn(signer, text, named ?? bound ?? nameIn(stored));
}

/** @throws {Problem} `invalid-token`, with the lease whose token is wanted */
function tokenIn(signer: TokenSigner, text: string, lease: string): bigint {
  try {
    return signer.verify(text, { purpose: 'token', resource: lease });
  } catch (error) {
    if (!(error instanceof SignatureError)) throw error;
    throw new Problem('invalid-token', `${error.message} lease=${lease}`, {
      members: { fault: error.fault, lease },
      cause: error,
    });
  }
}

/** The name of a stored value, without its kind. */
function nameIn(stored: string): string {
  return stored.slice(stored.indexOf('/') + 1);
}

/**
 * A read writes nothing, so it takes no token.
 *
 * @param claimAndGet the path of the call that takes one
 * @throws {Problem} `invalid-request`
 */
export function refuseToken({ request }: Exchange, claimAndGet: string): void {
  if (request.get('fencing-token') !== undefined)
    throw new Problem(
      'invalid-request',
      `a read takes no Fencing-Token, because it writes nothing: POST ${claimAndGet} claims and reads`,
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
