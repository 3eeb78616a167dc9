import { etagHeader, type StoreCapabilities } from '../../core/capabilities.js';
import { ConflictError, OutcomeUnknownError } from '../../core/errors.js';
import { refuseStale } from '../../core/ratchet.js';
import { historyAfter, type Stored } from '../../core/stored.js';
import { publishOutcome } from '../../events.js';
import { writeStamp } from '../codec/encode.js';
import type { Content, Put, WriteReply } from '../http/put.js';
import type { Written } from '../options.js';
import { PROBED_BYTES, type WritePath } from '../probe/probe-paths.js';
import { checkLayout } from '../probe/prober.js';
import { backoffMs } from '../runtime.js';
import type { Payload } from './body-source.js';
import type { Found, WriteCall, WriteIntent, WriteRequest, WriteServices } from './intent.js';
import { type SendResult, sendUntilResolved, type UntilResolved } from './send.js';
import { sendUpload } from './upload.js';

/** A body that is sent in one PUT. */
type OnePut = Exclude<Payload, { readonly kind: 'parts' }>;

/** The object that a write replaces, and the facts under which it is sent. */
interface Basis extends Found {
  /** Time before the object was read. */
  readonly readAtMs: number;
  readonly capabilities: StoreCapabilities;
}

type AppliedResult = Extract<SendResult, { readonly applied: true }>;

/** An applied write, and the object that was read before. */
interface Applied<Read> {
  readonly written: Written;
  readonly found: Read;
}

/** The algorithm of every write: of puts, updates, deletions, claims and repairs. */
export class Writer {
  readonly #services: WriteServices;

  constructor(services: WriteServices) {
    this.#services = services;
  }

  /** Writes, and publishes the outcome. */
  write<Read extends Found>(call: WriteCall, intent: WriteIntent<Read>): Promise<Applied<Read>> {
    const { objects, runtime } = this.#services;
    const { bucket } = objects.requests.sender;
    const { operation, key, token } = call;
    return publishOutcome(
      () => this.#write(call, intent),
      () => ({ store: 's3', bucket, operation, resources: [key], token }),
      ({ written }) => written.writeId,
      () => runtime.nowMs(),
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
    const { prober, settings, runtime, objects } = this.#services;
    const { key, token, attemptsMax = settings.attemptsMax, signal } = call;
    for (let attempt = 1; ; attempt++) {
      const capabilities = await prober.capabilities({ signal });
      const readAtMs = runtime.nowMs();
      const found = await intent.read(call);
      const { base } = found;
      refuseStale(key, token, base);

      const request = await intent.encode(call, found);
      if ('keep' in request) return { written: request.keep, found };
      const { payload, release } = request;
      // The body was a stream, which an earlier attempt has read.
      if (payload === null) throw new ConflictError({ resource: key, attempts: attempt - 1 });

      const put = this.#conditionalPut(call, request, base, capabilities);
      const basis = { base, readAtMs, capabilities };
      const result = await this.#send(put, basis, payload, call).finally(release);
      if (result.applied) {
        await this.#checkVerdict(call, put, result, basis);
        return { written: this.#applied(put, result), found };
      }

      // Two successes upon one version: this server does not enforce conditions, or a proxy passes
      // on replies in disorder. Only a probe can tell.
      if (result.isContradicted) await prober.withdraw(capabilities);
      objects.lastSeen.noteRead(key, base?.token ?? 0n, result.seen);
      objects.lastSeen.forgetBase(key);
      refuseStale(key, token, result.seen);
      if (attempt >= attemptsMax) throw new ConflictError({ resource: key, attempts: attempt });
      await runtime.sleep(backoffMs(runtime, attempt), signal);
      objects.requests.sender.publishRetry(key, attempt);
    }
  }

  #conditionalPut(
    { key, token }: WriteCall,
    { state, layout, headers, preserved, bodyBytes }: WriteRequest,
    base: Stored | null,
    { etagForm, encryption: distinguishing }: StoreCapabilities,
  ): Put {
    const writeId = this.#services.runtime.writeId();
    const stored = { token, writeId, state, layout, before: historyAfter(base), bodyBytes };
    const ifMatch = base && etagHeader(base.version, etagForm);
    return { key, ifMatch, stored, headers, preserved, distinguishing };
  }

  /**
   * Sends one conditional PUT or an upload, until its outcome is certain. If the outcome stays
   * unknown, or the caller aborts, the write is kept for `settle`.
   */
  async #send(
    put: Put,
    { base, readAtMs, capabilities }: Basis,
    payload: Payload,
    call: WriteCall,
  ): Promise<SendResult> {
    const { objects, prober, unsettled, runtime } = this.#services;
    const { signal, onWriteId } = call;
    const { key, stored } = put;
    const { token, writeId } = stored;
    const write = { key, token, writeId, base };
    let { ifMatch } = put;
    const renew = async (): Promise<void> => {
      prober.forget(capabilities);
      const renewed = await prober.capabilities({ signal });
      checkLayout(stored.layout, renewed);
      ifMatch = base && etagHeader(base.version, renewed.etagForm);
      const path = pathOf(payload);
      if (path !== null) await prober.require(path, stored.layout, signal);
    };
    const untilResolved: UntilResolved = (sendOnce) => {
      const send = (): Promise<WriteReply> => {
        // Noted before it is sent: a caller that aborts may call `settle` at any time after that.
        unsettled.add(write);
        onWriteId?.(writeId);
        return sendOnce({ ...put, ifMatch });
      };
      const sending = { ...write, readAtMs, send, renew };
      return sendUntilResolved(objects.requests, sending, runtime, signal);
    };
    let isUnknown = false;
    try {
      return payload.kind === 'parts'
        ? await sendUpload(this.#services, call, put, base, payload, untilResolved)
        : await this.#sendPut(call, put, payload, untilResolved);
    } catch (error) {
      isUnknown = error instanceof OutcomeUnknownError;
      if (isUnknown) objects.lastSeen.forgetBase(key);
      throw error;
    } finally {
      if (!isUnknown && !signal?.aborted) unsettled.delete(writeId);
    }
  }

  async #sendPut(
    { signal, onSent }: WriteCall,
    put: Put,
    payload: OnePut,
    untilResolved: UntilResolved,
  ): Promise<SendResult> {
    const { requests } = this.#services.objects;
    const content = await this.#stamped(put, payload, signal);
    const result = await untilResolved((now) => requests.put(now, content, { signal }));
    if (result.applied) reportSent(content, onSent);
    return result;
  }

