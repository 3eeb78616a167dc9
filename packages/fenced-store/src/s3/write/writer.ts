import { etagHeader, type StoreCapabilities } from '../../core/capabilities.js';
import { ConflictError, OutcomeUnknownError } from '../../core/errors.js';
import { refuseStale } from '../../core/ratchet.js';
import { historyUpon, type Stored } from '../../core/stored.js';
import { publishOutcome } from '../../events.js';
import { stamp } from '../codec/seal.js';
import type { Put } from '../http/put.js';
import type { Uploads } from '../http/uploads.js';
import type { Settings, Written } from '../options.js';
import { PROBED_BYTES } from '../probe/probe-paths.js';
import type { Prober } from '../probe/prober.js';
import type { Objects } from '../read/objects.js';
import { backoffMs, type Runtime } from '../runtime.js';
import type { Found, WriteCall, WriteIntent, WriteRequest } from './intent.js';
import type { Payload } from './payload.js';
import type { UnsettledWrites } from './unsettled.js';
import { sendUpload } from './upload.js';
import { type Result, settle } from './write.js';

/** An applied write, and the object that was read before. */
interface Applied<Read> {
  readonly written: Written;
  readonly found: Read;
}

/** The parts that a writer works with. */
interface Parts {
  readonly objects: Objects;
  readonly prober: Prober;
  readonly uploads: Uploads;
  readonly unsettled: UnsettledWrites;
  readonly settings: Settings;
  readonly runtime: Runtime;
}

/** The algorithm of every write. */
export class Writer {
  readonly #parts: Parts;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** Writes, and publishes the outcome. */
  write<Read extends Found>(call: WriteCall, intent: WriteIntent<Read>): Promise<Applied<Read>> {
    const { objects, runtime } = this.#parts;
    const { bucket } = objects.requests.sender;
    const { operation, key, token } = call;
    return publishOutcome(
      () => this.#write(call, intent),
      () => ({ store: 's3', bucket, operation, resources: [key], token }),
      ({ written }) => written.writeId,
      () => runtime.monotonicMs(),
    );
  }

  /**
   * Reads the current object, compares the tokens, encodes the next object, and replaces exactly
   * the version that was compared. Starts again if another write was quicker.
   */
  async #write<Read extends Found>(
    call: WriteCall,
    intent: WriteIntent<Read>,
  ): Promise<Applied<Read>> {
    const { prober, settings, runtime, objects } = this.#parts;
    const { key, token, attemptsMax = settings.attemptsMax, signal } = call;
    let capabilities = await prober.capabilities({ signal });
    for (let attempt = 1; ; attempt++) {
      const found = await intent.read(call);
      const { base } = found;
      refuseStale(key, token, base);

      const request = await intent.encode(call, found, capabilities);
      if ('keep' in request) return { written: request.keep, found };
      const { payload, release } = request;
      if (payload === null) throw new ConflictError({ resource: key, attempts: attempt - 1 });
      await this.#checkSize(payload, request.layout, signal);

      const put = this.#conditionalPut(call, request, base, capabilities);
      const result = await this.#send(put, base, payload, call).finally(release);
      if (result.applied) return { written: this.#applied(put, result, capabilities), found };

      objects.known.seen(key, base?.token ?? 0n, result.seen);
      objects.known.outdated(key);
      refuseStale(key, token, result.seen);
      // Refused, although the object is the same: the server may enforce something else by now.
      if (attempt === 1 && result.seen?.writeId === base?.writeId) {
        prober.outdated(capabilities);
        capabilities = await prober.capabilities({ signal });
      }
      if (attempt >= attemptsMax) throw new ConflictError({ resource: key, attempts: attempt });
      await runtime.sleep(backoffMs(runtime, attempt), signal);
      objects.requests.sender.publishRetry(key, attempt);
    }
  }

  /** @throws {UnsupportedByStoreError} if the server ignores the condition of so large a PUT. */
  async #checkSize(
    payload: Payload,
    layout: WriteRequest['layout'],
    signal: AbortSignal | undefined,
  ): Promise<void> {
    if (payload.kind !== 'bytes' || payload.sealed.length <= PROBED_BYTES) return;
    const refused = await this.#parts.prober.refusal('large-put', layout, signal);
    if (refused !== null) throw refused;
  }

  #conditionalPut(
    { key, token }: WriteCall,
    { state, layout, headers, kept, bodyBytes }: WriteRequest,
    base: Stored | null,
    { etagForm }: StoreCapabilities,
  ): Put {
    const writeId = this.#parts.runtime.writeId();
    const stored = { token, writeId, state, layout, before: historyUpon(base), bodyBytes };
    return { key, ifMatch: base && etagHeader(base.version, etagForm), stored, headers, kept };
  }

  #applied(
    { key, stored }: Put,
    { version, versionIds }: Extract<Result, { readonly applied: true }>,
    capabilities: StoreCapabilities,
  ): Written {
    const { objects, prober } = this.#parts;
    const { token, writeId } = stored;
    objects.known.wrote(key, token, version === null ? null : { ...stored, version });
    // The bucket began or ceased to keep versions, which changes what some servers enforce.
    // The next write asks the server again: this one was applied.
    if (versionIds !== undefined && versionIds !== capabilities.versionIds)
      prober.outdated(capabilities);
    return { token, writeId, version };
  }

  /** Sends one conditional write until its outcome is certain. */
  async #send(
    put: Put,
    base: Stored | null,
    payload: Payload,
    { signal, onWriteId, onSent }: WriteCall,
  ): Promise<Result> {
    const { objects, uploads, unsettled, settings, runtime } = this.#parts;
    const { requests, known } = objects;
    const { stored, key } = put;
    const { writeId } = stored;
    const settled = (send: () => ReturnType<typeof requests.put>): Promise<Result> => {
      const sendOnce = () => {
        // A caller that gives up may ask for the outcome before it is known here.
        unsettled.add(writeId, { key, intent: { ...stored, base } });
        onWriteId?.(writeId);
        return send();
      };
      return settle(requests, { ...put, base, send: sendOnce }, runtime, signal);
    };
    let isUnknown = false;
    try {
      if (payload.kind === 'parts') {
        const options = { ...settings, signal, onSent };
        return await sendUpload({ uploads, requests, put, base, settled }, payload, options);
      }
      if (payload.kind === 'bytes') stamp(payload.sealed, stored.layout, stored);
      const content =
        payload.kind === 'bytes'
          ? payload.sealed
          : await payload.file.stamped(stored.layout, stored);
      const result = await settled(() => requests.put(put, content, signal));
      if (result.applied) {
        try {
          onSent?.(content instanceof Uint8Array ? content.length : content.bytes);
        } catch {
          // The write was applied, and its caller must learn that.
        }
      }
      return result;
    } catch (error) {
      isUnknown = error instanceof OutcomeUnknownError;
      if (isUnknown) known.outdated(key);
      throw error;
    } finally {
      if (!isUnknown && !signal?.aborted) unsettled.delete(writeId);
    }
  }
}
