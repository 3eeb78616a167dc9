import type { CheckReport } from './errors.js';

/**
 * The form of ETags in `If-Match`. Ceph 16 compares the quotes, too, so quoted ones never match.
 */
export type EtagForm = 'quoted' | 'bare';

/**
 * Version ids in replies to writes: none, `null` (the bucket has stopped to keep versions), or a
 * new one for each write.
 */
export type VersionIds = 'none' | 'null' | 'new';

/** The encryption of a write, according to its reply. */
export interface WriteEncryption {
  readonly algorithm: string;
  /** The key of the key service, if the reply named one. */
  readonly kmsKeyId?: string | undefined;
}

/** The capabilities of a server that enforces everything that the token check needs. */
export interface StoreCapabilities {
  readonly etagForm: EtagForm;
  /**
   * True if uploads are completed only under their condition; else large streams go through a file.
   * Undefined if the server was not asked yet. A probe with `renew` asks, else the first upload.
   */
  readonly conditionalComplete?: boolean | undefined;
  /**
   * True if two small writes of the same bytes get different ETags, as the layout `plain` needs.
   */
  readonly distinctEtags: boolean;
  /**
   * The encryption of the probe's small writes; undefined if their replies named none.
   * `distinctEtags` depends on it.
   */
  readonly encryption?: WriteEncryption | undefined;
  /** True if a key can be created again after another program removed its object. */
  readonly createAfterDelete: boolean;
  /** True if the bucket keeps old versions, according to its replies. */
  readonly versionIds: VersionIds;
  /** The names of the checks that were passed, in their order. */
  readonly checks: readonly string[];
  /** All questions and answers. */
  readonly report: readonly CheckReport[];
  /** Time of the probe, in milliseconds since 1970. */
  readonly checkedAtMs: number;
}

/** A version as a value of `If-Match`. */
export function etagHeader(version: string, form: EtagForm): string {
  return form === 'quoted' ? `"${version}"` : version;
}
