import {
  CorruptObjectError,
  InvalidArgumentError,
  VersionMismatchError,
} from '../../core/errors.js';
import type { Layout, Stored } from '../../core/stored.js';
import { bodyBytes, checkHeaders, editOf, type Headers } from '../arguments.js';
import { encode, encodingFor } from '../codec/encode.js';
import { TOMBSTONE } from '../http/put.js';
import type { ObjectHead, OpenObject, WholeObject } from '../http/requests.js';
import type { Current, Edit } from '../options.js';
import { checkLayout } from '../probe/prober.js';
import { bodyBytesOf, contentOf, salvaged, storedStream } from '../read/content.js';
import { currentOf } from '../read/current.js';
import { BodySource, copiedPayload, payloadOf, released, type SendLimits } from './body-source.js';
import type { Found, WriteCall, WriteIntent, WriteRequest, WriteServices } from './intent.js';
import { checkBytesCanStay, preservedByClaim, preservedHeaders, preservedOf } from './preserve.js';

/** If an object has fewer parts, a claim reads and sends it. Otherwise, the server copies it. */
const COPIED_PARTS_MIN = 4;

/** The version that a write may replace: null for no value, undefined for any version. */
type Expected = string | null | undefined;

interface FoundWhole extends Found {
  readonly object: WholeObject | null;
}

interface FoundOpen extends Found {
  /** Null if the write does not need its body. */
  readonly object: OpenObject | null;
}

interface FoundDamaged extends Found {
  readonly object: WholeObject;
  /** Null if no part of it can be read. */
  readonly body: Uint8Array | null;
}

/** Makes the intents of all kinds of writes. */
export class WriteIntents {
  readonly #services: WriteServices;

  constructor(services: WriteServices) {
    this.#services = services;
  }

