import { checkObject, checkWholeNumber } from '../core/check.js';
import { InvalidArgumentError } from '../core/errors.js';
import { METADATA_BYTES_MAX, metadataBytes, RESERVED_PREFIX } from '../core/stored.js';

/** S3's own limit. */
const KEY_BYTES_MAX = 1024;
/** What an HTTP header can carry without being recoded or trimmed on the way. */
const HEADER_VALUE = /^[!-~](?:[ -~]*[!-~])?$/;
/**
 * Header names are case-insensitive; S3 gives them back in lower case. Without `_`: Ceph makes it a dash, so that a name
 * could become one of ours, and nginx drops such headers.
 */
const METADATA_NAME = /^[a-z0-9!#$%&'*+.^`|~-]+$/;

const TAG = /^[\p{L}\p{N} +\-=._:/@]+$/u;
const TAGS_MAX = 10;

/** What an object is stored with, besides its bytes. */
export interface Headers {
  readonly contentType?: string;
  readonly cacheControl?: string;
  readonly contentDisposition?: string;
  readonly contentLanguage?: string;
  /** Where the server has several, such as STANDARD_IA. One that must be restored before it is read cannot be used. */
  readonly storageClass?: string;
  /** At most 10. Letters, digits, spaces and + - = . _ : / @ */
  readonly tags?: Readonly<Record<string, string>>;
  readonly objectLock?: ObjectLock;
  /** Names in lower case, without `_`. At most 1300 bytes, where each name counts with the `x-amz-meta-` before it. */
  readonly metadata?: Readonly<Record<string, string>>;
}

/**
 * Keeps this version of the object from being removed, in a bucket with Object Lock. A later write, a `delete` too, makes a new
 * version, and changes nothing of this one.
 */
export interface ObjectLock {
  /** Together with `retainUntilMs`. */
  readonly mode?: 'GOVERNANCE' | 'COMPLIANCE';
  /** In milliseconds since 1970. */
  readonly retainUntilMs?: number;
  readonly legalHold?: boolean;
}

/** @throws {InvalidArgumentError} where S3 cannot have such a key behind the prefix, or it is one of ours. */
export function checkKey(key: string, space: KeySpace): void {
  checkKeyText(key, space.prefix);
  if (key.startsWith(space.probePrefix))
    throw new InvalidArgumentError(
      `keys that begin with the probePrefix are those of the probe key=${JSON.stringify(key)} probePrefix=${space.probePrefix}`,
    );
}

/** @throws {InvalidArgumentError} where no key behind the store's own prefix could begin so. */
export function checkPrefix(text: string, prefix: string): void {
  if (text !== '') checkKeyText(text, prefix);
}

/** Where the keys of a store are. */
export interface KeySpace {
  readonly prefix: string;
  readonly probePrefix: string;
}

export function checkKeyText(key: string, prefix: string): void {
  if (typeof key !== 'string' || key === '')
    throw new InvalidArgumentError(`key must be a non-empty string type=${typeof key}`);
  if (!key.isWellFormed())
    throw new InvalidArgumentError(
      `key must be well-formed Unicode, without lone surrogates key=${JSON.stringify(key)}`,
    );
  const bytes = Buffer.byteLength(prefix + key);
  if (bytes > KEY_BYTES_MAX)
    throw new InvalidArgumentError(
      `key must be at most ${KEY_BYTES_MAX} bytes of UTF-8, with the prefix bytes=${bytes}`,
    );
}

/** A body that comes piece by piece: a `Readable`, a web `ReadableStream`, an async generator; of strings or bytes. */
export type BodyStream = AsyncIterable<string | Uint8Array>;

/**
 * A body to be written. A stream can be read only once: where others win the race to write, it cannot be sent again. A
 * function that opens a new one each time can.
 */
export type S3Body = string | Uint8Array | BodyStream | (() => BodyStream);

/** The bytes of a body that a caller gave. */
export function bodyBytes(body: unknown): Uint8Array {
  if (body instanceof Uint8Array) return body;
  if (typeof body !== 'string')
    throw new InvalidArgumentError(
      `body must be a string, a Uint8Array, a stream, or a function that opens one type=${body === null ? 'null' : typeof body}`,
    );
  if (!body.isWellFormed())
    throw new InvalidArgumentError('body must be well-formed Unicode, without lone surrogates');
  return Buffer.from(body);
}

/** A copy of the headers that a caller gave: what was checked is what is sent, whatever becomes of the caller's object. */
export function checkHeaders(given: Headers): Headers {
  const texts = TEXTS.flatMap((name) => {
    const value = given[name];
    if (value === undefined) return [];
    checkHeaderValue(name, value);
    return [[name, value]];
  });
  const { metadata, tags, objectLock } = given;
  return {
    ...Object.fromEntries(texts),
    ...(metadata !== undefined && { metadata: checkMetadata(metadata) }),
    ...(tags !== undefined && { tags: checkTags(tags) }),
    ...(objectLock !== undefined && { objectLock: checkObjectLock(objectLock) }),
  };
}

const TEXTS = [
  'contentType',
  'cacheControl',
  'contentDisposition',
  'contentLanguage',
  'storageClass',
] as const;

function checkTags(given: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  const tags = checkRecord('tags', given);
  if (Object.keys(tags).length > TAGS_MAX)
    throw new InvalidArgumentError(`tags must be at most ${TAGS_MAX}`);
  for (const [name, value] of Object.entries(tags))
    if (!TAG.test(name) || typeof value !== 'string' || (value !== '' && !TAG.test(value)))
      throw new InvalidArgumentError(
        `tags must be letters, digits, spaces and + - = . _ : / @ name=${JSON.stringify(name)}`,
      );
  return tags;
}

/** The last moment that a date can name. */
const TIME_MS_MAX = 8_640_000_000_000_000;

function checkObjectLock(given: ObjectLock): ObjectLock {
  checkObject('objectLock', given);
  const { mode, retainUntilMs, legalHold } = given;
  if (mode !== undefined && mode !== 'GOVERNANCE' && mode !== 'COMPLIANCE')
    throw new InvalidArgumentError("objectLock.mode must be 'GOVERNANCE' or 'COMPLIANCE'");
  if ((mode === undefined) !== (retainUntilMs === undefined))
    throw new InvalidArgumentError('objectLock needs both mode and retainUntilMs, or neither');
  if (retainUntilMs !== undefined)
    checkWholeNumber('objectLock.retainUntilMs', retainUntilMs, 0, TIME_MS_MAX);
  if (legalHold !== undefined && typeof legalHold !== 'boolean')
    throw new InvalidArgumentError('objectLock.legalHold must be true or false');
  return { ...given };
}

/** A copy. A Map or an array has entries of another kind, which would be dropped or stored under their numbers. */
function checkRecord(
  name: string,
  given: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> {
  checkObject(name, given);
  if (Symbol.iterator in given)
    throw new InvalidArgumentError(`${name} must be an object of names and strings`);
  return { ...given };
}

function checkMetadata(given: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  const metadata = checkRecord('metadata', given);
  for (const [name, value] of Object.entries(metadata)) {
    if (!METADATA_NAME.test(name))
      throw new InvalidArgumentError(
        `metadata names must be lower-case header names without "_" name=${JSON.stringify(name)}`,
      );
    if (name.startsWith(RESERVED_PREFIX))
      throw new InvalidArgumentError(
        `metadata names that begin with ${RESERVED_PREFIX} are reserved name=${name}`,
      );
    checkHeaderValue(`metadata.${name}`, value);
  }
  const bytes = metadataBytes(metadata);
  if (bytes > METADATA_BYTES_MAX)
    throw new InvalidArgumentError(
      `metadata must be at most ${METADATA_BYTES_MAX} bytes, each name counted with its x-amz-meta- bytes=${bytes}`,
    );
  return metadata;
}

/** Whether a header carries the text unchanged. */
export function isHeaderValue(value: unknown): value is string {
  return typeof value === 'string' && HEADER_VALUE.test(value);
}

function checkHeaderValue(name: string, value: unknown): void {
  if (!isHeaderValue(value))
    throw new InvalidArgumentError(
      `${name} must be a non-empty string of printable ASCII without spaces at its ends`,
    );
}

/**
 * Bytes of a body as the caller wrote it, whatever form it is stored in: from `start` to `end`, both counted, as in HTTP and
 * `createReadStream`. Without `end`, to the end of the body.
 */
export interface ByteRange {
  readonly start: number;
  readonly end?: number;
}

/** @throws {InvalidArgumentError} */
export function checkRange(range: ByteRange | undefined): void {
  if (range === undefined) return;
  checkObject('range', range);
  const { start, end } = range;
  checkWholeNumber('range.start', start, 0, Number.MAX_SAFE_INTEGER);
  if (end === undefined) return;
  checkWholeNumber('range.end', end, 0, Number.MAX_SAFE_INTEGER);
  if (end < start)
    throw new InvalidArgumentError(
      `range.end must not be before range.start start=${start} end=${end}`,
    );
}
