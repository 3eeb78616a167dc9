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
  type HeadObjectCommandOutput,
  ListObjectsV2Command,
  PutObjectCommand,
  type PutObjectCommandInput,
} from '@aws-sdk/client-s3';
import {
  CorruptObjectError,
  StoreSetupError,
  StoreUnavailableError,
  UnsafeStoreError,
} from '../../core/errors.js';
import { fromMetadata, isForeign, type Stored, salvagedMetadata } from '../../core/stored.js';
import type { Headers } from '../arguments.js';
import type { Settings } from '../options.js';
import { arrived, arriving, type Patience } from './arriving.js';
import { factsOf, tooLarge } from './failures.js';
import { fromOutput } from './headers.js';
import { type Kept, keptOf, keptWithValue, unkeepableOf } from './kept.js';
import { leaveUnsigned, type Sending } from './observe.js';
import {
  asWriteReply,
  bareEtag,
  type Content,
  conditionInput,
  keepExpires,
  keyDigest,
  type Put,
  type WriteReply,
  writeInput,
} from './put.js';
import type { Reply, Sender } from './sender.js';

/** What is read at once, even if it might be read piece by piece. */
const SMALL_BYTES = 2 ** 20;

/** How a write may be refused because of its tags. */
const TAGS_REFUSED: ReadonlySet<string> = new Set(['unsupported', 'rejected', 'no-access']);

/** What the headers of a reply tell of an object. */
export interface ObjectFacts {
  readonly stored: Stored;
  readonly headers: Headers;
  readonly kept: Kept;
  /** As long as the value is the same. */
  readonly keptWithValue: Kept['input'];
  /** What cannot be kept. */
  readonly unkeepable: string | undefined;
  readonly contentEncoding: string | undefined;
  readonly isTagged: boolean;
  /** How many stored bytes there are, where the server says so. */
  readonly storedBytes: number | undefined;
  readonly lastModifiedMs: number | undefined;
}

/** An object whose stored bytes are still on their way. */
export interface OpenObject extends ObjectFacts {
  /** The stored bytes; ends the request where the reader stops early. */
  readonly arriving: AsyncIterable<Uint8Array>;
  /** Ends the request where nothing is read at all. */
  cancel(): void;
}

/** An object with all of its stored bytes. */
export interface WholeObject extends ObjectFacts {
  readonly bytes: Uint8Array;
  /** The largest body that may be made of them. */
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

/** The bucket, as every request names it. */
interface BucketInput {
  readonly Bucket: string;
  readonly ExpectedBucketOwner?: string;
  readonly RequestPayer?: 'requester';
}

type EncryptionInput = Pick<
  PutObjectCommandInput,
  'ServerSideEncryption' | 'SSEKMSKeyId' | 'BucketKeyEnabled'
>;

/** One bucket, one request a call; failures come back with what they mean. Keys are those of the caller, behind the prefix. */
export class Requests {
  readonly sender: Sender;
  readonly #prefix: string;
  readonly #bodyBytesMax: number;
  readonly #bucket: BucketInput;
  /** What every request says that begins an object. */
  readonly encryption: EncryptionInput | undefined;
  #tagsTombstones = true;

  constructor(
    sender: Sender,
    settings: Pick<
      Settings,
      'prefix' | 'bodyBytesMax' | 'encryption' | 'expectedBucketOwner' | 'requesterPays'
    >,
  ) {
    const { encryption, expectedBucketOwner, requesterPays } = settings;
    this.sender = sender;
    this.#prefix = settings.prefix;
    this.#bodyBytesMax = settings.bodyBytesMax;
    this.#bucket = {
      Bucket: sender.bucket,
      ...(expectedBucketOwner !== undefined && { ExpectedBucketOwner: expectedBucketOwner }),
      ...(requesterPays && { RequestPayer: 'requester' }),
    };
    // All three, so that they take the place of what an object had.
    this.encryption = encryption && {
      ServerSideEncryption: encryption.algorithm,
      SSEKMSKeyId: 'kmsKeyId' in encryption ? encryption.kmsKeyId : undefined,
      BucketKeyEnabled: undefined,
    };
  }

