import type { StoreCapabilities } from '../../core/capabilities.js';
import type { Layout, Stored, StoredState } from '../../core/stored.js';
import type { Headers } from '../arguments.js';
import type { Kept } from '../http/kept.js';
import type { Payload } from './payload.js';

/** What a write wants stored upon what it found. */
export interface Draft {
  readonly state: StoredState;
  readonly layout: Layout;
  /** Null where it was a stream that cannot be sent again. */
  readonly payload: Payload | null;
  readonly headers: Headers;
  readonly kept?: Kept;
  /** How many bytes the caller's body has, where that is known before it is sent. */
  readonly bodyBytes?: number | undefined;
  /** Lets go of what only this draft needs. */
  readonly release?: () => Promise<void>;
}

/** How a kind of write goes about it: look at what is there, then say what shall be there, or that it shall stay. */
export interface Plan<Found extends { readonly base: Stored | null }> {
  look(): Promise<Found>;
  draft(found: Found, capabilities: StoreCapabilities): Promise<Draft | { readonly keep: Stored }>;
}
