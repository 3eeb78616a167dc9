import type { Request } from 'express';
import { Problem } from './problem.js';

/**
 * Headers that a request may have only once. If a header is repeated, Node keeps the first value or
 * joins all values by commas: that depends on the header.
 */
const ONCE = [
  ...['authorization', 'content-encoding', 'content-length', 'content-type', 'expect'],
  ...['fencing-resource', 'fencing-token', 'host', 'if-match', 'if-none-match', 'if-range'],
  ...['origin', 'range', 'sec-fetch-site', 'traceparent', 'transfer-encoding', 'x-request-id'],
];

/**
 * Headers that change the meaning of a request, and that this gateway does not implement. RFC 9110
 * lets a server ignore some of them. But their sender would take its write for conditional, for
 * partial or for repeatable. So the request is refused before anything happens.
 */
const REFUSED: Readonly<Record<string, string>> = {
  'content-range': 'a value can only be written as a whole: leave out Content-Range',
  'idempotency-key':
    'the gateway keeps no requests, so it knows no Idempotency-Key: repeat a write with the same token',
  'if-unmodified-since': 'versions have no date: send If-Match with the entity tag',
};

/**
 * Refuses a message whose end is ambiguous: two readers could take different bytes for the next
 * request. RFC 9112, 6.1: HTTP/1.0 has no Transfer-Encoding.
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
    throw new Problem('invalid-request', 'HTTP/1.0 has no Transfer-Encoding: send HTTP/1.1');
  throw new Problem('invalid-request', `Transfer-Encoding must be chunked value=${coding}`);
}

/**
 * @throws {Problem} `invalid-request` if a header of {@link ONCE} is repeated or one of
 *   {@link REFUSED} is there, or if the host is missing
 */
export function checkHeaders(request: Request): void {
  if (request.httpVersionMajor !== 1)
    throw new Problem('invalid-request', 'this server speaks HTTP/1.1');
  if (request.get('host') === undefined && request.httpVersion !== '1.0')
    throw new Problem('invalid-request', 'the header Host is missing');
  for (const name of ONCE)
    if ((request.headersDistinct[name]?.length ?? 0) > 1)
      throw new Problem('invalid-request', `the header ${name} may be sent only once`);
  const isRead = request.method === 'GET' || request.method === 'HEAD';
  // A read can be repeated anyway.
  for (const [name, reason] of Object.entries(REFUSED))
    if (request.get(name) !== undefined && !(isRead && name === 'idempotency-key'))
      throw new Problem('invalid-request', reason);
}
