import { checkObject } from '../../core/check.js';
import { InvalidArgumentError, UnsupportedByStoreError } from '../../core/errors.js';
import { type BodyStream, bodyBytes, type S3Body } from '../arguments.js';
import { type Encoding, encode, encodeStream } from '../codec/encode.js';
import { bytesOf, exactly, prepended, regrouped } from '../codec/pieces.js';
import { type CopiedRange, PARTS_MAX } from '../http/uploads.js';
import type { WritePath } from '../probe/probe-paths.js';
import { unlessAborted } from '../runtime.js';
import { SpoolFile } from './spool.js';

/** A stored body without its stamp, in the form in which it is sent. */
export type Payload =
  /** The bytes belong to one write, which stamps them. */
  | { readonly kind: 'bytes'; readonly encoded: Uint8Array }
  | { readonly kind: 'file'; readonly file: SpoolFile }
  /** Parts of a multipart upload. They can be read only once. */
  | {
      readonly kind: 'parts';
      readonly parts: AsyncIterable<Uint8Array | CopiedRange>;
      /** True if the server copies parts of the stored object. */
      readonly copies?: boolean;
      close(): Promise<unknown>;
    };

/** The ways in which large bodies can be sent. */
export interface SendLimits {
  /** A smaller body is sent in one PUT from memory. */
  readonly partBytes: number;
  readonly storedBytesMax: number;
  /** Returns the reason why a path cannot be used; null if it can. */
  readonly refusal: (path: WritePath) => Promise<UnsupportedByStoreError | null>;
  /** Returns a random name for a temporary file. */
  readonly newSpoolName: () => string;
}

/**
 * Reads a small body into memory. A larger one becomes an upload. If the server has no safe
 * uploads, it is written to a temporary file, for one PUT.
 *
 * @throws {UnsupportedByStoreError} if one PUT cannot have so many bytes, or has no safe condition.
 */
export async function payloadOf(
  pieces: AsyncIterable<Uint8Array>,
  { partBytes, storedBytesMax, refusal, newSpoolName }: SendLimits,
): Promise<Payload> {
  const parts = regrouped(pieces, partBytes);
  const { value: first = new Uint8Array() } = await parts.next();
  if (first.length < partBytes) return { kind: 'bytes', encoded: first };
  const all = prepended(first, parts);
  const close = () => parts.return(undefined);
  try {
    if ((await refusal('upload')) === null) return { kind: 'parts', parts: all, close };
    const refused = await refusal('file-put');
    if (refused !== null) throw refused;
    return { kind: 'file', file: await SpoolFile.of(all, newSpoolName(), storedBytesMax) };
  } catch (error) {
    // The rest of the source may be unread.
    await close();
    throw error;
  }
}

/** The first part of a stored body, which has the stamp, and ranges that the server copies. */
export async function copiedPayload(
  pieces: AsyncIterable<Uint8Array>,
  storedBytes: number,
  limits: Pick<SendLimits, 'partBytes'>,
): Promise<Payload> {
  // Some servers require parts of one size.
  const partBytes = Math.max(limits.partBytes, Math.ceil(storedBytes / PARTS_MAX));
  const parts = regrouped(pieces, partBytes);
  const first = await parts.next();
  await parts.return(undefined);
  const all = async function* (): AsyncGenerator<Uint8Array | CopiedRange> {
    if (!first.done) yield first.value;
    for (let start = partBytes; start < storedBytes; start += partBytes)
      yield { start, length: Math.min(partBytes, storedBytes - start) };
  };
  return { kind: 'parts', parts: all(), copies: true, close: async () => undefined };
}

/** Removes the temporary file, or ends the source, even if it was not read to its end. */
export async function released(payload: Payload): Promise<void> {
  if (payload.kind === 'file') await payload.file[Symbol.asyncDispose]();
  if (payload.kind === 'parts') await payload.close();
}

/** The caller's body of one `put`, which is sent as often as needed. */
export class BodySource implements AsyncDisposable {
  readonly #body: Uint8Array | BodyStream | (() => BodyStream);
  readonly #encoding: Encoding;
  readonly #signal: AbortSignal | undefined;
  readonly #onRead: (bodyBytes: number) => void;
  /** Size of a stream, according to the caller. */
  readonly #declaredBytes: number | undefined;
  #readBytes = 0;
  #payload: Payload | undefined;
  #isRead = false;
  #isTaken = false;

