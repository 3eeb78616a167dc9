import '../node-version.js';
/**
 * Paths have only one reading. A path is decoded once, as a whole, before it is split and checked.
 * So `a%2Fb` and `a/b` are one name. Routes, rights, stores and the log use decoded names only.
 */

/** A path that cannot name a stored value. A gateway answers it with the problem `invalid-path`. */
export class InvalidPathError extends Error {
  override readonly name = 'InvalidPathError';
}

/** Control characters, among them NUL, and the backslash, which some programs take for a slash. */
const FORBIDDEN = String.raw`\u0000-\u001f\u007f-\u009f\\`;
const HAS_FORBIDDEN = new RegExp(`[${FORBIDDEN}]`);
/** Not empty, and neither `.` nor `..`. It has no lookahead, which not all languages know. */
const SEGMENT = `([^/.${FORBIDDEN}]|[.][^/.${FORBIDDEN}]|[.][.][^/${FORBIDDEN}])[^/${FORBIDDEN}]*`;

/** The decoded form of a name without slashes. Besides, it is in Unicode's normal form C. */
export const SEGMENT_PATTERN: RegExp = new RegExp(`^${SEGMENT}$`);
/** The decoded form of a name. Besides, it is in Unicode's normal form C. */
export const NAME_PATTERN: RegExp = new RegExp(`^${SEGMENT}(/${SEGMENT})*$`);
/** The form of a name in a path or a header: percent-encoded. */
export const ENCODED_PATTERN: RegExp = /^(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/]|%[0-9A-Fa-f]{2})+$/;

/**
 * The decoded segments of a raw target, without its query: UTF-8 in Unicode's normal form C.
 *
 * @throws {InvalidPathError}
 */
export function segmentsOf(target: string): readonly string[] {
  const path = pathOf(target);
  if (!path.startsWith('/') || !ENCODED_PATTERN.test(path.slice(1)))
    throw invalid('a path must be percent-encoded as in RFC 3986');
  const name = decoded(path.slice(1));
  if (HAS_FORBIDDEN.test(name))
    throw invalid('names may not contain control characters or backslashes');
  // Otherwise, two names that look the same would be two resources, with a highest token each.
  if (name !== name.normalize('NFC')) throw invalid('names must be in Unicode normal form C (NFC)');
  if (!NAME_PATTERN.test(name)) throw invalid('a segment of a name may not be empty, . or ..');
  return name.split('/');
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
