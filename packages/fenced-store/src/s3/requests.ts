import { addAbortSignal, Readable } from 'node:stream';
import {
  DeleteObjectCommand,
  type DeleteObjectCommandOutput,
  GetObjectCommand,
  type GetObjectCommandOutput,
  HeadObjectCommand,
  type HeadObjectCommandOutput,
  PutObjectCommand,
  type PutObjectCommandOutput,
} from '@aws-sdk/client-s3';
import { classify, type Failure, type Meaning } from '../core/classify.js';
import {
  CorruptObjectError,
  type FencedStoreError,
  StoreSetupError,
  StoreUnavailableError,
  UnsupportedByStoreError,
} from '../core/errors.js';
import { callersMetadata, fromMetadata, type Stored, toMetadata } from '../core/stored.js';
import type { Headers } from './arguments.js';
import { open } from './member.js';
import { observe } from './observe.js';

interface SendOptions {
  readonly abortSignal: AbortSignal;
}

/** The four calls of an `S3Client` that are used. */
export interface S3Calls {
  send(command: HeadObjectCommand, options: SendOptions): Promise<HeadObjectCommandOutput>;
  send(command: GetObjectCommand, options: SendOptions): Promise<GetObjectCommandOutput>;
  send(command: PutObjectCommand, options: SendOptions): Promise<PutObjectCommandOutput>;
  send(command: DeleteObjectCommand, options: SendOptions): Promise<DeleteObjectCommandOutput>;
}

/** An object of ours with its bytes, as stored and as the caller gave them. */
export interface StoredObject {
  readonly stored: Stored;
  readonly member: Uint8Array;
  readonly body: Uint8Array;
  readonly headers: Headers;
}

/** One conditional PUT. */
export interface Put {
  readonly key: string;
  /** The value of `If-Match`; null sends `If-None-Match: *`. */
  readonly ifMatch: string | null;
  readonly stored: Omit<Stored, 'version'>;
  readonly member: Uint8Array;
  readonly headers: Headers;
}

/** What a PUT was answered. A success without an ETag has the version `undefined`. */
export type PutReply =
  | { readonly meaning: 'applied'; readonly version: string | undefined }
  | { readonly meaning: Meaning; readonly error: FencedStoreError };

/** One bucket, one request a call; failures come back with what they mean. */
export class Requests {
  readonly #client: S3Calls;
  readonly #bucket: string;
  readonly #timeoutMs: number;
  /** A 404 to HEAD has no name: until something of the bucket was seen, the bucket itself may be what is missing. */
  #bucketSeen = false;

  constructor(client: S3Calls, bucket: string, timeoutMs: number) {
    this.#client = client;
    this.#bucket = bucket;
    this.#timeoutMs = timeoutMs;
  }