  /** Where an object is, as every command names it. */
  at(key: string): BucketInput & { readonly Key: string } {
    return { ...this.#bucket, Key: this.#prefix + key };
  }

  /**
   * The stamp of an object; null where there is none.
   *
   * @param isPatient whether it waits for a server that throttles
   */
  async head(key: string, signal?: AbortSignal, isPatient = true): Promise<Stored | null> {
    return (await this.facts(key, signal, isPatient))?.stored ?? null;
  }

  /** As `head`, with all that the headers tell. */
  async facts(key: string, signal?: AbortSignal, isPatient = true): Promise<ObjectFacts | null> {
    const reply = await this.sender.repeatedly(() => {
      const command = new HeadObjectCommand(this.at(key));
      return {
        ...{ operation: 'head', key, command, signal },
        send: async (abortSignal) =>
          this.#facts(key, await this.sender.client.send(command, { abortSignal })),
      };
    }, isPatient);
    if (reply.ok) return reply.output;
    if (reply.meaning === 'missing' && this.sender.bucketSeen) return null;
    // GET answers with a body, which names what is missing or wrong.
    const object = await this.open(key, signal);
    object?.cancel();
    return object;
  }

  /**
   * An object with its bytes to come; null where there is none. Bytes that do not come for as long as a request may take are
   * an error. Those of a small object are read here, where they can be asked for again.
   */
  async open(key: string, signal?: AbortSignal): Promise<OpenObject | null> {
    const read = (output: GetObjectCommandOutput): ObjectFacts => this.#facts(key, output);
    const reply = await this.#get(key, signal, read, async (facts, body) => {
      const pieces = arriving(key, body, this.#patience(signal));
      const isLengthKnown = facts.storedBytes !== undefined;
      const object = {
        ...facts,
        arriving: isLengthKnown ? pieces : this.#ended(key, facts, pieces, signal),
        cancel: () => void body.destroy(),
      };
      if ((object.storedBytes ?? Number.POSITIVE_INFINITY) > SMALL_BYTES) return object;
      const all = await Array.fromAsync(object.arriving);
      return { ...object, arriving: Readable.from(all, { objectMode: true }) };
    });
    return reply.ok ? reply.output : null;
  }

  /**
   * An object with its stored bytes; null where there is none.
   *
   * @throws {UnsupportedByStoreError} where they are more than `bodyBytesMax`.
   */
  async get(key: string, signal?: AbortSignal): Promise<WholeObject | null> {
    return this.#whole(key, signal, (output) => this.#facts(key, output));
  }

  /** As `get`. If the metadata are damaged, `stored` has what they still say. */
  async salvage(key: string, signal?: AbortSignal): Promise<SalvagedObject | null> {
    return this.#whole(key, signal, (output) => {
      try {
        return { ...this.#facts(key, output), isDamaged: false };
      } catch (error) {
        const { Metadata = {}, ETag } = output;
        const version = bareEtag(ETag);
        const said = salvagedMetadata(Metadata, keyDigest(this.at(key).Key));
        if (!(error instanceof CorruptObjectError) || version === undefined || said === null)
          throw error;
        const stored = { version, ...said, writeId: standInId(version), before: [] };
        return { ...this.#facts(key, output, stored), isDamaged: true };
      }
    });
  }

