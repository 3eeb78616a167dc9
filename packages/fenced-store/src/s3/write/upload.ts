import {
  FencedStoreError,
  OutcomeUnknownError,
  UnsupportedByStoreError,
} from '../../core/errors.js';
import type { Stored } from '../../core/stored.js';
import { stamp } from '../codec/seal.js';
import type { Put, WriteReply } from '../http/put.js';
import type { Requests } from '../http/requests.js';
import { PARTS_MAX, type Part, type Stretch, type Upload, type Uploads } from '../http/uploads.js';
import type { Payload } from './payload.js';
import type { Result } from './write.js';

interface UploadOptions {
  readonly partsInFlight: number;
  readonly signal: AbortSignal | undefined;
  readonly onSent?: ((storedBytes: number) => void) | undefined;
}

/** One conditional write, and the requests that it is made of. */
interface UploadWrite {
  readonly uploads: Uploads;
  readonly requests: Requests;
  readonly put: Put;
  readonly base: Stored | null;
  /** Sends until the outcome is certain. */
  readonly settled: (send: () => Promise<WriteReply>) => Promise<Result>;
}

/** Uploads the parts, then completes the upload under the condition. */
export async function sendUpload(
  { uploads, requests, put, base, settled }: UploadWrite,
  payload: Extract<Payload, { readonly kind: 'parts' }>,
  options: UploadOptions,
): Promise<Result> {
  let uploaded: Uploaded;
  try {
    uploaded = await uploadParts(uploads, put, payload, options);
  } catch (error) {
    // Another write may have replaced the object that the server copies from.
    if (!payload.copies || !(error instanceof FencedStoreError)) throw error;
    const seen = await requests.head(put.key, options.signal);
    if (seen?.writeId === base?.writeId) throw error;
    return { applied: false, seen };
  }
  const { upload, parts, bytes } = uploaded;
  let isOpen = true;
  try {
    const result = await settled(() => uploads.complete(put, upload, parts, bytes, options.signal));
    isOpen = !result.applied;
    return result;
  } catch (error) {
    // A Complete may be on its way to the upload, and its outcome may still be asked for.
    isOpen = !(error instanceof OutcomeUnknownError);
    throw error;
  } finally {
    if (isOpen) await uploads.abort(upload);
  }
}

/** An upload of which every part has arrived. */
interface Uploaded {
  readonly upload: Upload;
  readonly parts: readonly Part[];
  readonly bytes: number;
}

/**
 * Uploads the parts of a stored body, a few at a time, and reads the source no faster than they
 * arrive. Removes the upload if one of them fails.
 *
 * @throws an error of the source; {@link FencedStoreError} of a request; the signal's reason.
 *   Nothing was written.
 */
async function uploadParts(
  uploads: Uploads,
  put: Put,
  { parts: source, free }: Extract<Payload, { readonly kind: 'parts' }>,
  options: UploadOptions,
): Promise<Uploaded> {
  const upload = await uploads.create(put, options.signal);
  const failure = new AbortController();
  const signal =
    options.signal === undefined
      ? failure.signal
      : AbortSignal.any([failure.signal, options.signal]);
  const parts: Part[] = [];
  const underWay = new Set<Promise<void>>();
  let bytes = 0;
  const send = async (number: number, content: Uint8Array | Stretch): Promise<void> => {
    const onOver = () => void (content instanceof Uint8Array && free?.push(content));
    parts.push(await uploads.part(upload, number, content, signal, onOver));
    bytes += content.length;
    options.onSent?.(bytes);
  };
  try {
    let number = 0;
    for await (const content of source) {
      number++;
      if (number > PARTS_MAX)
        throw new UnsupportedByStoreError(
          `an upload has at most ${PARTS_MAX} parts: choose a larger partBytes partBytes=${content.length}`,
        );
      if (number === 1 && content instanceof Uint8Array)
        stamp(content, put.stored.layout, put.stored);
      const sending = send(number, content);
      underWay.add(sending);
      // What fails is noticed below, where all are waited for.
      sending.then(
        () => underWay.delete(sending),
        () => undefined,
      );
      if (underWay.size >= options.partsInFlight) await Promise.race(underWay);
    }
    await Promise.all(underWay);
  } catch (error) {
    failure.abort(error);
    await Promise.allSettled(underWay);
    await uploads.abort(upload);
    throw error;
  }
  return { upload, parts: parts.toSorted((a, b) => a.PartNumber - b.PartNumber), bytes };
}
