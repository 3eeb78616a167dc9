import { etagHeader } from '../../core/capabilities.js';
import {
  ConflictError,
  FencedStoreError,
  OutcomeUnknownError,
  StaleTokenError,
  UnsupportedByStoreError,
} from '../../core/errors.js';
import { type Fate, type Intent, judge } from '../../core/settle.js';
import { historyUpon, isUpon, type Stored } from '../../core/stored.js';
import { publishOutcome, type WriteEvent } from '../../events.js';
import { stamp } from '../codec/seal.js';
import type { Put } from '../http/put.js';
import type { ObjectFacts, OpenObject, Requests } from '../http/requests.js';
import { Uploads } from '../http/uploads.js';
import type { Settings, Settlement, Written } from '../options.js';
import { PROBED_BYTES } from '../probe/probe-paths.js';
import { Prober } from '../probe/prober.js';
import { backoffMs, type Runtime } from '../runtime.js';
import { Known } from './known.js';
import type { Payload } from './payload.js';
import type { Plan } from './plan.js';
import { uploadParts } from './upload.js';
import { type Result, settle } from './write.js';

/** How many writes that are under way or of unknown outcome are remembered. */
const UNKNOWN_MAX = 1_000;

const SETTLEMENTS: Readonly<Record<Exclude<Fate, 'pending'>, Settlement>> = {
  applied: 'applied',
  replaced: 'applied',
  lost: 'not-applied',
  unknown: 'unknown',
};

/** A write that is under way, or of unknown outcome. */
interface Unsettled {
  readonly key: string;
  readonly intent: Intent;
}

export interface WriteOptions {
  readonly operation: WriteEvent['operation'];
  readonly key: string;
  readonly token: bigint;
  /** @default that of the store */
  readonly attemptsMax?: number;
  readonly signal: AbortSignal | undefined;
  readonly onWriteId?: ((writeId: string) => void) | undefined;
  readonly onSent?: ((storedBytes: number) => void) | undefined;
}

/** The way of every write, and of every read that a write may rely on. */
export class Writer {
  readonly requests: Requests;
  readonly prober: Prober;
  readonly known: Known = new Known();
  readonly runtime: Runtime;
  readonly #settings: Settings;
  readonly #uploads: Uploads;
  readonly #unsettled = new Map<string, Unsettled>();

