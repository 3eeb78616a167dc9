import { UnsupportedByStoreError } from '../../core/errors.js';
import { stamp } from '../codec/seal.js';
import type { Put } from '../http/put.js';
import type { Part, Stretch, Upload, Uploads } from '../http/uploads.js';

/** S3's own limit. */
export const PARTS_MAX = 10_000;

/** An upload of which every part has arrived. */
export interface Uploaded {
  readonly upload: Upload;
  readonly parts: readonly Part[];
  readonly bytes: number;
}

/**
 * Uploads the parts of a stored body, a few at a time: the source is read no faster than they arrive. Where it cannot be done,
 * the upload is removed again.
 *
 * @throws what the source throws; {@link FencedStoreError} of a request; the signal's reason. Nothing was written.
 */
export async function uploadParts(
  uploads: Uploads,
  put: Put,
  source: AsyncIterable<Uint8Array | Stretch>,
  options: {
    readonly partsInFlight: number;
    readonly signal: AbortSignal | undefined;
    readonly onSent: (storedBytes: number) => void;
    /** Where bytes go that are needed no more. */
    readonly free?: Uint8Array[] | undefined;
  },
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
    const onOver = () => void (content instanceof Uint8Array && options.free?.push(content));
    parts.push(await uploads.part(upload, number, content, signal, onOver));
    bytes += content.length;
    options.onSent(bytes);
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
