import type { StoreCapabilities } from '../../core/capabilities.js';
import {
  CorruptObjectError,
  InvalidArgumentError,
  UnsupportedByStoreError,
  VersionMismatchError,
} from '../../core/errors.js';
import type { Layout, Stored } from '../../core/stored.js';
import { bodyBytes, checkHeaders, type Headers } from '../arguments.js';
import { formFor, seal } from '../codec/seal.js';
import { TOMBSTONE } from '../http/put.js';
import type { ObjectFacts, OpenObject, WholeObject } from '../http/requests.js';
import type { Current, Edit, Settings } from '../options.js';
import type { Prober } from '../probe/prober.js';
import { bodyBytesOf, contentOf, salvaged, storedStream } from '../read/content.js';
import { currentOf } from '../read/current.js';
import type { Objects } from '../read/objects.js';
import type { Runtime } from '../runtime.js';
import type { Found, WriteCall, WriteIntent, WriteRequest } from './intent.js';
import { checkBytesCanStay, keptByClaim, keptHeaders } from './kept.js';
import { copiedPayload, payloadOf, released, type Sizes, Source } from './payload.js';

/** A smaller object, in parts, is read and sent again. */
const COPIED_PARTS_MIN = 4;

/** The version that a write may replace: null for no value, undefined for any version. */
type Expected = string | null | undefined;

interface FoundWhole extends Found {
  readonly object: WholeObject | null;
}

interface FoundOpen extends Found {
  /** Null if nothing of it is needed. */
  readonly object: OpenObject | null;
}

interface FoundDamaged extends Found {
  readonly object: WholeObject;
  /** Null if it cannot be read any more. */
  readonly body: Uint8Array | null;
}

/** The kinds of writes. */
export class WriteIntents {
  readonly #objects: Objects;
  readonly #prober: Prober;
  readonly #settings: Settings;
  readonly #runtime: Runtime;

  constructor(objects: Objects, prober: Prober, settings: Settings, runtime: Runtime) {
    this.#objects = objects;
    this.#prober = prober;
    this.#settings = settings;
    this.#runtime = runtime;
  }

  /** Stores a body instead of the current value. */
  put(source: Source, headers: Headers, expected: Expected): WriteIntent {
    return {
      read: (call) => this.#base(call, expected),
      encode: async ({ key, signal }, { base }, capabilities) => {
        checkVersion(key, base, expected);
        const { layout } = this.#settings;
        const payload = await source.payload(this.#sizes(capabilities, signal));
        return { state: 'live', layout, payload, headers, bodyBytes: source.bodyBytes };
      },
    };
  }

  /** Stores a tombstone instead of the current value. */
  remove(expected: Expected): WriteIntent {
    return {
      read: (call) => this.#base(call, expected),
      encode: async ({ key }, { base }) => {
        checkVersion(key, base, expected);
        return tombstone();
      },
    };
  }

  /** Stores the result of `edit`. */
  update(edit: (current: Current | null) => Edit | Promise<Edit>): WriteIntent<FoundWhole> {
    return {
      read: (call) => this.#whole(call),
      encode: async ({ key, signal }, { object }, capabilities) => {
        const current = await currentOf(key, object);
        const edited = await edit(current);
        const { body, ...given } =
          typeof edited === 'string' || edited instanceof Uint8Array
            ? { body: edited }
            : { ...edited };
        const keeps = object !== null && current !== null;
        const old = keeps ? await keptHeaders(this.#objects.requests, key, object, signal) : {};
        const headers = { ...old, ...checkHeaders(given) };
        const request = await this.#bodyRequest(bodyBytes(body), headers, capabilities, signal);
        return { ...request, ...(keeps && { kept: object.kept }) };
      },
    };
  }

  /**
   * Keeps the value, under this token. A large object is copied by the server, or sent again piece
   * by piece.
   *
   * @param anew whether an object that already has the token is written, too
   */
  claim(anew = false): WriteIntent<FoundOpen> {
    return {
      read: async ({ key, token, signal }) => {
        const base = await this.#objects.head(key, signal);
        const isWanted = (stored: Stored): boolean =>
          stored.state === 'live' && (stored.token < token || (anew && stored.token === token));
        if (base === null || !isWanted(base)) return { base, object: null };
        const object = await this.#objects.open(key, signal);
        if (object === null || isWanted(object.stored))
          return { base: object?.stored ?? null, object };
        object.cancel();
        return { base: object.stored, object: null };
      },
      encode: async ({ key, token, signal }, { base, object }, capabilities) => {
        if (base?.token === token && !anew) return { keep: base };
        if (object === null) return tombstone();
        const keeping = await this.#keeping(key, object, capabilities, signal).catch((error) => {
          object.cancel();
          throw error;
        });
        const sizes = this.#sizes(capabilities, signal, object.stored.layout);
        const { storedBytes = 0 } = object;
        const payload = (await isCopied(storedBytes, sizes))
          ? await copiedPayload(storedStream(key, object), storedBytes, sizes)
          : await payloadOf(storedStream(key, object), sizes);
        return { ...keeping, payload, release: () => released(payload) };
      },
    };
  }

