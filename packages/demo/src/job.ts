/** Everything a client is told, as JSON in its first argument. */
export interface Job {
  /** The line that this client adds to the document. */
  readonly line: string;
  readonly resource: string;
  readonly protection: Protection;
  readonly ttlMs: number;
  /** How long it goes on asking for the lock. */
  readonly waitMs: number;
  readonly lock: LockAddress;
  readonly storage: StorageAddress;
}

/** From no protection at all to fencing before the read. `metadata` is what everyone builds first on S3. */
export const protections = ['none', 'lock', 'metadata', 'token', 'token+cas', 'claim'] as const;
export type Protection = (typeof protections)[number];

/** Ours, and what people do instead. */
export const locks = [
  'fenced',
  'naive Redlock',
  'elapsed time ignored',
  'INCR on one node',
  'highest INCR',
] as const;
export type LockKind = (typeof locks)[number];

export interface LockAddress {
  readonly kind: LockKind;
  readonly nodes: readonly { readonly name: string; readonly url: string }[];
  /** The gateway to ask instead of the nodes. */
  readonly gateway?: string;
  /** Each cell has its own, so that each begins with the article's token. */
  readonly keyPrefix: string;
  /** Of nodes that were never used; null where they have been. */
  readonly firstToken: number | null;
}

export const stores = ['s3', 'postgres'] as const;
export type StoreKind = (typeof stores)[number];

/** Where the document lies: an object of a bucket, or a row of `demo.document`. */
export type StoreAddress =
  | {
      readonly kind: 's3';
      readonly endpoint: string;
      readonly region: string;
      readonly accessKeyId: string;
      readonly secretAccessKey: string;
      readonly bucket: string;
      readonly key: string;
    }
  | { readonly kind: 'postgres'; readonly url: string; readonly id: string };

/** The document as a client finds it: itself, or a gateway, and there an object's key or a record's `collection/id`. */
export type StorageAddress =
  | StoreAddress
  | {
      readonly kind: 'gateway';
      readonly url: string;
      readonly behind: StoreKind;
      readonly name: string;
    };

/** Whether the protection presents its token to the storage. */
export function isFenced(protection: Protection): boolean {
  return protection !== 'none' && protection !== 'lock';
}
