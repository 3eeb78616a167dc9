import { checkObject } from '../../core/check.js';
import { InvalidArgumentError, UnsupportedByStoreError } from '../../core/errors.js';
import { type BodyStream, bodyBytes, type S3Body } from '../arguments.js';
import { type Form, prepended, regrouped, seal, sealed } from '../codec/seal.js';
import { PARTS_MAX, type Stretch } from '../http/uploads.js';
import type { WritePath } from '../probe/probe-paths.js';
import { unlessAborted } from '../runtime.js';
import { SpoolFile } from './spool.js';

/** What is to be stored, however large, but for its stamp. */
export type Payload =
  /** The bytes are this write's own, which stamps them. */
  | { readonly kind: 'bytes'; readonly sealed: Uint8Array }
  | { readonly kind: 'file'; readonly file: SpoolFile }
  /** Parts of a multipart upload, which can be read only once. */
  | {
      readonly kind: 'parts';
      readonly parts: AsyncIterable<Uint8Array | Stretch>;
      /** Whether the server copies parts of what is stored. */
      readonly copies?: boolean;
      /** Where parts go that nobody needs any more: later ones overwrite them. */
      readonly free?: Uint8Array[];
      close(): Promise<unknown>;
    };

/** How large bodies are sent. */
export interface Sizes {
  /** What is smaller is sent in one PUT from memory. */
  readonly partBytes: number;
  readonly storedBytesMax: number;
  /** The reason why a path cannot be used. Without uploads, a temporary file makes one PUT of a large body. */
  readonly refusal: (path: WritePath) => Promise<UnsupportedByStoreError | null>;
  /** Random, for a temporary file. */
  readonly newSpoolName: () => string;
}

/** @throws {UnsupportedByStoreError} where the bytes are more than one PUT may have, or cannot be sent under a condition. */
export async function payloadOf(
  pieces: AsyncIterable<Uint8Array>,
  { partBytes, storedBytesMax, refusal, newSpoolName }: Sizes,
): Promise<Payload> {
  const free: Uint8Array[] = [];
  const parts = regrouped(pieces, partBytes, free);
  const first = await parts.next();
  if (first.done) return { kind: 'bytes', sealed: new Uint8Array() };
  if (first.value.length < partBytes) return { kind: 'bytes', sealed: first.value };
  const all = prepended(first.value, parts);
  const close = () => parts.return(undefined);
  try {
    if ((await refusal('upload')) === null) return { kind: 'parts', parts: all, free, close };
    const refused = await refusal('file-put');
    if (refused !== null) throw refused;
    return { kind: 'file', file: await SpoolFile.of(all, free, newSpoolName(), storedBytesMax) };
  } catch (error) {
    // Nobody may have begun to read the rest.
    await close();
    throw error;
  }
}

/**
 * What is stored, of which the server copies all but the first part. That one is sent, as it has the stamp.
 *
 * @param storedBytes how many there are
 */
export async function copiedPayload(
  pieces: AsyncIterable<Uint8Array>,
  storedBytes: number,
  sizes: Pick<Sizes, 'partBytes'>,
): Promise<Payload> {
  // Some servers want all parts to have one size.
  const partBytes = Math.max(sizes.partBytes, Math.ceil(storedBytes / PARTS_MAX));
  const parts = regrouped(pieces, partBytes);
  const first = await parts.next();
  await parts.return(undefined);
  const all = async function* (): AsyncGenerator<Uint8Array | Stretch> {
    if (!first.done) yield first.value;
    for (let start = partBytes; start < storedBytes; start += partBytes)
      yield { start, length: Math.min(partBytes, storedBytes - start) };
  };
  return { kind: 'parts', parts: all(), copies: true, close: async () => undefined };
}

/** Closes the temporary file, or ends the source, also where it was never read to its end. */
export async function released(payload: Payload): Promise<void> {
  if (payload.kind === 'file') await payload.file[Symbol.asyncDispose]();
  if (payload.kind === 'parts') await payload.close();
}

/** The body that a caller gave to one `put`, ready to be sent as often as it must be. */
export class Source implements AsyncDisposable {
  readonly #body: Uint8Array | BodyStream | (() => BodyStream);
  readonly #form: Form;
  readonly #signal: AbortSignal | undefined;
  readonly #onRead: (bodyBytes: number) => void;
  /** What the caller says that a stream has. */
  readonly #declaredBytes: number | undefined;
  #readBytes = 0;
  #payload: Payload | undefined;
  #isRead = false;
  #isTaken = false;

