import type { Stored, StoredState } from '../core/stored.js';
import type { Headers } from './arguments.js';
import type { Current } from './options.js';
import type { StoredObject } from './requests.js';

/** What is stored now, as far as a write needs to know it. */
export interface Found {
  readonly base: Stored | null;
  readonly object?: StoredObject | null;
}

/** What a write wants stored upon it. */
interface Draft {
  readonly state: StoredState;
  readonly member: Uint8Array;
  readonly headers: Headers;
}

/** How a kind of write goes about it: look at what is there, then say what shall be there, or that it shall stay. */
export interface Plan {
  look(): Promise<Found>;
  draft(found: Found): Promise<Draft | { readonly keep: Stored }>;
}

/** What callers see of an object; null of a tombstone, and where there is none. */
export function currentOf(object: StoredObject | null | undefined): Current | null {
  if (!object || object.stored.state === 'deleted') return null;
  const { stored, body, headers } = object;
  const { metadata = {}, contentType, cacheControl } = headers;
  const { token, version, writeId } = stored;
  return { body, token, version, writeId, metadata, contentType, cacheControl };
}
