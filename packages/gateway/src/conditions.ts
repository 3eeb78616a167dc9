import type { ByteRange } from '@fenced/store/s3';
import type { Message } from './message.js';
import { Problem } from './problem.js';

/**
 * The conditions of HTTP (RFC 9110, sections 13 and 14). Versions are opaque, strong entity tags.
 */

/** One strong entity tag. */
export const TAG_PATTERN: RegExp = /^"([\x21\x23-\x7e]+)"$/;

export function etagOf(version: string | bigint): string {
  return `"${version}"`;
}

/**
 * The version that a write may replace (`If-Match`); null if none may exist (`If-None-Match: *`);
 * undefined without a condition.
 *
 * @throws {Problem} `invalid-request` for forms that no store could check in one step
 */
export function expectedVersion(request: Message): string | null | undefined {
  const ifMatch = request.get('if-match');
  const ifNoneMatch = request.get('if-none-match');
  if (ifMatch !== undefined && ifNoneMatch !== undefined)
    throw new Problem('invalid-request', 'send If-Match or If-None-Match, not both');
  if (ifNoneMatch !== undefined) {
    if (ifNoneMatch.trim() === '*') return null;
    throw new Problem('invalid-request', 'If-None-Match of a write must be *');
  }
  if (ifMatch === undefined) return undefined;
  const version = TAG_PATTERN.exec(ifMatch.trim())?.[1];
  if (version !== undefined) return version;
  throw new Problem('invalid-request', 'If-Match of a write must be one strong entity tag');
}

/**
 * True if the reader has this version already. For a claim that reads (`POST`), the conditions do
 * not count.
 *
 * @throws {Problem} `precondition-failed` if `If-Match` names other versions only
 */
export function isNotModified(request: Message, etag: string): boolean {
  if (request.method === 'POST') return false;
  const ifMatch = request.get('if-match');
  if (ifMatch !== undefined && ifMatch.trim() !== '*' && !listed(ifMatch).includes(etag))
    throw new Problem('precondition-failed', 'another version is stored', {
      members: { version: etag.slice(1, -1) },
    });
  const ifNoneMatch = request.get('if-none-match');
  if (ifNoneMatch === undefined) return false;
  return (
    ifNoneMatch.trim() === '*' ||
    listed(ifNoneMatch).some((tag) => tag.replace(/^W\//, '') === etag)
  );
}

function listed(tags: string): readonly string[] {
  return tags.match(/(?:W\/)?"[^"]*"/g) ?? [];
}

/**
 * The range that the request asks for. Null if the whole body is the answer: the request has no
 * range, several, a malformed one, or one of another version.
 *
 * @throws {Problem} `range-not-satisfiable`
 */
export function rangeOf(
  request: Message,
  etag: string,
  bodyBytes: number,
): Required<ByteRange> | null {
  const ifRange = request.get('if-range');
  if (request.method !== 'GET' || (ifRange !== undefined && ifRange !== etag)) return null;
  const [, first, last = '', suffix] =
    /^bytes=(?:(\d+)-(\d*)|-(\d+))$/i.exec(request.get('range') ?? '') ?? [];
  if (first === undefined && suffix === undefined) return null;
  // RFC 9110, 14.1.2: a suffix that is longer than the body is the whole body.
  const start = first === undefined ? Math.max(0, bodyBytes - Number(suffix)) : Number(first);
  const end = last === '' ? bodyBytes - 1 : Math.min(Number(last), bodyBytes - 1);
  if (start <= end) return { start, end };
  // The last bytes of an empty body are an empty range, which `Content-Range` cannot name. So the
  // whole body is the answer.
  if (bodyBytes === 0 && Number(suffix) > 0) return null;
  throw new Problem('range-not-satisfiable', `the body has ${bodyBytes} bytes`, {
    members: { bodyBytes },
  });
}
