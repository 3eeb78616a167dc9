import { LockArgumentError } from '../core/errors.js';

/** The calls of a `FencedS3` that `S3Lock` makes. */
export interface LockObjects {
  get(
    key: string,
    options: { readonly signal: AbortSignal },
  ): Promise<{
    readonly body: Uint8Array;
    readonly token: bigint;
    readonly version: string | null;
  } | null>;
  put(
    key: string,
    body: string,
    options: {
      readonly token: bigint;
      readonly expected: string | null;
      readonly contentType: string;
      readonly signal: AbortSignal;
    },
  ): Promise<{ readonly version: string | null }>;
  /** Forgets what the store saw of a key. Until then, it refuses all calls for a removed object. */
  forget(key: string): void;
}

/** The lock record of one resource. */
export interface LockRecord {
  readonly resource: string;
  /** Unique. Null if there is no object, or if another write has replaced it since. */
  readonly version: string | null;
  /** The token of the last holder, or a higher one that this process saw before; 0n without any. */
  readonly token: bigint;
  /** Null if the lock is free. */
  readonly held: Held | null;
}

export interface Held {
  readonly owner: string;
  /** Length of the lease in milliseconds. It began before this version was written. */
  readonly ttlMs: number;
  /**
   * The end of the lease by the wall clock of its writer, in milliseconds since 1970. Only an
   * extension by another process compares it.
   */
  readonly endsAtMs: number;
}

const FREE = '{}';
/** The limit of S3, in UTF-8. */
const KEY_BYTES_MAX = 1_024;

/**
 * The objects of the locks. A write replaces one version, so of several clients one wins. The write
 * presents the holder's token, which the store remembers, also while the lock is free.
 */
export class Records {
  readonly #objects: LockObjects;
  readonly #prefix: string;

  constructor(objects: LockObjects, prefix: string) {
    this.#objects = objects;
    this.#prefix = prefix;
  }

  /** @throws {LockArgumentError} if the name is too long for a key */
  check(resource: string): void {
    if (Buffer.byteLength(this.#key(resource)) <= KEY_BYTES_MAX) return;
    throw new LockArgumentError(
      `the key of a lock has at most ${KEY_BYTES_MAX} bytes, percent-encoded resource=${resource.slice(0, 60)}`,
    );
  }

  async read(resource: string, signal: AbortSignal): Promise<LockRecord> {
    const key = this.#key(resource);
    let highest = 0n;
    const found = await this.#objects.get(key, { signal }).catch((error: unknown) => {
      // Somebody removed the object, for instance to free the lock, or restored an older one. The
      // lock goes on from there, above the last token that this process saw.
      if (codeOf(error) !== 'ratchet-lost') throw error;
      highest = (error as { readonly known: bigint }).known;
      this.#objects.forget(key);
      return this.#objects.get(key, { signal });
    });
    if (!found) return { resource, version: null, token: highest, held: null };
    const { version } = found;
    const token = found.token > highest ? found.token : highest;
    return { resource, version, token, held: parse(key, new TextDecoder().decode(found.body)) };
  }

  /**
   * Replaces this version of a record.
   *
   * @throws an error for which `isRefused` is true, if it is no longer the stored one
   */
  async replace(
    record: LockRecord,
    next: Omit<LockRecord, 'resource' | 'version'>,
    signal: AbortSignal,
  ): Promise<LockRecord> {
    const { resource, version: expected } = record;
    const { token, held } = next;
    const options = { token, expected, contentType: 'application/json', signal };
    const body = held ? JSON.stringify(held) : FREE;
    const { version } = await this.#objects.put(this.#key(resource), body, options);
    return { resource, version, ...next };
  }

  #key(resource: string): string {
    return this.#prefix + encodeURIComponent(resource);
  }
}

/** True if another write was quicker or the object was removed, so that nothing was written. */
export function isRefused(error: unknown): boolean {
  return REFUSALS.includes(codeOf(error));
}

const REFUSALS: readonly unknown[] = [
  'version-mismatch',
  'conflict',
  'stale-token',
  'ratchet-lost',
];

function codeOf(error: unknown): unknown {
  return (error as { readonly code?: unknown }).code;
}

/** @throws if the object is no lock record */
function parse(key: string, body: string): Held | null {
  if (body === FREE) return null;
  let fields: Partial<Held> = {};
  try {
    fields = Object(JSON.parse(body));
  } catch {
    // Refused below.
  }
  const { owner, ttlMs, endsAtMs = 0 } = fields;
  if (typeof owner === 'string' && typeof ttlMs === 'number' && ttlMs > 0)
    return { owner, ttlMs, endsAtMs: Number(endsAtMs) };
  throw new Error(
    `the object is no lock record, so another program wrote it: choose another keyPrefix key=${key}`,
  );
}
