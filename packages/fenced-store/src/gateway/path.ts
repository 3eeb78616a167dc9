import { Problem } from './problem.js';

/**
 * What the raw target of a request may look like, so that everybody on the way means the same name by it: proxies and clients
 * that resolve dots, decode twice, or take a backslash for a slash get nothing that they could change.
 */

/** What RFC 3986 lets a path consist of. */
const PATH = /^(?:\/(?:[A-Za-z0-9\-._~!$&'()*+,;=:@]|%[0-9A-Fa-f]{2})+)+$/;
/** An encoded dot, slash or backslash: nothing but an attack or an error encodes them, or has the latter two. */
const DISGUISED = /%(?:2e|2f|5c)/i;
/** Control characters, among them NUL. */
const CONTROL = /\p{Cc}/u;

/**
 * The decoded segments of a raw target, without its query: UTF-8 in Unicode's normal form C, without control characters.
 *
 * @throws {Problem} `invalid-path`
 */
export function segmentsOf(target: string): readonly string[] {
  const [path = ''] = target.split('?', 1);
  if (!PATH.test(path))
    throw new Problem(
      'invalid-path',
      'a path is made of non-empty segments, each percent-encoded as RFC 3986 says',
    );
  if (DISGUISED.test(path))
    throw new Problem('invalid-path', 'a path may not contain an encoded dot, slash or backslash');
  return path
    .slice(1)
    .split('/')
    .map((segment) => nameOf(segment));
}

function nameOf(encoded: string): string {
  let name: string;
  try {
    name = decodeURIComponent(encoded);
  } catch {
    throw new Problem('invalid-path', 'percent-encoded bytes must be well-formed UTF-8');
  }
  if (CONTROL.test(name))
    throw new Problem('invalid-path', 'names may not contain control characters');
  if (name === '.' || name === '..')
    throw new Problem('invalid-path', 'a segment of a name may not be . or ..');
  // Two names that look alike would have two ratchets.
  if (name !== name.normalize('NFC'))
    throw new Problem('invalid-path', 'names must be in Unicode normal form C (NFC)');
  return name;
}

/** A name as it stands in a path: each segment encoded. */
export function encodedPath(name: string): string {
  return name.split('/').map(encodeURIComponent).join('/');
}
