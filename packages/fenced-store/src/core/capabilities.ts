import type { CheckReport } from './errors.js';

/** How the server wants ETags in `If-Match`. Ceph 16 compares them with their quotes, so that quoted ones never fit. */
export type EtagForm = 'quoted' | 'bare';

/**
 * Version ids in replies to writes: none, `null` (the bucket has stopped to keep versions), or a new
 * one for each write.
 */
export type VersionIds = 'none' | 'null' | 'new';

/** What a server was seen to enforce. There is one only for servers that enforce all that the token check rests on. */
export interface StoreCapabilities {
  readonly etagForm: EtagForm;
  /** Whether it completes a multipart upload only under its condition. Without, a large stream goes through a temporary file. */
  readonly conditionalComplete: boolean;
  /** Whether two small writes of the same bytes get different ETags, as the layout `plain` needs. Of large ones it is asked before the first. */
  readonly distinctEtags: boolean;
  /** Whether a key can be created again after its object was removed by other means than this library. */
  readonly createAfterDelete: boolean;
  /** Whether the bucket keeps old versions, as its answers show. */
  readonly versionIds: VersionIds;
  /** The names of the checks that were passed, in their order. */
  readonly checks: readonly string[];
  /** All that was asked, and what was answered. */
  readonly report: readonly CheckReport[];
  /** When, in milliseconds since 1970. */
  readonly checkedAtMs: number;
}

/** A version as `If-Match` wants it. */
export function etagHeader(version: string, form: EtagForm): string {
  return form === 'quoted' ? `"${version}"` : version;
}