  /** Stores a body instead of the current value. */
  put(source: BodySource, headers: Headers, expected: Expected): WriteIntent {
    return {
      read: (call) => this.#base(call, expected),
      encode: async (call, { base }) => {
        checkVersion(call.key, base, expected);
        return this.#request(call, source, headers);
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
      encode: async (call, { object }) => {
        const current = await currentOf(call.key, object);
        const { body, ...given } = editOf(await edit(current));
        const headers = checkHeaders(given);
        const bytes = bodyBytes(body);
        const replaced = current && object;
        return this.#replacing(call, replaced, bytes, headers);
      },
    };
  }

  /**
   * Keeps the value, under this token. A large object is copied by the server, or sent again piece
   * by piece.
   *
   * @param anew true to write the object once more, even if it already has the token
   */
  claim(anew = false): WriteIntent<FoundOpen> {
    return {
      read: async ({ key, token, signal }) => {
        const { objects } = this.#services;
        const isRead = (stored: Stored | undefined): boolean =>
          stored?.state === 'live' && (stored.token < token || (anew && stored.token === token));
        const base = await objects.stamp(key, signal);
        if (base === null || !isRead(base)) return { base, object: null };
        const object = await objects.open(key, signal, false);
        if (object && isRead(object.stored)) return { base: object.stored, object };
        object?.cancel();
        return { base: object?.stored ?? null, object: null };
      },
      encode: async (call, { base, object }) => {
        const { key, token } = call;
        if (base?.token === token && !anew) return { keep: base };
        if (object === null) return tombstone();
        try {
          const keeping = await this.#keeping(call, object);
          const limits = await this.#limits(call, object.stored.layout);
          const { ContentLength: storedBytes = 0 } = object.reply;
          const payload = (await isCopied(storedBytes, limits))
            ? await copiedPayload(storedStream(key, object), storedBytes, limits)
            : await payloadOf(storedStream(key, object), limits);
          return { ...keeping, payload, release: () => released(payload) };
        } catch (error) {
          object.cancel();
          throw error;
        }
      },
    };
  }

  /** Keeps the value as `claim` does, for a reader that needs the bytes in any case. */
  claimAndGet(): WriteIntent<FoundWhole> {
    return {
      read: (call) => this.#whole(call),
      encode: async (call, { base, object }) => {
        if (base?.token === call.token) return { keep: base };
        if (object?.stored.state !== 'live') return tombstone();
        const { length: bodyBytes } = await contentOf(call.key, object);
        const keeping = await this.#keeping(call, object);
        const encoded = new Uint8Array(object.bytes);
        return { ...keeping, payload: { kind: 'bytes', encoded }, bodyBytes };
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
    const { objects } = this.#services;
    return {
      read: async ({ key, signal }) => {
        const object = await objects.requests.salvage(key, signal);
        const found = object && (await salvaged(key, object));
        if (object === null || found === null)
          throw new InvalidArgumentError(
            `the object is not damaged, so nothing was written: use put or claim resource=${key}`,
          );
        const known = objects.lastSeen.highest(key);
        const token = found.token > known ? found.token : known;
        return { base: { ...object.stored, token }, object, body: found.body };
      },
      encode: async (call, { object, body: old }) => {
        const content = body ?? old;
        if (content === null)
          throw new CorruptObjectError(
            call.key,
            'the body cannot be read any more: pass another one',
          );
        if (body === undefined && content.length === 0 && isTombstone(object)) return tombstone();
        return this.#replacing(call, object, content, {});
      },
    };
  }

  async #whole({ key, signal }: WriteCall): Promise<FoundWhole> {
    const object = await this.#services.objects.get(key, signal);
    return { base: object?.stored ?? null, object };
  }

  /**
   * The version that this process saw last, or that of a `HEAD`. The former may be outdated. So if
   * it would refuse the write, a `HEAD` decides.
   */
  async #base({ key, token, signal }: WriteCall, expected: Expected): Promise<Found> {
    const { lastSeen } = this.#services.objects;
    const known = lastSeen.base(key);
    const isWanted = expected === undefined || known?.version === expected;
    if (known && isWanted && known.token <= token) return { base: known };
    return { base: await this.#services.objects.stamp(key, signal) };
  }

  /** A new body, with the headers of the object that it replaces, except for those given. */
  async #replacing(
    call: WriteCall,
    object: WholeObject | null,
    body: Uint8Array,
    given: Headers,
  ): Promise<WriteRequest> {
    const { settings, objects } = this.#services;
    const { key, signal } = call;
    const old = object && (await preservedHeaders(objects.requests, key, object, signal));
    const headers = { ...old, ...given };
    const source = new BodySource(body, encodingFor(settings, headers.contentType), signal);
    const request = await this.#request(call, source, headers);
    return { ...request, ...(object && { preserved: preservedOf(object.reply) }) };
  }

  async #request(call: WriteCall, source: BodySource, headers: Headers): Promise<WriteRequest> {
    const { layout } = this.#services.settings;
    const payload = await source.payload(await this.#limits(call, layout));
    return { state: 'live', layout, payload, headers, bodyBytes: source.bodyBytes };
  }

  /** The request of a claim, without the bytes, which stay as they are. */
  async #keeping(
    { key, signal }: WriteCall,
    object: ObjectHead,
  ): Promise<Omit<WriteRequest, 'payload'>> {
    const { objects, prober, runtime } = this.#services;
    const { distinctEtags } = await prober.capabilities({ signal });
    checkBytesCanStay(key, object, distinctEtags);
    return {
      state: 'live',
      layout: object.stored.layout,
      bodyBytes: bodyBytesOf(object),
      ...(await preservedByClaim(objects.requests, key, object, runtime.wallClockMs(), signal)),
    };
  }

  /** @throws {UnsupportedByStoreError} if two writes in this layout could have the same ETag. */
  async #limits({ signal }: WriteCall, layout: Layout): Promise<SendLimits> {
    const { settings, prober, runtime } = this.#services;
    checkLayout(layout, await prober.capabilities({ signal }));
    const { partBytes, storedBytesMax } = settings;
    return {
      partBytes,
      storedBytesMax,
      newSpoolName: () => runtime.writeId(),
      refusal: (path) => prober.refusal(path, layout, signal),
    };
  }
}

/** True if the server copies the parts. A small object is sent again, which is quicker. */
async function isCopied(storedBytes: number, { partBytes, refusal }: SendLimits): Promise<boolean> {
  if (storedBytes < COPIED_PARTS_MIN * partBytes) return false;
  return (await refusal('upload')) === null && (await refusal('copy')) === null;
}

/** @throws {VersionMismatchError} */
function checkVersion(resource: string, base: Stored | null, expected: Expected): void {
  const found = base?.state === 'live' ? base.version : null;
  if (expected !== undefined && found !== expected)
    throw new VersionMismatchError({ resource, expected, found });
}

function isTombstone({ stored, reply }: WholeObject): boolean {
  return stored.state === 'deleted' || reply.ContentType === TOMBSTONE.contentType;
}

/** No value, only the token: the ratchet outlives the value. */
async function tombstone(): Promise<WriteRequest> {
  const encoded = await encode(new Uint8Array(), { layout: 'gzip', gzipLevel: 0 });
  return {
    state: 'deleted',
    layout: 'gzip',
    payload: { kind: 'bytes', encoded },
    headers: TOMBSTONE,
  };
}
