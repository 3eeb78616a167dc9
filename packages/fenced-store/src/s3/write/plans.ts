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
import { bodyBytesOf, contentOf, salvaged, storedStream } from '../read/content.js';
import { currentOf } from '../read/current.js';
import { checkBytesCanStay, keptByClaim, keptHeaders } from './kept.js';
import { copiedPayload, payloadOf, released, type Sizes, Source } from './payload.js';
import type { Draft, Plan } from './plan.js';
import type { Writer } from './writer.js';

/** An object of fewer parts is read and sent again. */
const COPIED_PARTS_MIN = 4;

/** The kinds of writes: what each looks at, and what it then wants stored. */
export class Plans {
  readonly #writer: Writer;
  readonly #settings: Settings;

  constructor(writer: Writer, settings: Settings) {
    this.#writer = writer;
    this.#settings = settings;
  }

  /** Whatever is there, this shall be. */
  put(
    key: string,
    token: bigint,
    source: Source,
    headers: Headers,
    { expected, signal }: Upon,
  ): Plan<{ readonly base: Stored | null }> {
    return {
      look: () => this.#base(key, token, { expected, signal }),
      draft: async ({ base }, capabilities) => {
        checkVersion(key, base, expected);
        const payload = await source.payload(this.#sizes(capabilities, signal));
        const { bodyBytes } = source;
        return { state: 'live', layout: this.#settings.layout, payload, headers, bodyBytes };
      },
    };
  }

  /** Whatever is there, nothing shall be but the token. */
  remove(
    key: string,
    token: bigint,
    { expected, signal }: Upon,
  ): Plan<{ readonly base: Stored | null }> {
    return {
      look: () => this.#base(key, token, { expected, signal }),
      draft: async ({ base }) => {
        checkVersion(key, base, expected);
        return tombstone();
      },
    };
  }

  /** What `edit` makes of what is there. */
  update(
    key: string,
    edit: (current: Current | null) => Edit | Promise<Edit>,
    signal: AbortSignal | undefined,
  ): Plan<{ readonly base: Stored | null; readonly object: WholeObject | null }> {
    return {
      look: () => this.#whole(key, signal),
      draft: async ({ object }, capabilities) => {
        const current = await currentOf(key, object);
        const edited = await edit(current);
        const { body, ...given } =
          typeof edited === 'string' || edited instanceof Uint8Array
            ? { body: edited }
            : { ...edited };
        const keeps = object !== null && current !== null;
        const old = keeps ? await keptHeaders(this.#writer.requests, key, object, signal) : {};
        const headers = { ...old, ...checkHeaders(given) };
        const form = formFor(this.#settings, headers.contentType);
        const source = new Source(bodyBytes(body), form, signal, () => undefined);
        const payload = await source.payload(this.#sizes(capabilities, signal));
        return {
          ...{ state: 'live', layout: form.layout, payload, headers },
          ...(keeps && { kept: object.kept }),
          bodyBytes: source.bodyBytes,
        };
      },
    };
  }

  /**
   * What is there stays, under this token. A large object is copied by the server, or passes through in pieces.
   *
   * @param anew whether it is written even if it has this token already
   */
  claim(
    key: string,
    token: bigint,
    signal: AbortSignal | undefined,
    anew = false,
  ): Plan<{ readonly base: Stored | null; readonly object: OpenObject | null }> {
    return {
      look: async () => {
        const base = await this.#writer.head(key, signal);
        const isWanted = (stored: Stored): boolean =>
          stored.state === 'live' && (stored.token < token || (anew && stored.token === token));
        if (base === null || !isWanted(base)) return { base, object: null };
        const object = await this.#writer.open(key, signal);
        if (object === null || isWanted(object.stored))
          return { base: object?.stored ?? null, object };
        object.cancel();
        return { base: object.stored, object: null };
      },
      draft: async ({ base, object }, capabilities) => {
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

  /** As `claim`, for a reader who wants the bytes in any case. */
  claimAndGet(
    key: string,
    token: bigint,
    signal: AbortSignal | undefined,
  ): Plan<{ readonly base: Stored | null; readonly object: WholeObject | null }> {
    return {
      look: () => this.#whole(key, signal),
      draft: async ({ base, object }, capabilities) => {
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
   * What can still be read of a damaged object, under this token; or `body` in its place.
   *
   * Invariant: a token that object or process still know is not lowered, since it is the one of `base`.
   */
  repair(
    key: string,
    body: Uint8Array | undefined,
    signal: AbortSignal | undefined,
  ): Plan<{ readonly base: Stored | null; readonly damaged: Damaged }> {
    return {
      look: async () => {
        const object = await this.#writer.requests.salvage(key, signal);
        const found = object && (await salvaged(key, object));
        if (object === null || found === null)
          throw new InvalidArgumentError(
            `the object is not damaged, so nothing was written: use put or claim resource=${key}`,
          );
        const known = this.#writer.known.highest(key);
        const token = found.token > known ? found.token : known;
        return { base: { ...object.stored, token }, damaged: { object, body: found.body } };
      },
      draft: async ({ damaged }, capabilities) => {
        const { object, body: old } = damaged;
        const content = body ?? old;
        if (content === null)
          throw new CorruptObjectError(key, 'the body cannot be read any more: pass another one');
        if (body === undefined && content.length === 0 && isTombstone(object)) return tombstone();
        const headers = await keptHeaders(this.#writer.requests, key, object, signal);
        const form = formFor(this.#settings, headers.contentType);
        const source = new Source(content, form, signal, () => undefined);
        const payload = await source.payload(this.#sizes(capabilities, signal));
        const { bodyBytes } = source;
        return {
          ...{ state: 'live', layout: form.layout, payload, headers, kept: object.kept },
          bodyBytes,
        };
      },
    };
  }

  async #whole(key: string, signal: AbortSignal | undefined) {
    const object = await this.#writer.get(key, signal);
    return { base: object?.stored ?? null, object };
  }

  /** What a write that replaces everything may be put upon. */
  async #base(key: string, token: bigint, { expected, signal }: Upon) {
    // What is remembered may let a write pass, which the server then checks; it may not refuse one.
    const known = expected === undefined ? this.#writer.known.base(key) : null;
    return { base: known && known.token <= token ? known : await this.#writer.head(key, signal) };
  }

  /** What is sent with the bytes of an object that stay as they are. */
  async #keeping(
    key: string,
    object: ObjectFacts,
    { distinctEtags }: StoreCapabilities,
    signal: AbortSignal | undefined,
  ): Promise<Omit<Draft, 'payload'>> {
    const { requests, runtime } = this.#writer;
    checkBytesCanStay(key, object, distinctEtags);
    return {
      ...{ state: 'live', layout: object.stored.layout, bodyBytes: bodyBytesOf(object) },
      ...(await keptByClaim(requests, key, object, runtime.nowMs(), signal)),
    };
  }

  /** @throws {UnsupportedByStoreError} where two writes in this layout could not be told apart. */
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
      refusal: (path) => this.#writer.prober.refusal(path, layout, signal),
      newSpoolName: () => this.#writer.runtime.writeId(),
    };
  }
}

/** Whether the server copies what it stores; a small object is sooner sent than that is found out. */
async function isCopied(storedBytes: number, { partBytes, refusal }: Sizes): Promise<boolean> {
  if (storedBytes < COPIED_PARTS_MIN * partBytes) return false;
  return (await refusal('upload')) === null && (await refusal('copy')) === null;
}

/** What a write that replaces everything may be put upon: undefined, whatever is there. */
export interface Upon {
  readonly expected: string | null | undefined;
  readonly signal: AbortSignal | undefined;
}

/** @throws {VersionMismatchError} */
function checkVersion(resource: string, base: Stored | null, expected: Upon['expected']): void {
  const found = base?.state === 'live' ? base.version : null;
  if (expected !== undefined && found !== expected)
    throw new VersionMismatchError({ resource, expected, found });
}

/** A damaged object, with its body if that can still be read. */
interface Damaged {
  readonly object: WholeObject;
  readonly body: Uint8Array | null;
}

function isTombstone({ stored, headers }: WholeObject): boolean {
  return stored.state === 'deleted' || headers.contentType === TOMBSTONE.contentType;
}

/** Nothing but the token: the ratchet outlives the value. */
async function tombstone(): Promise<Draft> {
  const sealed = await seal(new Uint8Array(), { layout: 'gzip', gzipLevel: 0 });
  return {
    state: 'deleted',
    layout: 'gzip',
    payload: { kind: 'bytes', sealed },
    headers: TOMBSTONE,
  };
}
