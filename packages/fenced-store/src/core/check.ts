import { InvalidArgumentError } from './errors.js';
import { shown } from './shown.js';

/** Checks for callers without a type checker, before anything is sent. */

/** @throws {InvalidArgumentError} if it is not an object. */
export function checkObject(name: string, value: unknown): void {
  if (typeof value !== 'object' || value === null)
    throw new InvalidArgumentError(`${name} must be an object value=${shown(value)}`);
}

/** The fields of the options of all calls. */
const CALL_FIELDS: readonly string[] = [
  ...['token', 'signal', 'resource', 'lease', 'isolation', 'attemptsMax', 'expected', 'range'],
  ...['contentType', 'cacheControl', 'contentDisposition', 'contentLanguage', 'storageClass'],
  ...['tags', 'objectLock', 'metadata', 'body', 'bodyBytes', 'onProgress', 'onWriteId', 'writeId'],
  ...['key', 'pageSize', 'renew'],
];

/** The names that other libraries use for a field, in lower case. */
const HINTS: Readonly<Record<string, readonly string[]>> = {
  expected: ['etag', 'expectedversion', 'ifmatch', 'ifnonematch', 'version'],
  token: ['fencingtoken', 'fencing_token'],
  resource: ['name', 'resources'],
  contentType: ['contenttype'],
  metadata: ['metadata'],
  bucket: ['bucket'],
  client: ['s3', 's3client'],
  pool: ['connection', 'sql'],
  ttlMs: ['ttl', 'duration', 'expiry'],
  waitMs: ['wait', 'timeout', 'timeoutms'],
  key: ['apikey', 'secret'],
  url: ['address', 'endpoint', 'host'],
};

/**
 * Requires an object with no other fields than these. Otherwise, a misspelt condition of a write
 * would be ignored silently.
 *
 * @param example for the message
 * @param what for the message
 * @throws {InvalidArgumentError} it is no object, or it has another field
 */
export function checkOptions(
  options: unknown,
  known: readonly string[] = CALL_FIELDS,
  example = '{ token: lease.token }',
  what = 'the options',
): void {
  const refused = (value: string): InvalidArgumentError =>
    new InvalidArgumentError(`${what} must be an object such as ${example} value=${value}`);
  if (typeof options !== 'object' || options === null || Array.isArray(options))
    throw refused(shown(options));
  for (const field of Object.keys(options)) {
    if (known.includes(field)) continue;
    // A lease, a client or a pool in place of the options.
    const { name = 'Object' } = Object(options.constructor);
    if (name !== 'Object') throw refused(`a ${name}`);
    const hint = known.find((name) => HINTS[name]?.includes(field.toLowerCase()));
    const advice = hint ? `: the field is called ${hint}` : '';
    throw new InvalidArgumentError(
      `unknown field ${field} in ${what}${advice}; expected is an object such as ${example}`,
    );
  }
}

/** @throws {InvalidArgumentError} */
export function checkFunction(name: string, value: unknown): void {
  if (typeof value !== 'function')
    throw new InvalidArgumentError(`${name} must be a function value=${shown(value)}`);
}

/** Checks the result of the function of `update`. @throws {InvalidArgumentError} */
export function checkEdited(edited: unknown): void {
  if (edited !== undefined) return;
  throw new InvalidArgumentError(
    'edit must return the new value, and returned nothing: write (current) => next, or return it; nothing was written',
  );
}

/** @throws {InvalidArgumentError} if it is neither undefined nor an `AbortSignal`. */
export function checkSignal(name: string, value: unknown): void {
  if (value === undefined) return;
  const { throwIfAborted, addEventListener } = (value ?? {}) as Record<string, unknown>;
  if (typeof throwIfAborted !== 'function' || typeof addEventListener !== 'function')
    throw new InvalidArgumentError(`${name} must be an AbortSignal value=${shown(value)}`);
}

/** @throws {InvalidArgumentError} if it is no whole number in the range. */
export function checkWholeNumber(name: string, value: number, min: number, max: number): void {
  if (!Number.isSafeInteger(value) || value < min || value > max)
    throw new InvalidArgumentError(
      `${name} must be a whole number from ${min} to ${max} value=${shown(value)}`,
    );
}

/** @throws {InvalidArgumentError} if a read was given a token. Names the call that takes one. */
export function checkNoToken(options: object, instead: string): void {
  if ('token' in options && options.token !== undefined)
    throw new InvalidArgumentError(
      `a read takes no token, because it writes nothing: call ${instead}, which claims the resource and reads it`,
    );
}

/** @throws {InvalidArgumentError} */
export function checkExpected(expected: string | null | undefined): void {
  if (expected !== undefined && expected !== null && typeof expected !== 'string')
    throw new InvalidArgumentError(`expected must be a version or null value=${shown(expected)}`);
}
