import {
  FencedStoreError,
  OutcomeUnknownError,
  UnsupportedByStoreError,
} from '../../core/errors.js';
import type { Stored } from '../../core/stored.js';
import { writeStamp } from '../codec/encode.js';
import type { Put } from '../http/put.js';
import { PARTS_MAX } from '../http/uploads.js';
import { forEachOf } from '../read/each.js';
import type { Payload } from './body-source.js';
import type { WriteCall, WriteServices } from './intent.js';
import type { SendResult, UntilResolved } from './send.js';

type Parts = Extract<Payload, { readonly kind: 'parts' }>;

/**
 * Uploads the parts of a stored body, a few at a time, then completes the upload under the
 * condition. Reads the source no faster than the server takes the parts.
 */
export async function sendUpload(
  { uploads, objects, settings: { partsInFlight } }: WriteServices,
  { signal, onSent }: WriteCall,
  put: Put,
  base: Stored | null,
  payload: Parts,
  untilResolved: UntilResolved,
): Promise<SendResult> {
  const upload = await uploads.create(put, signal);
  let isOpen = true;
  let bytes = 0;
  try {
    const parts = await forEachOf(payload.parts, partsInFlight, async (content, at, failure) => {
      if (at === PARTS_MAX)
        throw new UnsupportedByStoreError(
          `an upload has at most ${PARTS_MAX} parts: choose a larger partBytes partBytes=${content.length}`,
        );
      if (at === 0 && content instanceof Uint8Array) writeStamp(content, put.stored);
      const either = signal ? AbortSignal.any([failure, signal]) : failure;
      const part = await uploads.part(upload, at + 1, content, either);
      bytes += content.length;
      onSent?.(bytes);
      return part;
    });
    const result = await untilResolved((now) =>
      uploads.complete(now, upload, parts, bytes, { signal }),
    );
    isOpen = !result.applied;
    return result;
  } catch (error) {
    // If the outcome is unknown, the server may still complete the upload.
    isOpen = !(error instanceof OutcomeUnknownError);
    // If the server copies parts, another write may have replaced their source. Then this one lost.
    if (!payload.copies || !isOpen || !(error instanceof FencedStoreError)) throw error;
    const seen = await objects.requests.stamp(put.key, signal);
    if (seen?.writeId === base?.writeId) throw error;
    return { applied: false, seen };
  } finally {
    if (isOpen) await uploads.abort(upload);
  }
}
