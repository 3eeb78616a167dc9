import { LockArgumentError } from '../core/errors.js';

/**
 * Storage for the one notice of an election: a record, an object, a row. Two functions over
 * `@fenced/store`, or your own.
 *
 * Invariant: a notice with a lower token never replaces one with a higher token. So `publish` must
 * present the token, and reject if the storage refuses it.
 */
export interface ElectionBoard {
  /** @throws an error whose `code` is `stale-token` if a later leader has published */
  publish(notice: string, token: bigint): Promise<unknown>;
  /** Returns the last notice; null or undefined if there is none. */
  read(): Promise<string | null | undefined>;
}

/** A leader's sign of life. */
export interface Notice {
  readonly token: bigint;
  readonly candidate: string;
  /** Grows with each notice under this token. */
  readonly beat: number;
  /** Milliseconds after which the next notice follows at the latest; 0 after a resignation. */
  readonly nextMs: number;
}

export function writeNotice({ token, ...rest }: Notice): string {
  return JSON.stringify({ token: String(token), ...rest });
}

/** @throws {LockArgumentError} if it is no notice */
export function parseNotice(text: string): Notice {
  let fields: Record<string, unknown> = {};
  try {
    fields = Object(JSON.parse(text));
  } catch {
    // Refused below.
  }
  const { token, candidate, beat, nextMs } = fields;
  if (typeof token !== 'string' || !/^\d{1,19}$/.test(token) || typeof candidate !== 'string')
    throw new LockArgumentError(`the board holds no notice of an election: ${text.slice(0, 60)}`);
  return { token: BigInt(token), candidate, beat: Number(beat), nextMs: Number(nextMs) };
}