  constructor(
    body: S3Body,
    form: Form,
    signal: AbortSignal | undefined,
    onRead: (bodyBytes: number) => void,
    declaredBytes?: number,
  ) {
    this.#body = isStream(body) || typeof body === 'function' ? body : bodyBytes(body);
    this.#form = form;
    this.#signal = signal;
    this.#declaredBytes = declaredBytes;
    this.#onRead = (bodyBytes) => {
      this.#readBytes = bodyBytes;
      onRead(bodyBytes);
    };
  }

  /** How many bytes of the caller's there are, where that is known before all were read: once the payload is. */
  get bodyBytes(): number | undefined {
    return this.#payload?.kind === 'parts' ? this.#declaredBytes : this.#readBytes;
  }

  /** Makes the stored form of a body that is in memory, before anything is sent. */
  async prepare(storedBytesMax: number): Promise<void> {
    if (!(this.#body instanceof Uint8Array)) return;
    const bytes = await seal(this.#body, this.#form);
    if (bytes.length > storedBytesMax)
      throw new UnsupportedByStoreError(
        `the stored body is larger than one PUT may be: pass a stream bytes=${bytes.length} storedBytesMax=${storedBytesMax}`,
      );
    this.#payload = { kind: 'bytes', sealed: bytes };
    this.#onRead(this.#body.length);
  }

  /** Null where the body was a stream of which nothing is left to be sent again. */
  async payload(sizes: Sizes): Promise<Payload | null> {
    if (this.#payload?.kind === 'file') {
      const refused = await sizes.refusal('file-put');
      if (refused !== null) throw refused;
      return this.#payload;
    }
    if (this.#payload?.kind === 'bytes') return this.#owned(this.#payload.sealed);
    if (this.#isRead && typeof this.#body !== 'function') return null;
    this.#isRead = true;
    await this.prepare(sizes.storedBytesMax);
    if (this.#body instanceof Uint8Array) return this.payload(sizes);
    const stream = whole(abortable(this.#opened(this.#body), this.#signal), this.#declaredBytes);
    const made = await payloadOf(sealed(stream, this.#form, this.#onRead), sizes);
    this.#payload = made;
    return made.kind === 'bytes' ? this.#owned(made.sealed) : made;
  }

  /** Lets go of the temporary file, and of a stream that was never read. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#payload) await released(this.#payload);
    if (!this.#isRead && isStream(this.#body)) await this.#body[Symbol.asyncIterator]().return?.();
  }

  /** The bytes themselves once, then copies: whatever an earlier write has left under way keeps its stamp. */
  #owned(sealed: Uint8Array): Payload {
    const isFirst = !this.#isTaken;
    this.#isTaken = true;
    return { kind: 'bytes', sealed: isFirst ? sealed : new Uint8Array(sealed) };
  }

  #opened(body: BodyStream | (() => BodyStream)): BodyStream {
    if (typeof body !== 'function') return body;
    const stream = body();
    checkObject('the body that the function gives', stream);
    return stream;
  }
}

function isStream(body: unknown): body is BodyStream {
  return typeof body === 'object' && body !== null && Symbol.asyncIterator in body;
}

/** Ends with the signal's reason, though the source may be waiting for ever; and lets the source know. */
async function* abortable(
  source: BodyStream,
  signal: AbortSignal | undefined,
): AsyncGenerator<unknown> {
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
    // A source that is waiting would answer only after that.
    if (!hasEnded) iterator.return?.().then(undefined, () => undefined);
  }
}

/** @throws {InvalidArgumentError} where the stream has not as many bytes as the caller said; before the end is handed on. */
async function* whole(
  stream: AsyncIterable<unknown>,
  declaredBytes: number | undefined,
): AsyncGenerator<unknown> {
  let bytes = 0;
  for await (const piece of stream) {
    bytes += typeof piece === 'string' ? Buffer.byteLength(piece) : (piece as Uint8Array).length;
    if (bytes > (declaredBytes ?? bytes)) break;
    yield piece;
  }
  if (bytes !== (declaredBytes ?? bytes))
    throw new InvalidArgumentError(
      `the stream has not as many bytes as bodyBytes says bodyBytes=${declaredBytes}`,
    );
}