  /** As `claim`, for a reader that needs the bytes in any case. */
  claimAndGet(): WriteIntent<FoundWhole> {
    return {
      read: (call) => this.#whole(call),
      encode: async ({ key, token, signal }, { base, object }, capabilities) => {
        if (base?.token === token) return { keep: base };
        if (object?.stored.state !== 'live') return tombstone();
        const { length: bodyBytes } = await contentOf(key, object);
        const keeping = await this.#keeping(key, object, capabilities, signal);
        const sealed = new Uint8Array(object.bytes);
        return { ...keeping, payload: { kind: 'bytes', sealed }, bodyBytes };
      },
    };
  }

  /**
   * Stores the readable part of a damaged object, or `body` in its place.
   *
   * Invariant: the token of `base` is the highest that the object or this process still knows, so
   * no known token is lowered.
   */
  repair(body: Uint8Array | undefined): WriteIntent<FoundDamaged> {
    return {
      read: async ({ key, signal }) => {
        const object = await this.#objects.requests.salvage(key, signal);
        const found = object && (await salvaged(key, object));
        if (object === null || found === null)
          throw new InvalidArgumentError(
            `the object is not damaged, so nothing was written: use put or claim resource=${key}`,
          );
        const known = this.#objects.known.highest(key);
        const token = found.token > known ? found.token : known;
        return { base: { ...object.stored, token }, object, body: found.body };
      },
      encode: async ({ key, signal }, { object, body: old }, capabilities) => {
        const content = body ?? old;
        if (content === null)
          throw new CorruptObjectError(key, 'the body cannot be read any more: pass another one');
        if (body === undefined && content.length === 0 && isTombstone(object)) return tombstone();
        const headers = await keptHeaders(this.#objects.requests, key, object, signal);
        const request = await this.#bodyRequest(content, headers, capabilities, signal);
        return { ...request, kept: object.kept };
      },
    };
  }

  async #whole({ key, signal }: WriteCall): Promise<FoundWhole> {
    const object = await this.#objects.get(key, signal);
    return { base: object?.stored ?? null, object };
  }

  /** The known version, or a `HEAD`. A known version may let a write pass; it may not refuse one. */
  async #base({ key, token, signal }: WriteCall, expected: Expected): Promise<Found> {
    const known = expected === undefined ? this.#objects.known.base(key) : null;
    return { base: known && known.token <= token ? known : await this.#objects.head(key, signal) };
  }

  async #bodyRequest(
    body: Uint8Array,
    headers: Headers,
    capabilities: StoreCapabilities,
    signal: AbortSignal | undefined,
  ): Promise<WriteRequest> {
    const form = formFor(this.#settings, headers.contentType);
    const source = new Source(body, form, signal, () => undefined);
    const payload = await source.payload(this.#sizes(capabilities, signal));
    return { state: 'live', layout: form.layout, payload, headers, bodyBytes: source.bodyBytes };
  }

  /** The request of a claim, without the bytes, which stay as they are. */
  async #keeping(
    key: string,
    object: ObjectFacts,
    { distinctEtags }: StoreCapabilities,
    signal: AbortSignal | undefined,
  ): Promise<Omit<WriteRequest, 'payload'>> {
    const { requests } = this.#objects;
    checkBytesCanStay(key, object, distinctEtags);
    return {
      ...{ state: 'live', layout: object.stored.layout, bodyBytes: bodyBytesOf(object) },
      ...(await keptByClaim(requests, key, object, this.#runtime.nowMs(), signal)),
    };
  }

  /** @throws {UnsupportedByStoreError} if two writes in this layout could have the same ETag. */
  #sizes(
    { distinctEtags }: StoreCapabilities,
    signal: AbortSignal | undefined,
    layout: Layout = this.#settings.layout,
  ): Sizes {
    if (layout === 'plain' && !distinctEtags)
      throw new UnsupportedByStoreError(
        "two writes of the same bytes have the same ETag on this server, so that the token must be in the bytes: use the layout 'gzip'",
      );
    const { partBytes, storedBytesMax } = this.#settings;
    return {
      partBytes,
      storedBytesMax,
      refusal: (path) => this.#prober.refusal(path, layout, signal),
      newSpoolName: () => this.#runtime.writeId(),
    };
  }
}

/** Whether the server copies the parts. A small object is sent, which is quicker than asking. */
async function isCopied(storedBytes: number, { partBytes, refusal }: Sizes): Promise<boolean> {
  if (storedBytes < COPIED_PARTS_MIN * partBytes) return false;
  return (await refusal('upload')) === null && (await refusal('copy')) === null;
}

/** @throws {VersionMismatchError} */
function checkVersion(resource: string, base: Stored | null, expected: Expected): void {
  const found = base?.state === 'live' ? base.version : null;
  if (expected !== undefined && found !== expected)
    throw new VersionMismatchError({ resource, expected, found });
}

function isTombstone({ stored, headers }: WholeObject): boolean {
  return stored.state === 'deleted' || headers.contentType === TOMBSTONE.contentType;
}

/** No value, only the token: the ratchet outlives the value. */
async function tombstone(): Promise<WriteRequest> {
  const sealed = await seal(new Uint8Array(), { layout: 'gzip', gzipLevel: 0 });
  return {
    state: 'deleted',
    layout: 'gzip',
    payload: { kind: 'bytes', sealed },
    headers: TOMBSTONE,
  };
}
