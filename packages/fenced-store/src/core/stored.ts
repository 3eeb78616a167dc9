import { CorruptObjectError } from './errors.js';
import { TOKEN_MAX } from './token.js';

/** `deleted` is a tombstone: no value, but its token still counts. */
export type StoredState = 'live' | 'deleted';

/** The stored form: a gzip member whose header has the stamp, or the caller's bytes as they are. */
export type Layout = 'gzip' | 'plain';

/** Identifies a write, in the stored bytes and in the metadata. */
export interface Stamp {
  readonly token: bigint;
  /**
   * 16 random bytes as 32 hexadecimal digits. It makes all stored bytes, and so all ETags, unique.
   */
  readonly writeId: string;
}

/**
 * The facts of an object, according to a `HEAD`.
 *
 * An object that existed before this library has the token 0n, so every token may replace it. A
 * digest of its ETag stands for the write id.
 */
export interface Stored extends Stamp {
  /** The ETag without its quotes. It is unique. */
  readonly version: string;
  readonly state: StoredState;
  readonly layout: Layout;
  /**
   * The earlier writes, newest first, at most `HISTORY_MAX`: the first `SHORT_ID_DIGITS` digits of
   * each write id. If there are fewer, the history is whole.
   */
  readonly before: readonly string[];
  /** Size of the caller's body, if the writer knew it before the body was sent. */
  readonly bodyBytes?: number | undefined;
}

/**
 * Number of earlier writes in the history of an object. A writer whose reply was lost still learns
 * the outcome, if at most this many writes followed.
 */
export const HISTORY_MAX = 40;

/** 48 bits. One of 40 other writes has the same id with a probability of 1.4e-13. */
const SHORT_ID_DIGITS = 12;

function shortId(writeId: string): string {
  return writeId.slice(0, SHORT_ID_DIGITS);
}

/** True if the history of `stored` has that write. */
export function hasInHistory(stored: Stored, writeId: string): boolean {
  return stored.before.includes(shortId(writeId));
}

/** True if that write created the object. A history that is not whole does not tell. */
export function isCreatedBy(stored: Stored, writeId: string): boolean {
  const { before } = stored;
  return (
    before.length < HISTORY_MAX && (before.at(-1) ?? shortId(stored.writeId)) === shortId(writeId)
  );
}

/**
 * The largest metadata of callers, in bytes. S3 allows 2048 bytes, and ours take up to 739 as the
 * history grows (MinIO counts names with `x-amz-meta-`). All later writes must fit, too.
 */
export const METADATA_BYTES_MAX = 1_300;

/** Size of metadata, as the strictest server counts it. */
export function metadataBytes(metadata: Readonly<Record<string, string>>): number {
  return Object.entries(metadata)
    .map(([name, value]) => 'x-amz-meta-'.length + name.length + value.length)
    .reduce((sum, bytes) => sum + bytes, 0);
}

/** The beginning of our metadata names, which callers may not use. */
export const RESERVED_PREFIX = 'fencing-';

/** The history of a write that replaces `base`. */
export function historyAfter(base: Stored | null): readonly string[] {
  return base === null ? [] : [shortId(base.writeId), ...base.before].slice(0, HISTORY_MAX);
}

/** The longest history that an object can have, for a probe. */
export function fullHistory(writeId: string): readonly string[] {
  return Array.from({ length: HISTORY_MAX }, () => shortId(writeId));
}

/** @param keyDigest digest of the whole key in the bucket */
export function toMetadata(
  stored: Omit<Stored, 'version'>,
  keyDigest: string,
): Record<string, string> {
  return {
    'fencing-token': stored.token.toString(),
    'fencing-write': stored.writeId,
    'fencing-state': stored.state,
    'fencing-key': keyDigest,
    ...(stored.bodyBytes !== undefined && { 'fencing-size': String(stored.bodyBytes) }),
    ...(stored.layout === 'plain' && { 'fencing-layout': 'plain' }),
    // No empty header: some servers drop it, and then miss it in the signature.
    ...(stored.before.length > 0 && { 'fencing-before': stored.before.join('') }),
  };
}

