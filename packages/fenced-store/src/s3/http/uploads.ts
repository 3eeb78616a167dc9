import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  UploadPartCommand,
  UploadPartCopyCommand,
  type UploadPartCopyCommandInput,
} from '@aws-sdk/client-s3';
import { StoreUnavailableError, UnsupportedByStoreError } from '../../core/errors.js';
import {
  asWriteReply,
  conditionInput,
  type Put,
  preserveExpires,
  type WriteReply,
  writeInput,
} from './put.js';
import type { Request } from './request-sender.js';
import type { Requests } from './requests.js';

/** S3's own limit. */
export const PARTS_MAX = 10_000;

/** A part that the server has. */
export interface UploadedPart {
  readonly PartNumber: number;
  readonly ETag: string;
}

/** A range of the stored object, which the server copies into a part. */
export interface CopiedRange {
  readonly start: number;
  readonly length: number;
}

/** A multipart upload. Nothing of it is visible until it is completed. */
export interface Upload {
  readonly key: string;
  readonly id: string;
}

/**
 * The requests of multipart uploads. All but the last change no object, so they may be repeated.
 */
export class Uploads {
  readonly #requests: Requests;

  constructor(requests: Requests) {
    this.#requests = requests;
  }

  /**
   * Begins an upload. The signal can keep it from being sent. A reply is awaited in any case,
   * because an upload with an unknown id would stay for ever.
   */
  async create(put: Put, signal?: AbortSignal): Promise<Upload> {
    const { key } = put;
    const at = this.#requests.at(key);
    const command = (): CreateMultipartUploadCommand => {
      signal?.throwIfAborted();
      const command = new CreateMultipartUploadCommand({
        ...at,
        ...writeInput(put, at.Key),
        ...this.#requests.encryption,
      });
      preserveExpires(command.middlewareStack, put);
      return command;
    };
    const { sender } = this.#requests;
    const reply = await sender.repeatedly({ operation: 'create-upload', key, command });
    const id = reply.ok ? reply.output.UploadId : undefined;
    if (id === undefined) throw unanswered(key, 'an upload was created without an id');
    return { key, id };
  }

  /** Sends a part, or has the server copy it. */
  async part(
    { key, id }: Upload,
    number: number,
    content: Uint8Array | CopiedRange,
    signal?: AbortSignal,
  ): Promise<UploadedPart> {
    const part = { ...this.#requests.at(key), UploadId: id, PartNumber: number };
    const request = { operation: 'part', key, signal, bytes: content.length } as const;
    const { sender } = this.#requests;
    if (content instanceof Uint8Array) {
      const body = { Body: content, ContentLength: content.length };
      const command = () => new UploadPartCommand({ ...part, ...body });
      const reply = await sender.repeatedly({ ...request, command });
      const ETag = reply.ok ? reply.output.ETag : undefined;
      if (ETag !== undefined) return { PartNumber: number, ETag };
      throw unanswered(key, `part ${number} was answered without an ETag`);
    }
    const command = () => new UploadPartCopyCommand({ ...part, ...copySource(part, content) });
    const reply = await sender.repeatedly({ ...request, command });
    const ETag = reply.ok ? reply.output.CopyPartResult?.ETag : undefined;
    if (ETag !== undefined) return { PartNumber: number, ETag };
    throw new UnsupportedByStoreError(
      `the server did not copy part ${number} key=${JSON.stringify(key)}`,
    );
  }

  /**
   * Sends one conditional Complete, exactly once.
   *
   * @param bytes size of the object that the server must put together
   * @param options with `halfway`, the second half of the request waits for it
   */
  async complete(
    { key, ifMatch }: Put,
    upload: Upload,
    parts: readonly UploadedPart[],
    bytes: number,
    options: Pick<Request<never, never>, 'signal' | 'halfway'> = {},
  ): Promise<WriteReply> {
    const command = () =>
      new CompleteMultipartUploadCommand({
        ...this.#requests.at(key),
        ...conditionInput(ifMatch),
        UploadId: upload.id,
        MultipartUpload: { Parts: [...parts] },
      });
    const request = { operation: 'complete', key, command, bytes, ...options } as const;
    const reply = asWriteReply(await this.#requests.sender.once(request));
    // Moto reports versions here, even if it does not for a PUT.
    return 'versionIds' in reply ? { ...reply, versionIds: undefined } : reply;
  }

  /**
   * Removes an upload. An error is ignored, because it does not change the outcome of the write. In
   * that case, the upload stays on the server.
   */
  async abort({ key, id }: Upload): Promise<void> {
    const command = () =>
      new AbortMultipartUploadCommand({ ...this.#requests.at(key), UploadId: id });
    const { sender } = this.#requests;
    await sender.repeatedly({ operation: 'abort-upload', key, command }).catch(() => undefined);
  }
}

/**
 * A range of the stored object as the source of a copy. The copy has no condition, which some
 * servers do not know. The upload is completed only if the object still has the same version. A
 * version that was replaced never comes back, so all parts were copied from that version.
 */
function copySource(
  { Bucket, Key }: { readonly Bucket: string; readonly Key: string },
  { start, length }: CopiedRange,
): Pick<UploadPartCopyCommandInput, 'CopySource' | 'CopySourceRange'> {
  // In the source of a copy, `object/` follows the ARN of an access point.
  const inBucket = Bucket.startsWith('arn:') ? 'object/' : '';
  const path = Key.split('/').map(encodeURIComponent).join('/');
  const CopySourceRange = `bytes=${start}-${start + length - 1}`;
  return { CopySource: `${Bucket}/${inBucket}${path}`, CopySourceRange };
}

function unanswered(key: string, reason: string): StoreUnavailableError {
  return new StoreUnavailableError(
    `the store did not give an answer: ${reason} key=${JSON.stringify(key)}`,
  );
}
