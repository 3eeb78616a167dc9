import type { StoreCapabilities } from '../../core/capabilities.js';
import type { Layout, Stored, StoredState } from '../../core/stored.js';
import type { WriteEvent } from '../../events.js';
import type { Headers } from '../arguments.js';
import type { Kept } from '../http/kept.js';
import type { Payload } from './payload.js';

/** One call of a method that writes. */
export interface WriteCall {
  readonly operation: WriteEvent['operation'];
  readonly key: string;
  readonly token: bigint;
  /** @default that of the store */
  readonly attemptsMax?: number;
  readonly signal: AbortSignal | undefined;
  readonly onWriteId?: ((writeId: string) => void) | undefined;
  readonly onSent?: ((storedBytes: number) => void) | undefined;
}

/** The current object, which a write replaces; `base` is null if there is none. */
export interface Found {
  readonly base: Stored | null;
}

/** One kind of write: the object that it reads, and the object that it stores upon that. */
export interface WriteIntent<Read extends Found = Found> {
  read(call: WriteCall): Promise<Read>;
  /** Returns `keep` if the current object already is as the call wants it. */
  encode(
    call: WriteCall,
    found: Read,
    capabilities: StoreCapabilities,
  ): Promise<WriteRequest | { readonly keep: Stored }>;
}

/** The object that a write stores, all but its stamp. */
export interface WriteRequest {
  readonly state: StoredState;
  readonly layout: Layout;
  /** Null if the body was a stream that cannot be sent again. */
  readonly payload: Payload | null;
  readonly headers: Headers;
  readonly kept?: Kept;
  /** Size of the caller's body, if it is known before the body is sent. */
  readonly bodyBytes?: number | undefined;
  /** Frees the resources of this request alone. */
  readonly release?: () => Promise<void>;
}
