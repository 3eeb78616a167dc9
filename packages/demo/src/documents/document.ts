import type { Lines } from '../history.js';

/** A document without protection: the last write wins. */
export interface PlainDocument extends AsyncDisposable {
  read(): Promise<Lines>;
  write(lines: Lines): Promise<void>;
}

/** A document with the token in its metadata. A write demands the ETag that was read. */
export interface MetadataDocument extends AsyncDisposable {
  read(): Promise<Lines>;
  /**
   * @throws {StaleTokenError} if a higher token was read; the error of S3 if the ETag has changed
   */
  write(lines: Lines, token: bigint): Promise<void>;
  /** Returns the stored token. */
  highest(): Promise<bigint>;
}

/** A document that refuses writes with a stale token. */
export interface FencedDocument extends AsyncDisposable {
  /**
   * Tests the server now: otherwise the first write would test it, and use up time of the lease.
   */
  prepare(): Promise<void>;
  read(): Promise<Lines>;
  /** Replaces the present value. */
  put(lines: Lines, token: bigint): Promise<void>;
  /** Reads and writes. Repeats both if another write came in between. */
  update(token: bigint, edit: (current: Lines) => Lines): Promise<void>;
  /** Raises the ratchet without a write: every lower token is refused from now on. */
  claim(token: bigint): Promise<void>;
  /** Returns the highest token seen. */
  highest(): Promise<bigint>;
}