  /** Stamps a body that is sent in one PUT. */
  async #stamped({ stored }: Put, payload: OnePut, signal?: AbortSignal): Promise<Content> {
    if (payload.kind === 'file') return payload.file.stamped(stored);
    const { encoded } = payload;
    const path = pathOf(payload);
    if (path !== null) await this.#services.prober.require(path, stored.layout, signal);
    writeStamp(encoded, stored);
    return encoded;
  }

  #applied({ key, stored }: Put, { version }: AppliedResult): Written {
    const { token, writeId } = stored;
    const base = version === null ? null : { ...stored, version };
    this.#services.objects.lastSeen.noteWrite(key, token, base);
    return { token, writeId, version };
  }

  /**
   * Compares the reply with the facts on which the verdict about this server rests. Versioning may
   * have been switched on or off, which changes what some servers enforce. Or bytes without a token
   * were encrypted in another way, which changes how ETags are made. Then the certificate is
   * withdrawn, and the server is asked again. If it has become unsafe, it may have ignored the
   * condition of this write, too.
   *
   * @throws {OutcomeUnknownError} if the server is unsafe now, or does not answer.
   */
  async #checkVerdict(
    { signal }: WriteCall,
    { key, stored: { token, writeId, layout }, preserved }: Put,
    { versionIds, encryption }: AppliedResult,
    { base, capabilities }: Basis,
  ): Promise<void> {
    const { prober, unsettled } = this.#services;
    const isVersioned = versionIds !== undefined && versionIds !== capabilities.versionIds;
    const isEncrypted =
      layout === 'plain' &&
      versionIds !== undefined &&
      preserved?.input.ServerSideEncryption === undefined &&
      encryption?.algorithm !== capabilities.encryption?.algorithm;
    if (!isVersioned && !isEncrypted) return;
    try {
      await prober.withdraw(capabilities);
      await prober.capabilities({ signal });
    } catch (cause) {
      unsettled.add({ key, token, writeId, base });
      const facts = { resource: key, writeId, store: 's3', canSettle: true } as const;
      throw new OutcomeUnknownError(facts, { cause });
    }
  }
}

/** The way of writing that a payload takes; null for a small body, which the probe covers. */
function pathOf(payload: Payload): WritePath | null {
  if (payload.kind === 'parts') return 'upload';
  if (payload.kind === 'file') return 'file-put';
  return payload.encoded.length > PROBED_BYTES ? 'large-put' : null;
}

/** Calls `onSent`. Ignores its errors: the write was applied, and the caller must learn that. */
function reportSent(content: Content, onSent: WriteCall['onSent']): void {
  try {
    onSent?.(content instanceof Uint8Array ? content.length : content.bytes);
  } catch {}
}
