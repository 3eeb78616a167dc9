import { Readable } from 'node:stream';
import { refuseStale } from '../../core/ratchet.js';
import { tooLarge } from '../http/failures.js';
import type { Current, CurrentStream, Listed, ReadOptions, Settings, Stat } from '../options.js';
import { unlessAborted } from '../runtime.js';
import { bodyBytesOf, contentStream } from './content.js';
import { currentOf, headersOf, originOf, sizesOf } from './current.js';
import type { Objects } from './objects.js';
import { slice } from './range.js';
import { forEachOf, READS_AT_ONCE } from './several.js';

/** The reads of callers. */
export class Reader {
  readonly #objects: Objects;
  readonly #settings: Settings;

  constructor(objects: Objects, settings: Settings) {
    this.#objects = objects;
    this.#settings = settings;
  }

  async current(key: string, options: ReadOptions): Promise<Current | null> {
    if (options.range !== undefined) return this.#part(key, options);
    const { signal } = options;
    return unlessAborted(currentOf(key, await this.#objects.get(key, signal)), signal);
  }

  async stat(key: string, signal: AbortSignal | undefined): Promise<Stat | null> {
    const facts = await this.#objects.facts(key, signal);
    if (facts?.stored.state !== 'live') return null;
    return { ...originOf(facts.stored), ...headersOf(facts.headers), ...sizesOf(facts) };
  }

  /** @param token the one that was claimed before */
  async stream(
    key: string,
    token: bigint | undefined,
    { signal, range }: ReadOptions,
  ): Promise<CurrentStream | null> {
    const object = await this.#objects.open(key, signal);
    if (object === null) return null;
    const { stored } = object;
    if (stored.state === 'deleted' || stored.token > (token ?? stored.token)) object.cancel();
    if (token !== undefined) refuseStale(key, token, stored);
    if (stored.state === 'deleted') return null;
    const content = contentStream(key, object);
    const wanted = range ? slice(content, range) : content;
    // One piece ahead: two would be copied into one.
    const body = Readable.from(wanted, { objectMode: false, highWaterMark: 1 });
    // Whoever takes the stream and never reads it leaves no request open.
    body.once('close', () => object.cancel());
    const bodyBytes = bodyBytesOf(object);
    return { body, bodyBytes, ...originOf(stored), ...headersOf(object.headers) };
  }

  async #part(key: string, options: ReadOptions): Promise<Current | null> {
    const stream = await this.stream(key, undefined, options);
    if (stream === null) return null;
    const { body, bodyBytes: _, ...current } = stream;
    const { bodyBytesMax } = this.#settings;
    const pieces: Uint8Array[] = [];
    let bytes = 0;
    for await (const piece of body as AsyncIterable<Uint8Array>) {
      bytes += piece.length;
      if (bytes > bodyBytesMax) throw tooLarge(key, bodyBytesMax);
      pieces.push(piece);
    }
    return { ...current, body: Buffer.concat(pieces) };
  }

  async *list(
    prefix: string,
    pageSize: number,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<Listed, void, undefined> {
    const { requests } = this.#objects;
    let after: string | undefined;
    do {
      const page = await requests.list(prefix, { after, keysMax: pageSize }, signal);
      const keys = page.keys.filter((key) => !key.startsWith(this.#settings.probePrefix));
      const found = await forEachOf(keys, READS_AT_ONCE, async (key) => {
        const facts = await this.#objects.facts(key, signal);
        if (facts?.stored.state !== 'live') return [];
        return [{ key, ...originOf(facts.stored), ...sizesOf(facts) }];
      });
      yield* found.flat();
      after = page.next;
    } while (after !== undefined);
  }
}
