import type { Readable } from 'node:stream';
import type { Settlement } from '@fenced/store';
import type { StoredHeaders } from '@fenced/store/s3';

/** What the gateway is put together from. Each is an interface of the calls that are made, so that any implementation fits. */

/** A lease that was acquired; a `Lease` of `@fenced/lock`. */
export interface GrantedLease {
  readonly token: bigint;
  /** Under this name any gateway can extend and release it. */
  readonly owner: string;
  remainingMs(): number;
  release(): Promise<unknown>;
}

/** A `Redlock` or `PostgresLock` of `@fenced/lock`. Its errors are told by their `code`. */
export interface LeaseService {
  acquire(
    resource: string,
    options: { readonly ttlMs: number; readonly waitMs: number; readonly signal: AbortSignal },
  ): Promise<GrantedLease>;
  extend(
    held: { readonly resource: string; readonly owner: string },
    ttlMs: number,
  ): Promise<number>;
  release(held: {
    readonly resource: string;
    readonly owner: string;
  }): Promise<'released' | 'expired' | 'unknown'>;
  /** For readiness, where it has nodes. */
  status?(): Promise<readonly NodeVote[]>;
}

export interface NodeVote {
  readonly name: string;
  readonly reachable: boolean;
  /** Null where the node's vote counts. */
  readonly noVote?: string | null;
  /** Of its server, and `maxmemory`; null without a limit. */
  readonly usedMemoryBytes?: number;
  readonly maxMemoryBytes?: number | null;
}

interface Call {
  readonly signal?: AbortSignal;
}

interface Fenced extends Call {
  readonly token: bigint;
}

interface Sending {
  /** Called with the id of a write before it is sent, each time under which it is sent. Without a call, nothing was sent. */
  readonly onWriteId?: (writeId: string) => void;
}

interface FencedWrite<Version> extends Fenced, Sending {
  readonly expected?: Version | null;
}

/** A `FencedS3`. */
export interface ObjectStore {
  put(
    key: string,
    body: Uint8Array | AsyncIterable<Uint8Array>,
    options: FencedWrite<string> & ObjectHeaders & { readonly bodyBytes?: number },
  ): Promise<Written<string | null>>;
  delete(key: string, options: FencedWrite<string>): Promise<Written<string | null>>;
  claim(key: string, options: Fenced & Sending): Promise<void>;
  getStream(key: string, options: Call): Promise<StoredObject | null>;
  claimAndGetStream(key: string, options: Fenced & Sending): Promise<StoredObject | null>;
  highest(key: string, options?: Call): Promise<bigint>;
  settle(writeId: string, options: Call & { readonly key: string }): Promise<Settlement>;
  probe(options?: Call): Promise<unknown>;
}

/** What an object is stored with, as far as HTTP has headers for it. */
export interface ObjectHeaders {
  readonly contentType?: string;
  readonly cacheControl?: string;
  readonly contentDisposition?: string;
  readonly contentLanguage?: string;
  readonly metadata?: Readonly<Record<string, string>>;
}

export interface StoredObject extends StoredHeaders, ObjectOrigin {
  readonly body: Readable;
}

interface ObjectOrigin {
  readonly token: bigint;
  readonly version: string;
  readonly writeId: string;
  /** How many bytes the body has; undefined where that is known only when it has been read. */
  readonly bodyBytes: number | undefined;
}

export interface Written<Version> {
  readonly token: bigint;
  readonly version: Version;
  readonly writeId: string;
}

/** A `FencedPostgres`, of which the gateway uses the JSON documents. */
export interface RecordStore {
  records(collection: string): RecordCollection;
  /** The highest token of a resource that transactions present. */
  highest(resource: string): Promise<bigint>;
}

export interface RecordCollection {
  put(id: string, body: JsonValue, options: FencedWrite<bigint>): Promise<Written<bigint>>;
  delete(id: string, options: FencedWrite<bigint>): Promise<Written<bigint>>;
  claim(id: string, options: Fenced): Promise<void>;
  get(id: string, options: Call): Promise<StoredRecord | null>;
  claimAndGet(id: string, options: Fenced): Promise<StoredRecord | null>;
  highest(id: string): Promise<bigint>;
  settle(id: string, writeId: string, options: Call): Promise<Settlement>;
}

export interface StoredRecord extends Written<bigint> {
  readonly body: JsonValue;
}

/** What JSON can say. */
export type JsonValue =
  | null
  | boolean
  | number
  | string
  | readonly JsonValue[]
  | { readonly [key: string]: JsonValue };
