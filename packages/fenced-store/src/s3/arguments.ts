import { checkObject } from '../core/check.js';
import { InvalidArgumentError } from '../core/errors.js';
import { METADATA_BYTES_MAX, metadataBytes, RESERVED_PREFIX } from '../core/stored.js';

/** S3's own limit. */
const KEY_BYTES_MAX = 1024;
/** A UTF-16 surrogate without its partner: such text has no UTF-8, and would be stored as other text. */
const LONE_SURROGATE = /\p{Surrogate}/u;
/** What an HTTP header can carry without being recoded or trimmed on the way. */
const HEADER_VALUE = /^[!-~](?:[ -~]*[!-~])?$/;
/**
 * Header names are case-insensitive; S3 gives them back in lower case. Without `_`: Ceph makes it a dash, so that a name
 * could become one of ours, and nginx drops such headers.
 */
const METADATA_NAME = /^[a-z0-9!#$%&'*+.^`|~-]+$/;

/** What an object is stored with, besides its bytes. */
export interface Headers {
  readonly contentType?: string;
  readonly cacheControl?: string;
  /** Names in lower case, without `_`. At most 1300 bytes, where each name counts with the `x-amz-meta-` before it. */
  readonly metadata?: Readonly<Record<string, string>>;
}

export function checkKey(key: string): void {
  if (typeof key !== 'string' || key === '')
    throw new InvalidArgumentError(`key must be a non-empty string type=${typeof key}`);
  if (LONE_SURROGATE.test(key))
    throw new InvalidArgumentError(
      `key must be well-formed Unicode, without lone surrogates key=${JSON.stringify(key)}`,
    );
  const bytes = Buffer.byteLength(key);
  if (bytes > KEY_BYTES_MAX)
    throw new InvalidArgumentError(
      `key must be at most ${KEY_BYTES_MAX} bytes of UTF-8 bytes=${bytes}`,
    );
}

/** The bytes of a body that a caller gave. */
export function bodyBytes(body: string | Uint8Array): Uint8Array {
  if (body instanceof Uint8Array) return body;
  if (typeof body !== 'string')
    throw new InvalidArgumentError(
      `body must be a string or a Uint8Array type=${body === null ? 'null' : typeof body}`,
    );
  if (LONE_SURROGATE.test(body))
    throw new InvalidArgumentError('body must be well-formed Unicode, without lone surrogates');
  return Buffer.from(body);
}

/** A copy of the headers that a caller gave: what was checked is what is sent, whatever becomes of the caller's object. */
export function checkHeaders({ contentType, cacheControl, metadata }: Headers): Headers {
  for (const [name, value] of Object.entries({ contentType, cacheControl }))
    if (value !== undefined) checkHeaderValue(name, value);
  return {
    ...(contentType !== undefined && { contentType }),
    ...(cacheControl !== undefined && { cacheControl }),
    ...(metadata !== undefined && { metadata: checkMetadata(metadata) }),
  };
}

function checkMetadata(given: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  checkObject('metadata', given);
  // A Map or an array has entries of another kind, which would be dropped or stored under their numbers.
  if (Symbol.iterator in given)
    throw new InvalidArgumentError('metadata must be an object of names and strings');
  const metadata = { ...given };
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

function checkHeaderValue(name: string, value: unknown): void {
  if (typeof value !== 'string' || !HEADER_VALUE.test(value))
    throw new InvalidArgumentError(
      `${name} must be a non-empty string of printable ASCII without spaces at its ends`,
    );
}
