import type { Lines } from '../history.js';

/** A document as everybody stores it: the last write wins. */
export interface PlainDocument extends AsyncDisposable {
  read(): Promise<Lines>;
  write(lines: Lines): Promise<void>;
}

/** A document as one fences it at first: the token beside the value, and a write only upon what was read. */
export interface MarkedDocument extends AsyncDisposable {
  read(): Promise<Lines>;
  /** @throws {StaleTokenError} {@link ConflictError} */
  write(lines: Lines, token: bigint): Promise<void>;
  /** The token that is stored. */
  highest(): Promise<bigint>;
}

/** A document that refuses a write whose token is lower than the highest it has seen. */
export interface FencedDocument extends AsyncDisposable {
  /** Does what the first write would otherwise do under the lease: finds out whether the server can be trusted. */
  prepare(): Promise<void>;
  read(): Promise<Lines>;
  /** Writes, whatever is there now. */
  put(lines: Lines, token: bigint): Promise<void>;
  /** Reads and writes; begins again where somebody else wrote in between. */
  update(token: bigint, edit: (current: Lines) => Lines): Promise<void>;
  /** From now on every lower token is refused, though nothing has been written yet. */
  claim(token: bigint): Promise<void>;
  /** The highest token seen. */
  highest(): Promise<bigint>;
}