  async #whole<Found extends ObjectFacts>(
    key: string,
    signal: AbortSignal | undefined,
    read: (output: GetObjectCommandOutput) => Found,
  ): Promise<(Found & Omit<WholeObject, keyof ObjectFacts>) | null> {
    const reply = await this.#get(key, signal, read, async (facts, body) => {
      const bodyBytesMax = this.#bodyBytesMax;
      // What does not shrink is stored with less than 0.1 % more.
      const bytesMax = bodyBytesMax + bodyBytesMax / 2 ** 9 + 2 ** 10;
      const { bodyBytes = 0 } = facts.stored;
      if (bodyBytes > bodyBytesMax || (facts.storedBytes ?? 0) > bytesMax)
        throw tooLarge(key, bodyBytesMax);
      const bytes = await arrived(key, body, { ...this.#patience(signal), bytesMax });
      if (bytes === null) throw tooLarge(key, bodyBytesMax);
      await this.#checkEnd(key, facts, bytes.length, signal);
      return { ...facts, bytes, bodyBytesMax };
    });
    return reply.ok ? reply.output : null;
  }

  /** The tags of an object. */
  async tags(key: string, signal?: AbortSignal): Promise<Readonly<Record<string, string>>> {
    const reply = await this.sender.repeatedly(() => {
      const command = new GetObjectTaggingCommand(this.at(key));
      return {
        ...{ operation: 'get', key, command, signal },
        send: (abortSignal) => this.sender.client.send(command, { abortSignal }),
      };
    });
    const set = reply.ok ? (reply.output.TagSet ?? []) : [];
    return Object.fromEntries(set.map(({ Key = '', Value = '' }) => [Key, Value]));
  }

  /**
   * The ACL of an object; null if the server has none.
   *
   * @throws {StoreSetupError} if the credentials do not allow to read it.
   */
  async acl(key: string, signal?: AbortSignal): Promise<GetObjectAclCommandOutput | null> {
    try {
      const reply = await this.sender.repeatedly(() => {
        const command = new GetObjectAclCommand(this.at(key));
        return {
          ...{ operation: 'acl', key, command, signal },
          send: (abortSignal) => this.sender.client.send(command, { abortSignal }),
        };
      });
      return reply.ok ? reply.output : null;
    } catch (error) {
      const { name, status } = factsOf((error as { readonly cause?: unknown }).cause);
      // Directory buckets, R2, Garage.
      if (status === 501 || status === 405) return null;
      if (name !== 'AccessDenied') throw error;
      throw new StoreSetupError(
        `a claim keeps the ACL of the object, and these credentials may not read it: allow GetObjectAcl bucket=${this.sender.bucket} key=${JSON.stringify(key)}`,
        { cause: error },
      );
    }
  }

  /**
   * Sends one PUT, exactly once. Servers without tags (Cloudflare R2, say) and credentials without PutObjectTagging refuse a
   * tagged tombstone: nothing was applied then, and it is sent once more, without the tag.
   */
  async put(
    put: Put,
    content: Content,
    signal?: AbortSignal,
    halfway?: Sending['halfway'],
  ): Promise<WriteReply> {
    if (put.stored.state === 'live') return this.#put(put, content, signal, halfway);
    const { tags: _, ...headers } = put.headers;
    const untagged = { ...put, headers };
    if (!this.#tagsTombstones) return this.#put(untagged, content, signal);
    const reply = await this.#put(put, content, signal);
    if (!TAGS_REFUSED.has(reply.meaning)) return reply;
    const again = await this.#put(untagged, content, signal);
    this.#tagsTombstones = TAGS_REFUSED.has(again.meaning);
    return again;
  }

  async #put(
    put: Put,
    content: Content,
    signal?: AbortSignal,
    halfway?: Sending['halfway'],
  ): Promise<WriteReply> {
    const inMemory = content instanceof Uint8Array;
    const bytes = inMemory ? content.length : content.bytes;
    const at = this.at(put.key);
    const command = new PutObjectCommand({
      ...at,
      ...writeInput(put, at.Key),
      ...this.encryption,
      ...conditionInput(put.ifMatch),
      Body: inMemory ? content : content.read(),
      ContentLength: bytes,
      // A stream would be sent in chunks with a checksum behind them, which older servers store as if it were the body.
      ...(!inMemory && { ChecksumCRC32: content.crc32 }),
    });
    if (!inMemory) leaveUnsigned(command.middlewareStack);
    keepExpires(command.middlewareStack, put);
    const reply = await this.sender.once({
      ...{ operation: 'put', key: put.key, command, signal, bytes, halfway },
      send: (abortSignal) => this.sender.client.send(command, { abortSignal }),
    });
    return asWriteReply(reply);
  }

  /** Removes an object, tombstone and all. Only for objects that hold nobody's ratchet. */
  async remove(key: string): Promise<void> {
    await this.sender.repeatedly(() => {
      const command = new DeleteObjectCommand(this.at(key));
      return {
        ...{ operation: 'delete', key, command, signal: undefined },
        send: (abortSignal) => this.sender.client.send(command, { abortSignal }),
      };
    });
  }

  /** The keys that begin with `prefix`, a page at a time. */
  async list(
    prefix: string,
    options: { readonly after: string | undefined; readonly keysMax: number },
    signal?: AbortSignal,
  ): Promise<Page> {
    const reply = await this.sender.repeatedly(() => {
      const command = new ListObjectsV2Command({
        ...this.#bucket,
        Prefix: this.#prefix + prefix,
        MaxKeys: options.keysMax,
        ContinuationToken: options.after,
        // XML has no way to write most control characters, which keys may contain.
        EncodingType: 'url',
      });
      return {
        ...{ operation: 'list', key: prefix, command, signal },
        send: (abortSignal) => this.sender.client.send(command, { abortSignal }),
      };
    });
    if (!reply.ok) throw reply.error;
    const { Contents = [], EncodingType, NextContinuationToken, IsTruncated } = reply.output;
    // AWS, MinIO: a space comes as "+"; Ceph and moto: as %20. A plus is %2B with all of them.
    const decoded = (key: string): string =>
      EncodingType === 'url' ? decodeURIComponent(key.replaceAll('+', '%20')) : key;
    const keys = Contents.flatMap(({ Key }) => (Key === undefined ? [] : [decoded(Key)]));
    return {
      keys: keys
        .filter((key) => key.startsWith(this.#prefix))
        .map((key) => key.slice(this.#prefix.length)),
      next: IsTruncated ? NextContinuationToken : undefined,
    };
  }

  #get<Facts, T>(
    key: string,
    signal: AbortSignal | undefined,
    read: (output: GetObjectCommandOutput) => Facts,
    use: (facts: Facts, body: Readable) => Promise<T>,
  ): Promise<Reply<T>> {
    return this.sender.repeatedly(() => {
      const command = new GetObjectCommand(this.at(key));
      return {
        ...{ operation: 'get', key, command, signal },
        send: async (abortSignal, lift) => {
          const output = await this.sender.client.send(command, { abortSignal });
          lift();
          const { Body } = output;
          const body =
            Body instanceof Readable ? Body : Readable.from(Body?.transformToWebStream() ?? []);
          try {
            return await use(read(output), body);
          } catch (error) {
            // One that is never read would keep its connection for ever.
            body.destroy();
            throw error;
          }
        },
      };
    });
  }

  #facts(
    key: string,
    output: GetObjectCommandOutput | HeadObjectCommandOutput,
    stored: Stored = this.#stored(key, output),
  ): ObjectFacts {
    const { ContentEncoding, ContentLength, LastModified, TagCount = 0 } = output;
    return {
      stored,
      headers: fromOutput(output),
      kept: keptOf(output),
      keptWithValue: keptWithValue(output),
      unkeepable: unkeepableOf(output),
      contentEncoding: ContentEncoding,
      isTagged: TagCount > 0,
      storedBytes: ContentLength,
      lastModifiedMs: LastModified?.getTime(),
    };
  }

  /** As `checkEnd`, before the end is handed on. */
  async *#ended(
    key: string,
    facts: ObjectFacts,
    pieces: AsyncIterable<Uint8Array>,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<Uint8Array> {
    let bytes = 0;
    for await (const piece of pieces) {
      bytes += piece.length;
      yield piece;
    }
    await this.#checkEnd(key, facts, bytes, signal);
  }

  /**
   * A reply without a length that is cut may look like one that has ended: HEAD tells how long the object is.
   *
   * @throws {StoreUnavailableError} where as many bytes have not come.
   */
  async #checkEnd(
    key: string,
    { storedBytes, stored }: ObjectFacts,
    bytes: number,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    if (storedBytes !== undefined) return;
    const facts = await this.facts(key, signal);
    const wanted = facts?.stored.version === stored.version ? facts.storedBytes : undefined;
    if (bytes !== (wanted ?? bytes))
      throw new StoreUnavailableError(
        `the reply has not as many bytes as the object key=${JSON.stringify(key)} bytes=${bytes} storedBytes=${wanted}`,
      );
  }

  #patience(signal: AbortSignal | undefined): Patience {
    return { limitMs: this.sender.timeoutMs, signal };
  }

  #stored(
    key: string,
    output: {
      readonly ETag?: string | undefined;
      readonly Metadata?: Record<string, string> | undefined;
    },
  ): Stored {
    const version = bareEtag(output.ETag);
    const metadata = output.Metadata ?? {};
    if (version === undefined) {
      const where = `bucket=${this.sender.bucket}`;
      if (isForeign(metadata))
        throw new StoreSetupError(
          `the endpoint does not answer like S3: a reply had no ETag ${where}`,
        );
      throw new UnsafeStoreError('etag', `the server gives objects no ETag ${where}`);
    }
    if (!isForeign(metadata))
      return fromMetadata(key, version, metadata, keyDigest(this.at(key).Key));
    const writeId = standInId(version);
    return { version, token: 0n, writeId, state: 'live', layout: 'plain', before: [] };
  }
}

function standInId(version: string): string {
  return createHash('sha256').update(version).digest('hex').slice(0, 32);
}
