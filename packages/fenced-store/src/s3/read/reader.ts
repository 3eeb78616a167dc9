import { Readable } from 'node:stream';
import { CorruptObjectError, RatchetLostError } from '../../core/errors.js';
import { refuseStale } from '../../core/ratchet.js';
import { collected, slice } from '../codec/pieces.js';
import { tooLarge } from '../http/explain.js';
import type { Current, CurrentStream, Listed, ReadOptions, Settings, Stat } from '../options.js';
import { unlessAborted } from '../runtime.js';
import { bodyBytesOf, contentStream } from './content.js';
import { currentOf, factsOf, originOf, sizesOf } from './current.js';
import { forEachOf, READS_AT_ONCE } from './each.js';
import type { Objects } from './objects.js';

/** The reads of callers. */
export class Reader {
  readonly #objects: Objects;
  readonly #settings: Settings;

  constructor(objects: Objects, settings: Settings) {
    this.#objects = objects;
    this.#settings = settings;
  }

  async current(key: string, options: ReadOptions): Promise<Current | null> {
    const { signal, range } = options;
    if (range === undefined)
      return unlessAborted(currentOf(key, await this.#objects.get(key, signal)), signal);
    const stream = await this.stream(key, undefined, options);
    if (stream === null) return null;
    const { body: pieces, bodyBytes: _, ...current } = stream;
    const { bodyBytesMax } = this.#settings;
    const body = await collected(pieces, bodyBytesMax);
    if (body === null) throw tooLarge(key, bodyBytesMax);
    return { ...current, body };
  }

  async stat(key: string, signal?: AbortSignal): Promise<Stat | null> {
    const object = await this.#objects.head(key, signal);
    return object?.stored.state === 'live' ? { ...factsOf(object), ...sizesOf(object) } : null;
  }

  /** @param token the token that was claimed before */
  async stream(
    key: string,
    token: bigint | undefined,
    { signal, range }: ReadOptions,
  ): Promise<CurrentStream | null> {
    const object = await this.#objects.open(key, signal, range === undefined);
    if (object === null) return null;
    const { stored } = object;
    if (stored.state === 'deleted' || stored.token > (token ?? stored.token)) object.cancel();
    if (token !== undefined) refuseStale(key, token, stored);
    if (stored.state === 'deleted') return null;
    const content = contentStream(key, object);
    const wanted = range ? slice(content, range) : content;
    // One piece ahead: two would be copied into one.
    const body = Readable.from(wanted, { objectMode: false, highWaterMark: 1 });
    // A stream that is never read leaves no request open.
    body.once('close', () => object.cancel());
    return { body, bodyBytes: bodyBytesOf(object), ...factsOf(object) };
  }

  async *list(
    prefix: string,
    pageSize: number,
    signal?: AbortSignal,
  ): AsyncGenerator<Listed, void, undefined> {
    const { requests } = this.#objects;
    let after: string | undefined;
    do {
      const page = await requests.list(prefix, { after, keysMax: pageSize }, signal);
      const keys = page.keys.filter((key) => !key.startsWith(this.#settings.probePrefix));
      const found = await forEachOf(keys, READS_AT_ONCE, (key) => this.#listed(key, signal));
      yield* found.flat();
      after = page.next;
    } while (after !== undefined);
  }

  /** Damage of one object is a fact about that object, so it does not end the listing. */
  async #listed(key: string, signal?: AbortSignal): Promise<readonly Listed[]> {
    try {
      const object = await this.#objects.head(key, signal);
      if (object?.stored.state !== 'live') return [];
      return [{ key, ...originOf(object.stored), ...sizesOf(object) }];
    } catch (error) {
      if (error instanceof CorruptObjectError || error instanceof RatchetLostError)
        return [{ key, damage: error }];
      throw error;
    }
  }
}
