/** A client's instructions, as JSON in its first argument. */
export interface Job {
  /** The line that this client adds to the document. */
  readonly line: string;
  readonly resource: string;
  readonly protection: Protection;
  readonly ttlMs: number;
  /** Time for which the client asks for the lock. */
  readonly waitMs: number;
  /** Milliseconds of work between the last check and the write. @default 0 */
  readonly workMs?: number;
  readonly lock: LockAddress;
  readonly storage: StorageAddress;
}

/** Ways to protect the document, from the weakest to the strongest. */
export const protections = ['none', 'lock', 'metadata', 'token', 'token+cas', 'claim'] as const;
export type Protection = (typeof protections)[number];

export const explained: Readonly<Record<Protection, string>> = {
  none: 'no lock',
  lock: 'a lock, and the lease is checked before the write',
  metadata: 'the client compares tokens in metadata, the storage only the ETag',
  token: 'the storage refuses a write whose token is below the highest',
  'token+cas': 'as token, and the value must be the one that was read',
  claim: 'as token, and the token is also presented before the read',
};

/** `@fenced/lock`, and do-it-yourself locks. */
export const locks = [
  'fenced',
  'naive Redlock',
  'elapsed time ignored',
  'INCR on one node',
  'highest INCR',
] as const;
export type LockKind = (typeof locks)[number];

/** The lock services. A story that breaks lock nodes is played on Redis only. */
export const lockServices = ['redis', 'postgres', 'etcd', 's3', 'zookeeper'] as const;
export type LockServiceKind = (typeof lockServices)[number];

/** A lock service of `@fenced/lock` in place of the Redis nodes. */
export type OtherService =
  | { readonly kind: 'postgres'; readonly url: string }
  | { readonly kind: 'etcd'; readonly endpoints: readonly string[] }
  | { readonly kind: 'zookeeper'; readonly servers: string }
  | Omit<Extract<StoreAddress, { readonly kind: 's3' }>, 'key'>;

/** The Redis nodes, or another lock service. */
export type LockServers = LockAddress['nodes'] | OtherService;

export interface LockAddress {
  readonly kind: LockKind;
  readonly nodes: readonly { readonly name: string; readonly url: string }[];
  /** The lock service to use instead of Redis nodes. `nodes` is empty then. */
  readonly service?: OtherService;
  /** The gateway to use instead of the nodes. */
  readonly gateway?: string;
  /** Unique for each run, so that each run begins with the same token. */
  readonly keyPrefix: string;
  /** The first token of unused nodes. Null if the nodes were in use before. */
  readonly firstToken: number | null;
}

export const stores = ['s3', 'postgres'] as const;
export type StoreKind = (typeof stores)[number];

/** The document: an object of a bucket, or a row of `demo.document`. */
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

/**
 * The address of the document itself, or of a gateway. Behind a gateway, the name is an object's
 * key, or a record's `collection/id`.
 */
export type StorageAddress =
  | StoreAddress
  | {
      readonly kind: 'gateway';
      readonly url: string;
      readonly behind: StoreKind;
      readonly name: string;
    };

/** Returns true if writes under this protection carry a token. */
export function isFenced(protection: Protection): boolean {
  return protection !== 'none' && protection !== 'lock';
}