  /** The stamp of an object; null where there is none. */
  async head(key: string, signal?: AbortSignal): Promise<Stored | null> {
    const command = new HeadObjectCommand({ Bucket: this.#bucket, Key: key });
    const output = await this.#read('head', command, signal, (abortSignal) =>
      this.#client.send(command, { abortSignal }),
    );
    // GET answers with a body, which names what is missing or wrong.
    if (output === 'unnamed' || (output === 'missing' && !this.#bucketSeen))
      return (await this.get(key, signal))?.stored ?? null;
    if (output === 'missing') return null;
    return fromMetadata(key, this.#version(output.ETag), output.Metadata ?? {});
  }

  /** An object and its stamp, checked against each other; null where there is none. */
  async get(key: string, signal?: AbortSignal): Promise<StoredObject | null> {
    const command = new GetObjectCommand({ Bucket: this.#bucket, Key: key });
    const found = await this.#read('get', command, signal, async (abortSignal) => {
      const output = await this.#client.send(command, { abortSignal });
      // The SDK forgets the signal once the headers are there.
      if (output.Body instanceof Readable) addAbortSignal(abortSignal, output.Body);
      const body = output.Body?.transformToByteArray().catch(asCorrupt(key));
      return { output, member: (await body) ?? new Uint8Array() };
    });
    if (typeof found === 'string') return null;
    const { ETag, Metadata = {}, ContentType, CacheControl } = found.output;
    const stored = fromMetadata(key, this.#version(ETag), Metadata);
    const { stamp, body } = await open(key, found.member);
    if (stamp.token !== stored.token || stamp.writeId !== stored.writeId)
      throw new CorruptObjectError(key, 'the stored body and its metadata are of different writes');
    if (stored.state === 'deleted' && body.length > 0)
      throw new CorruptObjectError(key, 'the object is marked as deleted but has a body');
    const headers = {
      ...(ContentType !== undefined && { contentType: ContentType }),
      ...(CacheControl !== undefined && { cacheControl: CacheControl }),
      metadata: callersMetadata(Metadata),
    };
    return { stored, member: found.member, body, headers };
  }

  /** Sends one PUT, exactly once. Throws only where the request cannot be built. */
  async put(put: Put, signal?: AbortSignal): Promise<PutReply> {
    const command = new PutObjectCommand({
      Bucket: this.#bucket,
      Key: put.key,
      Body: put.member,
      ContentLength: put.member.length,
      ContentEncoding: 'gzip',
      ContentType: put.headers.contentType,
      CacheControl: put.headers.cacheControl,
      Metadata: { ...put.headers.metadata, ...toMetadata(put.stored) },
      ...(put.ifMatch === null ? { IfNoneMatch: '*' } : { IfMatch: put.ifMatch }),
    });
    const sent = observe(command.middlewareStack, { once: true });
    try {
      const output = await this.#client.send(command, { abortSignal: this.#limit(signal) });
      this.#bucketSeen = true;
      return { meaning: 'applied', version: bareEtag(output.ETag) };
    } catch (cause) {
      return this.#failed('put', put.key, sent.address, cause);
    }
  }

  /** Removes an object, tombstone and all. Only for objects that hold nobody's ratchet. */
  async remove(key: string): Promise<void> {
    const command = new DeleteObjectCommand({ Bucket: this.#bucket, Key: key });
    await this.#read('delete', command, undefined, (abortSignal) =>
      this.#client.send(command, { abortSignal }),
    );
  }

  async #read<Output>(
    operation: Failure['operation'],
    command: HeadObjectCommand | GetObjectCommand | DeleteObjectCommand,
    signal: AbortSignal | undefined,
    send: (limit: AbortSignal) => Promise<Output>,
  ): Promise<Output | 'missing' | 'unnamed'> {
    signal?.throwIfAborted();
    const sent = observe(command.middlewareStack, { once: false });
    try {
      const output = await send(this.#limit(signal));
      this.#bucketSeen = true;
      return output;
    } catch (cause) {
      signal?.throwIfAborted();
      if (cause instanceof CorruptObjectError) throw cause;
      const { meaning, error } = this.#failed(operation, command.input.Key, sent.address, cause);
      if (meaning !== 'missing' && meaning !== 'unnamed') throw error;
      if (operation !== 'head') this.#bucketSeen = true;
      return meaning;
    }
  }

  #limit(signal: AbortSignal | undefined): AbortSignal {
    const limit = AbortSignal.timeout(this.#timeoutMs);
    return signal === undefined ? limit : AbortSignal.any([limit, signal]);
  }

  #version(etag: string | undefined): string {
    const version = bareEtag(etag);
    if (version === undefined)
      throw new StoreSetupError(
        `the endpoint does not answer like S3: a reply had no ETag bucket=${this.#bucket}`,
      );
    return version;
  }

  #failed(
    operation: Failure['operation'],
    key: string | undefined,
    address: string | undefined,
    cause: unknown,
  ): { readonly meaning: Meaning; readonly error: FencedStoreError } {
    const { name, code, status, message } = facts(cause);
    const meaning = classify({ operation, sent: address !== undefined, name, code, status });
    const where = `bucket=${this.#bucket} key=${JSON.stringify(key)} endpoint=${address ?? 'unknown'} operation=${operation}`;
    const what = `error=${name}${status === undefined ? '' : ` status=${status}`} reason=${JSON.stringify(message)}`;
    return { meaning, error: explain(meaning, code, `${where} ${what}`, cause) };
  }
}

/** What the caller is told about a failed request that has changed nothing. */
function explain(
  meaning: Meaning,
  code: string | undefined,
  facts: string,
  cause: unknown,
): FencedStoreError {
  switch (meaning) {
    case 'no-bucket':
      return new StoreSetupError(`the bucket does not exist: create it, or name another ${facts}`, {
        cause,
      });
    case 'no-access':
      return new StoreSetupError(
        `the credentials are wrong or do not allow this: check the keys, and that they grant GetObject, PutObject, DeleteObject and ListBucket ${facts}`,
        { cause },
      );
    case 'wrong-address':
      return new StoreSetupError(
        `the endpoint does not answer like S3, or the bucket is elsewhere: check endpoint, region and path style ${facts}`,
        { cause },
      );
    case 'client':
      return new StoreSetupError(`the S3 client could not send the request ${facts}`, { cause });
    case 'unsupported':
    case 'rejected':
      return new UnsupportedByStoreError(`the store refuses such a request ${facts}`, { cause });
    default:
      // Of a write this proves nothing, so it is read back all the same; whoever hears of it needs another address.
      if (code !== undefined && TLS_CODE.test(code))
        return new StoreSetupError(
          `the endpoint and the client do not agree on TLS: check http or https, and the certificate ${facts}`,
          { cause },
        );
      return new StoreUnavailableError(`the store did not give an answer ${facts}`, { cause });
  }
}

/** The codes of Node and OpenSSL for a TLS connection that fails, by the other end's protocol or its certificate. */
const TLS_CODE = /^EPROTO$|SSL|TLS|CERT|LEAF_SIGNATURE/;

/** Of what the SDK throws while it reads a body, its own check of the checksum says that the bytes are not those stored. */
function asCorrupt(key: string): (cause: unknown) => never {
  return (cause) => {
    if (!(cause instanceof Error && cause.message.startsWith('Checksum mismatch'))) throw cause;
    throw new CorruptObjectError(key, 'the body that arrived is not the one that was stored', {
      cause,
    });
  };
}

/** What is known of an error that the SDK or Node threw; all of it may be missing. */
function facts(error: unknown): {
  readonly name: string;
  readonly code: string | undefined;
  readonly status: number | undefined;
  readonly message: string;
} {
  if (!(error instanceof Error))
    return { name: typeof error, code: undefined, status: undefined, message: String(error) };
  const { code, $metadata } = error as {
    readonly code?: unknown;
    readonly $metadata?: { readonly httpStatusCode?: number };
  };
  return {
    name: error.name,
    code: typeof code === 'string' ? code : undefined,
    status: $metadata?.httpStatusCode,
    message: error.message,
  };
}

/** An ETag without quotes, and without the `W/` that a compressing proxy may have put before it. */
function bareEtag(etag: string | undefined): string | undefined {
  const bare = etag?.replace(/^W\//, '').replaceAll('"', '');
  return bare === '' ? undefined : bare;
}