  constructor(requests: Requests, settings: Settings, runtime: Runtime) {
    this.requests = requests;
    this.runtime = runtime;
    this.#settings = settings;
    this.#uploads = new Uploads(requests);
    this.prober = new Prober(requests, this.#uploads, runtime, settings);
  }

  /** @throws {RatchetLostError} as `facts`, `open` and `get`. */
  async head(key: string, signal: AbortSignal | undefined): Promise<Stored | null> {
    return (await this.facts(key, signal))?.stored ?? null;
  }

  async facts(key: string, signal: AbortSignal | undefined): Promise<ObjectFacts | null> {
    const before = this.known.highest(key);
    const facts = await this.requests.facts(key, signal);
    this.known.seen(key, before, facts?.stored ?? null);
    return facts;
  }

  async open(key: string, signal: AbortSignal | undefined): Promise<OpenObject | null> {
    const before = this.known.highest(key);
    const object = await this.requests.open(key, signal);
    try {
      this.known.seen(key, before, object?.stored ?? null);
    } catch (error) {
      object?.cancel();
      throw error;
    }
    return object;
  }

  async get(key: string, signal: AbortSignal | undefined): ReturnType<Requests['get']> {
    const before = this.known.highest(key);
    const object = await this.requests.get(key, signal);
    this.known.seen(key, before, object?.stored ?? null);
    return object;
  }

  /** Looks, checks the token against what is there, writes upon exactly that; again where the write is lost to another. */
  write<Found extends { readonly base: Stored | null }>(
    options: WriteOptions,
    plan: Plan<Found>,
  ): Promise<{ readonly written: Written; readonly found: Found }> {
    const { bucket } = this.requests.sender;
    const { operation, key, token } = options;
    return publishOutcome(
      () => this.#write(options, plan),
      () => ({ store: 's3', bucket, operation, resources: [key], token }),
      ({ written }) => written.writeId,
      () => this.runtime.monotonicMs(),
    );
  }

  async #write<Found extends { readonly base: Stored | null }>(
    options: WriteOptions,
    plan: Plan<Found>,
  ): Promise<{ readonly written: Written; readonly found: Found }> {
    const { key, token, attemptsMax = this.#settings.attemptsMax, signal } = options;
    let capabilities = await this.prober.capabilities({ signal });
    let isSure = false;
    for (let attempt = 1; ; attempt++) {
      const found = await plan.look();
      const { base } = found;
      refuseStale(key, token, base);
      const draft = await plan.draft(found, capabilities);
      if ('keep' in draft) return { written: draft.keep, found };
      const { state, layout, headers, kept, payload, release, bodyBytes } = draft;
      if (payload === null) throw new ConflictError({ resource: key, attempts: attempt - 1 });
      if (payload.kind === 'bytes' && payload.sealed.length > PROBED_BYTES) {
        const refused = await this.prober.refusal('large-put', layout, signal);
        if (refused !== null) throw refused;
      }
      const stamp = { token, writeId: this.runtime.writeId() };
      const stored = { ...stamp, state, layout, before: historyUpon(base), bodyBytes };
      const ifMatch = base && etagHeader(base.version, capabilities.etagForm);
      const put = { key, ifMatch, stored, headers, kept };
      const result = await this.#send(put, base, payload, options).finally(release);
      if (result.applied) {
        const { version, versionIds } = result;
        this.known.wrote(key, token, version === null ? null : { ...stored, version });
        // The bucket has begun or ceased to keep versions: with some servers that changes what they enforce. The next
        // write meets the verdict: this one was applied.
        if (versionIds !== undefined && versionIds !== capabilities.versionIds)
          this.prober.outdated(capabilities);
        return { written: { ...stamp, version }, found };
      }
      this.known.seen(key, base?.token ?? 0n, result.seen);
      this.known.outdated(key);
      refuseStale(key, token, result.seen);
      // Refused, although nothing had changed: perhaps the server no longer does what it was seen to do.
      if (!isSure && result.seen?.writeId === base?.writeId) {
        this.prober.outdated(capabilities);
        capabilities = await this.prober.capabilities({ signal });
      }
      isSure = true;
      if (attempt >= attemptsMax) throw new ConflictError({ resource: key, attempts: attempt });
      await this.runtime.sleep(backoffMs(this.runtime, attempt), signal);
      this.requests.sender.publishRetry(key, attempt);
    }
  }

  /** The key of a write whose outcome this process could not tell. */
  unsettledKey(writeId: string): string | undefined {
    return this.#unsettled.get(writeId)?.key;
  }

  /**
   * What became of a write.
   *
   * @param claim rewrites what is there under the token, so that whatever copy of an older write arrives later is refused
   */
  async settle(
    writeId: string,
    key: string,
    signal: AbortSignal | undefined,
    claim: (token: bigint) => Promise<void>,
  ): Promise<Settlement> {
    const intent = this.#unsettled.get(writeId)?.intent;
    for (;;) {
      const seen = await this.head(key, signal);
      if (intent === undefined)
        return seen && (seen.writeId === writeId || isUpon(seen, writeId)) ? 'applied' : 'unknown';
      const fate = judge(intent, seen, true);
      if (fate !== 'pending') {
        const settlement = SETTLEMENTS[fate];
        if (settlement !== 'unknown') this.#unsettled.delete(writeId);
        return settlement;
      }
      try {
        await claim(intent.token);
      } catch (error) {
        // What cannot be rewritten cannot be kept from a late copy either.
        if (error instanceof OutcomeUnknownError || error instanceof UnsupportedByStoreError)
          return 'unknown';
        // A later holder was quicker, and did the same for us.
        if (!(error instanceof StaleTokenError)) throw error;
      }
    }
  }

  async #send(
    put: Put,
    base: Stored | null,
    payload: Payload,
    { signal, onWriteId, onSent }: WriteOptions,
  ): Promise<Result> {
    const { stored, key } = put;
    const { writeId } = stored;
    // A caller that gives up may ask what became of the write before that is known here.
    const begin = (): void => {
      this.#remember(writeId, { key, intent: { ...stored, base } });
      onWriteId?.(writeId);
    };
    let isUnknown = false;
    try {
      if (payload.kind === 'parts')
        return await this.#upload(put, base, payload, { signal, begin, onSent });
      if (payload.kind === 'bytes') stamp(payload.sealed, stored.layout, stored);
      const content =
        payload.kind === 'bytes'
          ? payload.sealed
          : await payload.file.stamped(stored.layout, stored);
      const send = () => {
        begin();
        return this.requests.put(put, content, signal);
      };
      const result = await settle(this.requests, { ...put, base, send }, this.runtime, signal);
      if (result.applied) {
        try {
          onSent?.(content instanceof Uint8Array ? content.length : content.bytes);
        } catch {
          // The write was applied, and its caller must learn that.
        }
      }
      return result;
    } catch (error) {
      if (!(error instanceof OutcomeUnknownError)) throw error;
      this.known.outdated(key);
      isUnknown = true;
      throw error;
    } finally {
      if (!isUnknown && !signal?.aborted) this.#unsettled.delete(writeId);
    }
  }

