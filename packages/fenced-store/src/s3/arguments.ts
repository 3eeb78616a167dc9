import { checkEdited, checkObject, checkWholeNumber } from '../core/check.js';
import { InvalidArgumentError } from '../core/errors.js';
import { shown } from '../core/shown.js';
import { METADATA_BYTES_MAX, metadataBytes, RESERVED_PREFIX } from '../core/stored.js';

/** S3's own limit. */
const KEY_BYTES_MAX = 1024;
/** The text that an HTTP header carries unchanged. */
const HEADER_VALUE = /^[!-~](?:[ -~]*[!-~])?$/;
/**
 * S3 returns header names in lower case. Without `_`: Ceph makes it a dash, so a name could become
 * one of ours, and nginx drops such headers.
 */
const METADATA_NAME = /^[a-z0-9!#$%&'*+.^`|~-]+$/;

const TAG = /^[\p{L}\p{N} +\-=._:/@]+$/u;
const TAGS_MAX = 10;

/** The headers, tags, lock and metadata of an object. */
export interface Headers {
  readonly contentType?: string;
  readonly cacheControl?: string;
  readonly contentDisposition?: string;
  readonly contentLanguage?: string;
  /** For example STANDARD_IA. A class that must be restored before a read cannot be used. */
  readonly storageClass?: string;
  /** At most 10. Letters, digits, spaces and + - = . _ : / @ */
  readonly tags?: Readonly<Record<string, string>>;
  readonly objectLock?: ObjectLock;
  /** Names in lower case, without `_`. At most 1300 bytes, with `x-amz-meta-` before each name. */
  readonly metadata?: Readonly<Record<string, string>>;
}

/**
 * Protects this version of the object from being removed, in a bucket with Object Lock. A later
 * write or `delete` makes a new version, and does not change this one.
 */
export interface ObjectLock {
  /** Needs `retainUntilMs`, too. */
  readonly mode?: 'GOVERNANCE' | 'COMPLIANCE';
  /** In milliseconds since 1970. */
  readonly retainUntilMs?: number;
  readonly legalHold?: boolean;
}

/** @throws {InvalidArgumentError} if S3 cannot store such a key, or the key is one of the probe. */
export function checkKey(key: string, space: KeySpace): void {
  checkKeyText(key, space.prefix);
  if (key.startsWith(space.probePrefix))
    throw new InvalidArgumentError(
      `keys that begin with the probePrefix are those of the probe key=${JSON.stringify(key)} probePrefix=${space.probePrefix}`,
    );
}

/** @throws {InvalidArgumentError} if no key of the store can begin with this text. */
export function checkPrefix(text: string, prefix: string): void {
  if (text !== '') checkKeyText(text, prefix);
}

/** The prefix of the keys of a store, and that of the probe behind it. */
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

/** A body in pieces: a `Readable`, a web `ReadableStream` or an async generator. */
export type BodyStream = AsyncIterable<string | Uint8Array>;

/**
 * A body to be written. A stream can be read only once, so it cannot be sent again after a lost
 * race. A function that opens a new stream each time can.
 */
export type S3Body = string | Uint8Array | BodyStream | (() => BodyStream);

/** Returns the bytes of a body. @throws {InvalidArgumentError} */
export function bodyBytes(body: unknown): Uint8Array {
  if (body instanceof Uint8Array) return body;
  if (typeof body !== 'string')
    throw new InvalidArgumentError(
      `body must be a string, a Uint8Array, a stream, or a function that opens one; JSON.stringify makes text of a value type=${body === null ? 'null' : typeof body}`,
    );
  if (!body.isWellFormed())
    throw new InvalidArgumentError('body must be well-formed Unicode, without lone surrogates');
  return Buffer.from(body);
}

/** Checks headers, and copies them, so that a later change by the caller has no effect. */
export function checkHeaders(given: Headers): Headers {
  const texts = HEADER_NAMES.flatMap((name) => {
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

/** The headers that are plain text. */
export const HEADER_NAMES = [
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

/** The latest time that a `Date` can hold. */
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

/** Copies an object of strings. A Map or an array has no such entries. */
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

/** True if a header carries the text unchanged. */
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
 * A range of the caller's bytes, whatever the stored form: from `start` to `end`, both included, as
 * in HTTP and `createReadStream`. Without `end`, to the end of the body.
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

/**
 * The body and the headers that the function of `update` has returned.
 *
 * @throws {InvalidArgumentError} it returned nothing, or an object without a body
 */
export function editOf(edited: unknown): { readonly body: unknown } {
  checkEdited(edited);
  if (typeof edited === 'string' || edited instanceof Uint8Array) return { body: edited };
  if (typeof edited === 'object' && edited !== null && 'body' in edited) return { ...edited };
  throw new InvalidArgumentError(
    `edit must return a string, a Uint8Array, or an object with a body such as { body, contentType }; JSON.stringify makes text of a value value=${shown(edited)}`,
  );
}
