import type { Layout, Stored, StoredState } from '../../core/stored.js';
import type { WriteEvent } from '../../events.js';
import type { Headers } from '../arguments.js';
import type { PreservedAttributes } from '../http/attributes.js';
import type { Uploads } from '../http/uploads.js';
import type { Settings } from '../options.js';
import type { Prober } from '../probe/prober.js';
import type { Objects } from '../read/objects.js';
import type { Runtime } from '../runtime.js';
import type { Payload } from './body-source.js';
import type { UnsettledWrites } from './unsettled.js';

/** The services that writes use. */
export interface WriteServices {
  readonly objects: Objects;
  readonly prober: Prober;
  readonly uploads: Uploads;
  readonly unsettled: UnsettledWrites;
  readonly settings: Settings;
  readonly runtime: Runtime;
}

/** One call of a method that writes. */
export interface WriteCall {
  readonly operation: WriteEvent['operation'];
  readonly key: string;
  readonly token: bigint;
  /** @default that of the store */
  readonly attemptsMax?: number;
  readonly signal: AbortSignal | undefined;
  readonly onWriteId?: ((writeId: string) => void) | undefined;
  readonly onSent?: (storedBytes: number) => void;
}

/** The current object, which a write replaces; `base` is null if there is no object. */
export interface Found {
  readonly base: Stored | null;
}

/** One kind of write. Reads the current object, and makes the next one. */
export interface WriteIntent<Read extends Found = Found> {
  read(call: WriteCall): Promise<Read>;
  /** Returns `keep` if the current object needs no change. */
  encode(call: WriteCall, found: Read): Promise<WriteRequest | { readonly keep: Stored }>;
}

/** The object that a write stores, except for its stamp: the token and the write id. */
export interface WriteRequest {
  readonly state: StoredState;
  readonly layout: Layout;
  /** Null if the body was a stream, which cannot be sent again. */
  readonly payload: Payload | null;
  readonly headers: Headers;
  readonly preserved?: PreservedAttributes;
  /** Size of the caller's body, if it is known before the body is sent. */
  readonly bodyBytes?: number | undefined;
  /** Frees the resources of this request alone. */
  readonly release?: () => Promise<void>;
}