  async #upload(
    put: Put,
    base: Stored | null,
    source: Extract<Payload, { readonly kind: 'parts' }>,
    {
      signal,
      begin,
      onSent = () => undefined,
    }: Pick<WriteOptions, 'signal' | 'onSent'> & { readonly begin: () => void },
  ): Promise<Result> {
    const { partsInFlight } = this.#settings;
    const options = { partsInFlight, signal, onSent, free: source.free };
    const uploaded = await uploadParts(this.#uploads, put, source.parts, options).catch(
      async (error: unknown) => {
        // What the server is to copy may have been replaced by others, and so be shorter, or gone.
        if (!source.copies || !(error instanceof FencedStoreError)) throw error;
        const seen = await this.requests.head(put.key, signal);
        if (seen?.writeId === base?.writeId) throw error;
        return { applied: false as const, seen };
      },
    );
    if ('applied' in uploaded) return uploaded;
    const { upload, parts, bytes } = uploaded;
    const send = () => {
      begin();
      return this.#uploads.complete(put, upload, parts, bytes, signal);
    };
    let isOpen = true;
    try {
      const result = await settle(this.requests, { ...put, base, send }, this.runtime, signal);
      isOpen = !result.applied;
      return result;
    } catch (error) {
      // A Complete may still be on its way to the upload, and its outcome may still be asked for.
      isOpen = !(error instanceof OutcomeUnknownError);
      throw error;
    } finally {
      if (isOpen) await this.#uploads.abort(upload);
    }
  }

  #remember(writeId: string, write: Unsettled): void {
    this.#unsettled.set(writeId, write);
    if (this.#unsettled.size <= UNKNOWN_MAX) return;
    const [oldest] = this.#unsettled.keys();
    if (oldest !== undefined) this.#unsettled.delete(oldest);
  }
}

/**
 * Invariant: what is written upon `base` presents a token that is not lower than that of `base`; and as the condition names
 * the version of `base`, which no other write shares, the token checked here is the one that is replaced.
 */
export function refuseStale(resource: string, presented: bigint, base: Stored | null): void {
  if (base !== null && base.token > presented)
    throw new StaleTokenError({ resource, presented, highest: base.token });
}
