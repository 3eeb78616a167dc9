import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  UploadPartCommand,
} from '@aws-sdk/client-s3';
import { StoreUnavailableError } from '../core/errors.js';
import {
  asWriteReply,
  conditionInput,
  keepExpires,
  type Put,
  type WriteReply,
  writeInput,
} from './put.js';
import type { Requests } from './requests.js';

/** A part that has arrived. */
export interface Part {
  readonly PartNumber: number;
  readonly ETag: string;
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

  async part(
    { key, id }: Upload,
    number: number,
    bytes: Uint8Array,
    signal?: AbortSignal,
  ): Promise<Part> {
    const { sender } = this.#requests;
    const reply = await sender.repeatedly(() => {
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
    const etag = reply.ok ? reply.output.ETag : undefined;
    if (etag === undefined) throw unanswered(key, `part ${number} was answered without an ETag`);
    return { PartNumber: number, ETag: etag };
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
