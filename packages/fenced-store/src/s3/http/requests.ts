import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import {
  DeleteObjectCommand,
  GetObjectAclCommand,
  type GetObjectAclCommandOutput,
  GetObjectCommand,
  type GetObjectCommandOutput,
  GetObjectTaggingCommand,
  HeadObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
} from '@aws-sdk/client-s3';
import {
  CorruptObjectError,
  StoreSetupError,
  StoreUnavailableError,
  UnsafeStoreError,
  UnsupportedByStoreError,
} from '../../core/errors.js';
import { fromMetadata, isForeign, type Stored, salvagedMetadata } from '../../core/stored.js';
import { collected, exactly } from '../codec/pieces.js';
import type { Settings } from '../options.js';
import { arriving } from './arriving.js';
import type { ObjectInput, ObjectReply } from './attributes.js';
import { factsOf, tooLarge } from './explain.js';
import { leaveUnsigned } from './middleware.js';
import {
  asWriteReply,
  bareEtag,
  type Content,
  conditionInput,
  keyDigest,
  type Put,
  preserveExpires,
  type WriteReply,
  writeInput,
} from './put.js';
import type { Reply, Request, RequestSender } from './request-sender.js';

/** A body of this size is read at once, while the request can still be repeated. */
const SMALL_BYTES = 2 ** 20;

/** The replies to a write whose tags the server or the credentials do not allow. */
const TAGS_REFUSED: ReadonlySet<string> = new Set(['unsupported', 'rejected', 'no-access']);

/** An object without its body: its stamp, and the reply that had it. */
export interface ObjectHead {
  readonly stored: Stored;
  readonly reply: ObjectReply;
}

/** An object whose stored bytes are still to come. */
export interface OpenObject extends ObjectHead {
  /** The stored bytes. If the reader stops early, the request ends. */
  readonly arriving: AsyncIterable<Uint8Array>;
  /** Ends the request, if nothing is read at all. */
  cancel(): void;
}

/** An object with all of its stored bytes. */
export interface WholeObject extends ObjectHead {
  readonly bytes: Uint8Array;
  /** Size limit of the body in memory. */
  readonly bodyBytesMax: number;
}

/** An object whose metadata may be damaged. */
export interface SalvagedObject extends WholeObject {
  readonly isDamaged: boolean;
}

/** A page of a listing: keys in the order of their UTF-8 bytes. */
export interface Page {
  readonly keys: readonly string[];
  readonly next: string | undefined;
}

type BucketInput = { readonly Bucket: string } & Pick<
  ObjectInput,
  'ExpectedBucketOwner' | 'RequestPayer'
>;

/** The requests for one bucket, one method each. Keys are the caller's, without the prefix. */
export class Requests {
  readonly sender: RequestSender;
  /** The encryption that each PUT and each new upload asks for. */
  readonly encryption: ObjectInput | undefined;
  readonly #prefix: string;
  readonly #bodyBytesMax: number;
  readonly #bucket: BucketInput;
  #tagsTombstones = true;