  constructor(
    body: S3Body,
    encoding: Encoding,
    signal: AbortSignal | undefined,
    onRead: (bodyBytes: number) => void = () => undefined,
    declaredBytes?: number,
  ) {
    this.#body = isStream(body) || typeof body === 'function' ? body : bodyBytes(body);
    this.#encoding = encoding;
    this.#signal = signal;
    this.#declaredBytes = declaredBytes;
    this.#onRead = (bodyBytes) => {
      this.#readBytes = bodyBytes;
      onRead(bodyBytes);
    };
  }

  /** Size of the caller's body, if it is known before the payload is sent. */
  get bodyBytes(): number | undefined {
    return this.#payload?.kind === 'parts' ? this.#declaredBytes : this.#readBytes;
  }

  /** Encodes a body in memory, before anything is sent. */
  async prepare(storedBytesMax: number): Promise<void> {
    if (!(this.#body instanceof Uint8Array) || this.#payload) return;
    const encoded = await encode(this.#body, this.#encoding);
    if (encoded.length > storedBytesMax)
      throw new UnsupportedByStoreError(
        `the stored body is larger than one PUT may be: pass a stream bytes=${encoded.length} storedBytesMax=${storedBytesMax}`,
      );
    this.#payload = { kind: 'bytes', encoded };
    this.#onRead(this.#body.length);
  }

  /** Returns the payload of one attempt; null if the body was a stream that is read already. */
  async payload(limits: SendLimits): Promise<Payload | null> {
    await this.prepare(limits.storedBytesMax);
    if (this.#payload?.kind === 'bytes') return this.#owned(this.#payload.encoded);
    if (this.#payload?.kind === 'file') {
      const refused = await limits.refusal('file-put');
      if (refused !== null) throw refused;
      return this.#payload;
    }
    if (this.#isRead && typeof this.#body !== 'function') return null;
    this.#isRead = true;
    const stream = encodeStream(this.#opened(), this.#encoding, this.#onRead);
    const made = await payloadOf(stream, limits);
    this.#payload = made;
    return made.kind === 'bytes' ? this.#owned(made.encoded) : made;
  }

  /**
   * The bytes at the first call, and copies later. An earlier request may still send the first
   * bytes, which have its stamp.
   */
  #owned(encoded: Uint8Array): Payload {
    const isFirst = !this.#isTaken;
    this.#isTaken = true;
    return { kind: 'bytes', encoded: isFirst ? encoded : new Uint8Array(encoded) };
  }

  /** Removes the temporary file, and ends a stream that was never read. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#payload) await released(this.#payload);
    if (!this.#isRead && isStream(this.#body)) await this.#body[Symbol.asyncIterator]().return?.();
  }

  #opened(): AsyncIterable<Uint8Array> {
    const stream = typeof this.#body === 'function' ? this.#body() : this.#body;
    checkObject('the body that the function gives', stream);
    const bytes = bytesOf(abortable(stream as BodyStream, this.#signal));
    return exactly(this.#declaredBytes, bytes, (declared) => {
      const facts = `bodyBytes=${declared}`;
      return new InvalidArgumentError(
        `the stream has not as many bytes as bodyBytes says ${facts}`,
      );
    });
  }
}

function isStream(body: unknown): body is BodyStream {
  return typeof body === 'object' && body !== null && Symbol.asyncIterator in body;
}

/** Throws the signal's reason, even if the source waits for ever; then ends the source. */
async function* abortable(source: BodyStream, signal?: AbortSignal): AsyncGenerator<unknown> {
  const iterator = source[Symbol.asyncIterator]();
  let hasEnded = false;
  try {
    for (;;) {
      const next = await unlessAborted(iterator.next(), signal);
      hasEnded = next.done === true;
      if (hasEnded) return;
      yield next.value;
    }
  } finally {
    // Not awaited: a source that waits for its next piece would answer only after that piece.
    if (!hasEnded) iterator.return?.().then(undefined, () => undefined);
  }
}
