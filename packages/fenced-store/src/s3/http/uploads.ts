import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  UploadPartCommand,
  UploadPartCopyCommand,
} from '@aws-sdk/client-s3';
import { StoreUnavailableError, UnsupportedByStoreError } from '../../core/errors.js';
import {
  asWriteReply,
  conditionInput,
  keepExpires,
  type Put,
  type WriteReply,
  writeInput,
} from './put.js';
import type { Requests } from './requests.js';

/** S3's own limit. */
export const PARTS_MAX = 10_000;

/** A part that has arrived. */
export interface Part {
  readonly PartNumber: number;
  readonly ETag: string;
}

/** A stretch of the stored object, which the server copies into a part by itself. */
export interface Stretch {
  readonly start: number;
  readonly length: number;
}

/** A multipart upload: nothing of it is visible until it is completed. */
export interface Upload {
  readonly key: string;
  readonly id: string;
}

/** The requests of multipart uploads. All but the last may be repeated at will, since they change no object. */
export class Uploads {
  readonly #requests: Requests;

  constructor(requests: Requests) {
    this.#requests = requests;
  }

  /** A signal keeps it from being sent; the answer is awaited all the same, since an upload without a known id would stay. */
  async create(put: Put, signal?: AbortSignal): Promise<Upload> {
    const { sender } = this.#requests;
    const { key } = put;
    const reply = await sender.repeatedly(() => {
      signal?.throwIfAborted();
      const at = this.#requests.at(key);
      const command = new CreateMultipartUploadCommand({
        ...at,
        ...writeInput(put, at.Key),
        ...this.#requests.encryption,
      });
      keepExpires(command.middlewareStack, put);
      return {
        ...{ operation: 'create-upload', key, command, signal: undefined },
        send: (abortSignal) => sender.client.send(command, { abortSignal }),
      };
    });
    const id = reply.ok ? reply.output.UploadId : undefined;
    if (id === undefined) throw unanswered(key, 'an upload was created without an id');
    return { key, id };
  }

  /** @param onOver called if the bytes are needed no more: they were sent once, as a whole, and answered */
  async part(
    upload: Upload,
    number: number,
    content: Uint8Array | Stretch,
    signal?: AbortSignal,
    onOver?: () => void,
  ): Promise<Part> {
    const isSent = content instanceof Uint8Array;
    const etag = isSent
      ? await this.#sent(upload, number, content, signal, onOver)
      : await this.#copied(upload, number, content, signal);
    if (etag !== undefined) return { PartNumber: number, ETag: etag };
    if (isSent) throw unanswered(upload.key, `part ${number} was answered without an ETag`);
    throw new UnsupportedByStoreError(
      `the server did not copy part ${number} key=${JSON.stringify(upload.key)}`,
    );
  }

  async #sent(
    { key, id }: Upload,
    number: number,
    bytes: Uint8Array,
    signal?: AbortSignal,
    onOver?: () => void,
  ) {
    const { sender } = this.#requests;
    let copies = 0;
    const reply = await sender.repeatedly(() => {
      copies++;
      const command = new UploadPartCommand({
        ...this.#requests.at(key),
        UploadId: id,
        PartNumber: number,
        Body: bytes,
        ContentLength: bytes.length,
      });
      return {
        ...{ operation: 'part', key, command, signal, bytes: bytes.length },
        send: (abortSignal) => sender.client.send(command, { abortSignal }),
      };
    });
    // Another copy that is still on its way must not be changed.
    if (copies === 1 && reply.observed.isBodySent) onOver?.();
    return reply.ok ? reply.output.ETag : undefined;
  }

  /**
   * Without a condition on the source, which not all servers know. It needs none: the upload is completed only if the object is
   * still the same version, and no version comes back, so all parts were copied from that one.
   */
  async #copied(
    { key, id }: Upload,
    number: number,
    { start, length }: Stretch,
    signal?: AbortSignal,
  ) {
    const { sender } = this.#requests;
    const reply = await sender.repeatedly(() => {
      const at = this.#requests.at(key);
      // The ARN of an access point is followed by the kind of what it gives access to.
      const inBucket = at.Bucket.startsWith('arn:') ? 'object/' : '';
      const command = new UploadPartCopyCommand({
        ...at,
        UploadId: id,
        PartNumber: number,
        CopySource: `${at.Bucket}/${inBucket}${at.Key.split('/').map(encodeURIComponent).join('/')}`,
        CopySourceRange: `bytes=${start}-${start + length - 1}`,
      });
      return {
        ...{ operation: 'part', key, command, signal, bytes: length },
        send: (abortSignal) => sender.client.send(command, { abortSignal }),
      };
    });
    return reply.ok ? reply.output.CopyPartResult?.ETag : undefined;
  }

  /** Sends one conditional Complete, exactly once. `bytes` is what the server has to put together. */
  async complete(
    put: Put,
    upload: Upload,
    parts: readonly Part[],
    bytes: number,
    signal?: AbortSignal,
  ): Promise<WriteReply> {
    const { sender } = this.#requests;
    const command = new CompleteMultipartUploadCommand({
      ...this.#requests.at(put.key),
      ...conditionInput(put.ifMatch),
      UploadId: upload.id,
      MultipartUpload: { Parts: [...parts] },
    });
    const reply = await sender.once({
      ...{ operation: 'complete', key: put.key, command, signal, bytes },
      send: (abortSignal) => sender.client.send(command, { abortSignal }),
    });
    const written = asWriteReply(reply);
    // Moto tells of versions here even where a PUT does not.
    return 'versionIds' in written ? { ...written, versionIds: undefined } : written;
  }

  /** Has the server forget an upload, if it has not done so: what cannot be removed is litter, not a fault of the write. */
  async abort({ key, id }: Upload): Promise<void> {
    const { sender } = this.#requests;
    const reply = sender.repeatedly(() => {
      const command = new AbortMultipartUploadCommand({
        ...this.#requests.at(key),
        UploadId: id,
      });
      return {
        ...{ operation: 'abort-upload', key, command, signal: undefined },
        send: (abortSignal) => sender.client.send(command, { abortSignal }),
      };
    });
    await reply.catch(() => undefined);
  }
}

function unanswered(key: string, reason: string): StoreUnavailableError {
  return new StoreUnavailableError(
    `the store did not give an answer: ${reason} key=${JSON.stringify(key)}`,
  );
}