  constructor(sender: RequestSender, settings: Settings) {
    const { encryption, expectedBucketOwner, requesterPays } = settings;
    this.sender = sender;
    this.#prefix = settings.prefix;
    this.#bodyBytesMax = settings.bodyBytesMax;
    this.#bucket = {
      Bucket: sender.bucket,
      ...(expectedBucketOwner !== undefined && { ExpectedBucketOwner: expectedBucketOwner }),
      ...(requesterPays && { RequestPayer: 'requester' }),
    };
    // All three fields, so that they replace those of an earlier object.
    this.encryption = encryption && {
      ServerSideEncryption: encryption.algorithm,
      SSEKMSKeyId: 'kmsKeyId' in encryption ? encryption.kmsKeyId : undefined,
      BucketKeyEnabled: undefined,
    };
  }

  /** The place of an object, as every command names it. */
  at(key: string): BucketInput & { readonly Key: string } {
    return { ...this.#bucket, Key: this.#prefix + key };
  }

  /** The stamp of an object; null if there is no object. */
  async stamp(key: string, signal?: AbortSignal): Promise<Stored | null> {
    return (await this.head(key, signal))?.stored ?? null;
  }

  /**
   * An object without its body; null if there is no object.
   *
   * @param isPatient whether it waits for a server that throttles
   */
  async head(key: string, signal?: AbortSignal, isPatient = true): Promise<ObjectHead | null> {
    const command = () => new HeadObjectCommand(this.at(key));
    const read = (reply: ObjectReply): ObjectHead => ({ stored: this.#stored(key, reply), reply });
    const request = { operation: 'head', key, signal, command, read } as const;
    const reply = await this.sender.repeatedly(request, isPatient);
    if (reply.ok) return reply.output;
    if (reply.meaning === 'missing' && this.sender.bucketSeen) return null;
    // The reply to a GET has a body, which names what is missing or wrong.
    const object = await this.open(key, signal);
    object?.cancel();
    return object;
  }

  /**
   * An object whose bytes are read by the caller; null if there is no object. A small object is
   * read here, while the request can be repeated.
   *
   * @param isVerified whether the reader checks the CRC-32 of the body
   */
  async open(key: string, signal?: AbortSignal, isVerified = false): Promise<OpenObject | null> {
    const read = async (reply: ObjectReply, body: Readable): Promise<OpenObject> => {
      const head = { stored: this.#stored(key, reply), reply };
      const bytes = this.#arriving(key, head, body, signal);
      const object = { ...head, arriving: bytes, cancel: () => void body.destroy() };
      if ((reply.ContentLength ?? Number.POSITIVE_INFINITY) > SMALL_BYTES) return object;
      const all = await Array.fromAsync(bytes);
      return { ...object, arriving: Readable.from(all, { objectMode: true }) };
    };
    const reply = await this.#get(key, signal, read, isVerified);
    return reply.ok ? reply.output : null;
  }

  /**
   * An object with its stored bytes; null if there is no object.
   *
   * @throws {UnsupportedByStoreError} if the body may be larger than `bodyBytesMax`.
   */
  get(key: string, signal?: AbortSignal): Promise<WholeObject | null> {
    return this.#whole(key, signal, (reply) => this.#stored(key, reply));
  }

  /** Reads as `get`. If the metadata are damaged, `stored` has what they still say. */
  async salvage(key: string, signal?: AbortSignal): Promise<SalvagedObject | null> {
    let isDamaged = false;
    const storedOf = (reply: ObjectReply): Stored => {
      try {
        return this.#stored(key, reply);
      } catch (error) {
        const version = bareEtag(reply.ETag);
        const said = salvagedMetadata(reply.Metadata ?? {}, keyDigest(this.at(key).Key));
        if (!(error instanceof CorruptObjectError) || version === undefined || said === null)
          throw error;
        isDamaged = true;
        return { version, ...said, writeId: standInId(version), before: [] };
      }
    };
    const object = await this.#whole(key, signal, storedOf, false);
    return object && { ...object, isDamaged };
  }

  async #whole(
    key: string,
    signal: AbortSignal | undefined,
    storedOf: (reply: ObjectReply) => Stored,
    isVerified = true,
  ): Promise<WholeObject | null> {
    const bodyBytesMax = this.#bodyBytesMax;
    // The stored form of incompressible data is less than 0.1 % larger.
    const bytesMax = bodyBytesMax + bodyBytesMax / 2 ** 9 + 2 ** 10;
    const read = async (reply: ObjectReply, body: Readable): Promise<WholeObject> => {
      const head = { stored: storedOf(reply), reply };
      const isTooLarge =
        (head.stored.bodyBytes ?? 0) > bodyBytesMax || (reply.ContentLength ?? 0) > bytesMax;
      const bytes =
        !isTooLarge && (await collected(this.#arriving(key, head, body, signal), bytesMax));
      if (!bytes) throw tooLarge(key, bodyBytesMax);
      return { ...head, bytes, bodyBytesMax };
    };
    const reply = await this.#get(key, signal, read, isVerified);
    return reply.ok ? reply.output : null;
  }

  /** The tags of an object. */
  async tags(key: string, signal?: AbortSignal): Promise<Readonly<Record<string, string>>> {
    const command = () => new GetObjectTaggingCommand(this.at(key));
    const reply = await this.sender.repeatedly({ operation: 'get', key, signal, command });
    const set = reply.ok ? (reply.output.TagSet ?? []) : [];
    return Object.fromEntries(set.map(({ Key = '', Value = '' }) => [Key, Value]));
  }

  /**
   * The ACL of an object; null if the server has none.
   *
   * @throws {StoreSetupError} if the credentials may not read it.
   * @throws {UnsupportedByStoreError} if the answer is none of S3's.
   */
  async acl(key: string, signal?: AbortSignal): Promise<GetObjectAclCommandOutput | null> {
    try {
      const command = () => new GetObjectAclCommand(this.at(key));
      const reply = await this.sender.repeatedly({ operation: 'acl', key, signal, command });
      return reply.ok ? reply.output : null;
    } catch (error) {
      const { name, status } = factsOf((error as { readonly cause?: unknown }).cause);
      // Directory buckets, R2 and Garage have no ACLs.
      if (status === 501 || status === 405) return null;
      // Some servers answer with the object itself, or with codes of their own.
      if (status === 200 || status === 400 || status === 404)
        throw new UnsupportedByStoreError(
          `a claim keeps the ACL of the object, and the server's answer to GetObjectAcl is none of S3's, so nothing was written: write the object by update or put instead bucket=${this.sender.bucket} key=${JSON.stringify(key)} status=${status} error=${name}`,
          { cause: error },
        );
      if (name !== 'AccessDenied') throw error;
      throw new StoreSetupError(
        `a claim keeps the ACL of the object, and these credentials may not read it: allow GetObjectAcl bucket=${this.sender.bucket} key=${JSON.stringify(key)}`,
        { cause: error },
      );
    }
  }

  /**
   * Sends one PUT, exactly once. Servers without tags (Cloudflare R2) and credentials without
   * PutObjectTagging refuse a tagged tombstone. Nothing was applied then, and it is sent once more
   * without the tag.
   */
  async put(
    put: Put,
    content: Content,
    options: Pick<Request<never, never>, 'signal' | 'halfway'> = {},
  ): Promise<WriteReply> {
    if (put.stored.state === 'live') return this.#put(put, content, options);
    const { tags: _, ...headers } = put.headers;
    const untagged = { ...put, headers };
    if (!this.#tagsTombstones) return this.#put(untagged, content, options);
    const reply = await this.#put(put, content, options);
    if (!TAGS_REFUSED.has(reply.meaning)) return reply;
    const again = await this.#put(untagged, content, options);
    this.#tagsTombstones = TAGS_REFUSED.has(again.meaning);
    return again;
  }

  async #put(
    put: Put,
    content: Content,
    options: Pick<Request<never, never>, 'signal' | 'halfway'>,
  ): Promise<WriteReply> {
    const { key } = put;
    const isFile = !(content instanceof Uint8Array);
    const bytes = isFile ? content.bytes : content.length;
    const command = (): PutObjectCommand => {
      const command = new PutObjectCommand({
        ...this.at(key),
        ...writeInput(put, this.at(key).Key),
        ...this.encryption,
        ...conditionInput(put.ifMatch),
        Body: isFile ? content.read() : content,
        ContentLength: bytes,
        // Without its checksum, the SDK would send a stream in chunks with a checksum behind them,
        // and older servers would store these as the body.
        ...(isFile && { ChecksumCRC32: content.crc32 }),
      });
      if (isFile) leaveUnsigned(command.middlewareStack);
      preserveExpires(command.middlewareStack, put);
      return command;
    };
    const reply = await this.sender.once({ operation: 'put', key, command, bytes, ...options });
    return asWriteReply(reply, put.stored.layout === 'gzip' ? content : undefined);
  }

  /** Removes an object, and leaves no tombstone. Only for objects of a probe, without tokens. */
  async remove(key: string): Promise<void> {
    const command = () => new DeleteObjectCommand(this.at(key));
    await this.sender.repeatedly({ operation: 'delete', key, command });
  }

  /** The keys that begin with `prefix`, one page of them. */
  async list(
    prefix: string,
    options: { readonly after: string | undefined; readonly keysMax: number },
    signal?: AbortSignal,
  ): Promise<Page> {
    const command = () =>
      new ListObjectsV2Command({
        ...this.#bucket,
        Prefix: this.#prefix + prefix,
        MaxKeys: options.keysMax,
        ContinuationToken: options.after,
        // XML cannot contain most control characters, and keys can.
        EncodingType: 'url',
      });
    const reply = await this.sender.repeatedly({ operation: 'list', key: prefix, signal, command });
    if (!reply.ok) throw reply.error;
    const { Contents = [], EncodingType, NextContinuationToken, IsTruncated } = reply.output;
    // A space is "+" from AWS and MinIO, and %20 from Ceph and moto. A plus is always %2B.
    const decoded = (key: string): string =>
      EncodingType === 'url' ? decodeURIComponent(key.replaceAll('+', '%20')) : key;
    const keys = Contents.flatMap(({ Key }) => (Key === undefined ? [] : [decoded(Key)]))
      .filter((key) => key.startsWith(this.#prefix))
      .map((key) => key.slice(this.#prefix.length));
    return { keys, next: IsTruncated ? NextContinuationToken : undefined };
  }

  #get<Read>(
    key: string,
    signal: AbortSignal | undefined,
    use: (reply: ObjectReply, body: Readable) => Promise<Read>,
    isVerified: boolean,
  ): Promise<Reply<Read>> {
    const read = async (output: GetObjectCommandOutput, lift: () => void): Promise<Read> => {
      lift();
      const { Body, ...reply } = output;
      const body =
        Body instanceof Readable ? Body : Readable.from(Body?.transformToWebStream() ?? []);
      try {
        return await use(reply, body);
      } catch (error) {
        // A body that is never read would keep its connection for ever.
        body.destroy();
        throw error;
      }
    };
    const command = () => new GetObjectCommand(this.at(key));
    return this.sender.repeatedly({ operation: 'get', key, signal, command, read, isVerified });
  }

  /** The stored bytes. Without a length, a cut reply looks whole, so a HEAD asks for the length. */
  #arriving(
    key: string,
    { stored, reply }: ObjectHead,
    body: Readable,
    signal?: AbortSignal,
  ): AsyncIterable<Uint8Array> {
    const pieces = arriving(key, body, this.sender.timeoutMs, signal);
    if (reply.ContentLength !== undefined) return pieces;
    const bytes = async (): Promise<number | undefined> => {
      const head = await this.head(key, signal);
      return head?.stored.version === stored.version ? head.reply.ContentLength : undefined;
    };
    return exactly(bytes, pieces, (wanted, count) => {
      const facts = `key=${JSON.stringify(key)} bytes=${count} storedBytes=${wanted}`;
      return new StoreUnavailableError(`the reply has not as many bytes as the object ${facts}`);
    });
  }

  /**
   * Invariant: only a reply to a read shows an object without a token. The reply to a PUT has the
   * ETag of an object, and no metadata. A proxy that passes on replies in disorder would make it an
   * object that any token may replace. It has no `Last-Modified`, as all replies to reads do.
   */
  #stored(key: string, { ETag, Metadata = {}, LastModified }: ObjectReply): Stored {
    const version = bareEtag(ETag);
    if (version !== undefined) {
      if (!isForeign(Metadata))
        return fromMetadata(key, version, Metadata, keyDigest(this.at(key).Key));
      if (LastModified === undefined)
        throw new StoreSetupError(
          `the endpoint does not answer like S3: a reply to a read had no Last-Modified bucket=${this.sender.bucket}`,
        );
      const writeId = standInId(version);
      return { version, token: 0n, writeId, state: 'live', layout: 'plain', before: [] };
    }
    const where = `bucket=${this.sender.bucket}`;
    if (!isForeign(Metadata))
      throw new UnsafeStoreError('etag', `the server gives objects no ETag ${where}`);
    throw new StoreSetupError(`the endpoint does not answer like S3: a reply had no ETag ${where}`);
  }
}

/** Stands in for the write id of an object that this library did not write. */
function standInId(version: string): string {
  return createHash('sha256').update(version).digest('hex').slice(0, 32);
}