/** True if another program wrote the object. A damaged object of ours has some of our metadata. */
export function isForeign(metadata: Readonly<Record<string, string>>): boolean {
  return !Object.keys(metadata).some((name) => name.startsWith(RESERVED_PREFIX));
}

/**
 * Parses what `toMetadata` wrote. Objects of earlier versions do not name their key.
 *
 * Invariant: a token that is read under a key was written under that key, so no write replaces the
 * object of another key.
 *
 * @throws {CorruptObjectError} if the metadata was changed, or was written under another key.
 */
export function fromMetadata(
  resource: string,
  version: string,
  metadata: Readonly<Record<string, string>>,
  keyDigest: string,
): Stored {
  const digest = metadata['fencing-key'];
  if (digest !== undefined && digest !== keyDigest)
    throw new CorruptObjectError(
      resource,
      'the object was written under another key: the server takes two keys for one, or somebody copied or renamed the object',
    );
  const damaged = (name: string): CorruptObjectError =>
    new CorruptObjectError(
      resource,
      `the object's metadata is damaged: look at it, then repair(key) name=${name}`,
    );
  const token = tokenIn(metadata);
  if (token === null) throw damaged('fencing-token');
  const writeId = metadata['fencing-write'] ?? '';
  if (!isWriteId(writeId)) throw damaged('fencing-write');
  const state = metadata['fencing-state'];
  if (state !== 'live' && state !== 'deleted') throw damaged('fencing-state');
  const layout = metadata['fencing-layout'] ?? 'gzip';
  if (layout !== 'gzip' && layout !== 'plain') throw damaged('fencing-layout');
  const history = metadata['fencing-before'];
  if (history !== undefined && !HISTORY.test(history)) throw damaged('fencing-before');
  const before = history?.match(SHORT_ID) ?? [];
  const size = metadata['fencing-size'];
  if (size !== undefined && !/^(?:0|[1-9][0-9]{0,12})$/.test(size)) throw damaged('fencing-size');
  const bodyBytes = size === undefined ? undefined : Number(size);
  return { version, token, writeId, state, layout, before, bodyBytes };
}

/** The readable part of damaged metadata. Null for metadata of another key, which is no damage. */
export function salvagedMetadata(
  metadata: Readonly<Record<string, string>>,
  keyDigest: string,
): Pick<Stored, 'token' | 'state' | 'layout'> | null {
  const { 'fencing-key': digest = keyDigest } = metadata;
  if (digest !== keyDigest && KEY_DIGEST.test(digest)) return null;
  return {
    token: tokenIn(metadata) ?? 0n,
    state: metadata['fencing-state'] === 'deleted' ? 'deleted' : 'live',
    layout: metadata['fencing-layout'] === 'plain' ? 'plain' : 'gzip',
  };
}

function tokenIn(metadata: Readonly<Record<string, string>>): bigint | null {
  const token = metadata['fencing-token'] ?? '';
  return /^[1-9][0-9]{0,18}$/.test(token) && BigInt(token) <= TOKEN_MAX ? BigInt(token) : null;
}

/** The caller's own metadata: all but ours. */
export function callersMetadata(
  metadata: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(metadata).filter(([name]) => !name.startsWith(RESERVED_PREFIX)),
  );
}

const KEY_DIGEST = /^[0-9a-f]{16}$/;
const SHORT_ID = new RegExp(`[0-9a-f]{${SHORT_ID_DIGITS}}`, 'g');
const HISTORY = new RegExp(`^(?:${SHORT_ID.source}){1,${HISTORY_MAX}}$`);

function isWriteId(text: string): boolean {
  return /^[0-9a-f]{32}$/.test(text);
}
