import '../node-version.js';
/**
 * Paths have only one reading. A path is decoded once, as a whole, before it is split and checked.
 * So `a%2Fb` and `a/b` are one name. Routes, rights, stores and the log use decoded names only.
 */

/** A path that cannot name a stored value. A gateway answers it with the problem `invalid-path`. */
export class InvalidPathError extends Error {
  override readonly name = 'InvalidPathError';
}

/** The characters that RFC 3986 allows in a path. */
const PATH = /^\/(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/]|%[0-9A-Fa-f]{2})+$/;
/** Control characters, among them NUL, and the backslash, which some programs take for a slash. */
const FORBIDDEN = /[\p{Cc}\\]/u;

/**
 * The decoded segments of a raw target, without its query: UTF-8 in Unicode's normal form C.
 *
 * @throws {InvalidPathError}
 */
export function segmentsOf(target: string): readonly string[] {
  const path = pathOf(target);
  if (!PATH.test(path)) throw invalid('a path must be percent-encoded as in RFC 3986');
  const name = decoded(path.slice(1));
  if (FORBIDDEN.test(name))
    throw invalid('names may not contain control characters or backslashes');
  // Otherwise, two names that look the same would be two resources, with a highest token each.
  if (name !== name.normalize('NFC')) throw invalid('names must be in Unicode normal form C (NFC)');
  const segments = name.split('/');
  if (segments.some((segment) => ['', '.', '..'].includes(segment)))
    throw invalid('a segment of a name may not be empty, . or ..');
  return segments;
}

/**
 * The target with its names encoded as by {@link encodedPath}, for finding the route.
 *
 * @throws {InvalidPathError} also if fixed parts such as `/v1/objects` are encoded, which would
 *   evade a proxy's rules
 */
export function canonicalTarget(target: string): string {
  const segments = segmentsOf(target);
  const [, ...raw] = pathOf(target).split('/', 3);
  if (raw.some((segment, at) => segment !== segments[at]))
    throw invalid('only the names in a path may be percent-encoded');
  return `/${encodedPath(segments.join('/'))}`;
}

function pathOf(target: string): string {
  return target.split('?', 1)[0] ?? '';
}

function decoded(encoded: string): string {
  try {
    return decodeURIComponent(encoded);
  } catch {
    throw invalid('percent-encoded bytes must be well-formed UTF-8');
  }
}

function invalid(detail: string): InvalidPathError {
  return new InvalidPathError(detail);
}

/** Refuses a name that no path can carry. @throws {InvalidPathError} */
export function checkName(name: string): void {
  if (!name.isWellFormed()) throw invalid('names must be well-formed Unicode');
  segmentsOf(`/${encodedPath(name)}`);
}

/** A name as it stands in a path: each segment encoded. */
export function encodedPath(name: string): string {
  return name.split('/').map(encodeURIComponent).join('/');
}
