import { setImmediate } from 'node:timers';
import type { Json } from '@fenced/store/postgres';
import * as z from 'zod';
import type { Exchange } from './exchange.js';
import type { Message } from './message.js';
import { Problem } from './problem.js';
import type { Services } from './services.js';

/** Found in each document with a number that a double may not hold, and in some others. */
const LONG_NUMBER = /[0-9]{16}|[0-9][eE]/;
const JSON_TYPE = /^application\/(?:[\w.-]+\+)?json\s*(?:;|$)/i;

type PaceServices = Pick<Services, 'limits' | 'runtime'>;

/**
 * The least rate at which a client must send or read a body, on average over `idleTimeoutMs`. Time
 * that the gateway or a store takes does not count.
 */
class Pace {
  readonly #windowMs: number;
  readonly #windowBytes: number;
  readonly #runtime: PaceServices['runtime'];
  #spentMs = 0;
  #bytes = 0;

  constructor({ limits: { bytesPerSecondMin, idleTimeoutMs }, runtime }: PaceServices) {
    this.#windowMs = idleTimeoutMs;
    this.#windowBytes = Math.max(1, (bytesPerSecondMin * idleTimeoutMs) / 1_000);
    this.#runtime = runtime;
  }

  /** Starts the client's clock. @returns a function that stops it */
  begin(onSlow: () => void): () => void {
    const startedMs = this.#runtime.nowMs();
    let hasEnded = false;
    const cancel = this.#runtime.after(Math.max(0, this.#windowMs - this.#spentMs), () =>
      // This process may have been busy, with unread bytes that came in time. They are read before
      // an immediate runs.
      setImmediate(() => hasEnded || onSlow()),
    );
    return () => {
      hasEnded = true;
      cancel();
      this.#spentMs += this.#runtime.nowMs() - startedMs;
    };
  }

  /** The client has sent or read this many bytes. */
  moved(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes < this.#windowBytes) return;
    this.#bytes = 0;
    this.#spentMs = 0;
  }
}

/**
 * The bytes of a body as they arrive. Unread bytes stay with the client.
 *
 * @throws {Problem} `body-too-large`, as soon as that is known; `request-timeout`
 */
export async function* bytesOf(
  { message, deadline }: Exchange,
  bytesMax: number,
  services: PaceServices,
): AsyncGenerator<Uint8Array> {
  const pieces = message.open();
  const pace = new Pace(services);
  let bytes = 0;
  try {
    for (;;) {
      deadline.stop();
      // `Promise.race` with one promise for the whole body would keep every piece in memory until
      // that promise settles.
      const next = await new Promise<IteratorResult<Uint8Array>>((resolve, reject) => {
        const end = pace.begin(() =>
          reject(new Problem('request-timeout', 'the body came too slowly')),
        );
        pieces.next().finally(end).then(resolve, reject);
      });
      deadline.restart();
      if (next.done) return;
      bytes += next.value.length;
      pace.moved(next.value.length);
      if (bytes > bytesMax) throw tooLarge(bytesMax);
      yield next.value;
    }
  } finally {
    // The gate discards the rest of the body, so that the client can finish. This iterator must
    // release the body first.
    void pieces.return?.();
  }
}

/** The bytes of an answer. Calls `onSlow` if the client reads them too slowly. */
export async function* paced(
  body: AsyncIterable<Uint8Array>,
  services: PaceServices,
  onSlow: () => void,
): AsyncGenerator<Uint8Array> {
  const pace = new Pace(services);
  for await (const piece of body) {
    // The time in which the store fetches the next piece does not count.
    const end = pace.begin(onSlow);
    try {
      yield piece;
    } finally {
      end();
    }
    pace.moved(piece.length);
  }
}

/** Checks a body's headers. @throws {Problem} `unsupported-media-type`, `body-too-large` */
export function checkBody(request: Message, bytesMax: number): void {
  const encoding = request.get('content-encoding') ?? 'identity';
  if (encoding.toLowerCase() !== 'identity')
    throw new Problem('unsupported-media-type', 'send bodies without a Content-Encoding');
  if ((declaredBytes(request) ?? 0) > bytesMax) throw tooLarge(bytesMax);
}

/** The length that the client declared; undefined if it sends chunks. */
export function declaredBytes(request: Message): number | undefined {
  const length = request.get('content-length');
  if (length !== undefined) return Number(length);
  return request.get('transfer-encoding') === undefined ? 0 : undefined;
}

/**
 * A body of JSON that fits the schema.
 *
 * @throws {Problem} as {@link jsonBytesOf} and {@link parsedAs}
 */
export async function jsonOf<Value>(
  exchange: Exchange,
  services: PaceServices,
  schema: z.ZodType<Value>,
): Promise<Value> {
  return parsedAs(schema, await jsonBytesOf(exchange, services));
}

/** The bytes of a JSON body. @throws {Problem} `unsupported-media-type`, `body-too-large` */
export async function jsonBytesOf(exchange: Exchange, services: PaceServices): Promise<Uint8Array> {
  const { message } = exchange;
  const { recordBytesMax } = services.limits;
  checkBody(message, recordBytesMax);
  if (!JSON_TYPE.test(message.get('content-type') ?? ''))
    throw new Problem('unsupported-media-type', 'send JSON, with Content-Type: application/json');
  return Buffer.concat(await Array.fromAsync(bytesOf(exchange, recordBytesMax, services)));
}

/** @throws {Problem} `invalid-request` */
export function parsedAs<Value>(schema: z.ZodType<Value>, bytes: Uint8Array): Value {
  const { data, error } = schema.safeParse(parsed(bytes));
  if (error === undefined) return data as Value;
  const complaints = error.issues.map(({ path, message }) =>
    [z.core.toDotPath(path), message].filter(Boolean).join(': '),
  );
  throw new Problem('invalid-request', `the body does not fit: ${complaints.join('; ')}`);
}

function parsed(bytes: Uint8Array): Json {
  try {
    // Without `ignoreBOM`, a leading U+FEFF would silently be left out.
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    if (text.startsWith('\ufeff'))
      throw new Problem('invalid-request', 'send the JSON without a byte order mark (U+FEFF)');
    // With a reviver, 700 kB took nine times as long. Most documents have no such number.
    if (!LONG_NUMBER.test(text)) return JSON.parse(text) as Json;
    return JSON.parse(text, kept as Parameters<typeof JSON.parse>[1]);
  } catch (error) {
    if (error instanceof Problem) throw error;
    throw new Problem('invalid-request', `the body is not JSON: ${(error as Error).message}`);
  }
}

/**
 * A reviver that refuses a number which would not come back as it was sent. Fractions are rounded
 * to the nearest double, as RFC 8259 advises.
 */
function kept(_: string, value: Json, { source = '' }: { source?: string }): Json {
  if (typeof value !== 'number' || isKept(value, source)) return value;
  throw new Problem(
    'invalid-request',
    `a number does not fit into a double: send it as a string number=${source.slice(0, 40)}`,
  );
}

function isKept(value: number, source: string): boolean {
  if (!Number.isFinite(value)) return false;
  // A number that is no zero may not become one.
  if (value === 0) return !/^[^eE]*[1-9]/.test(source);
  return !/^-?\d+$/.test(source) || String(value) === source || BigInt(value) === BigInt(source);
}

function tooLarge(bytesMax: number): Problem {
  return new Problem('body-too-large', `the body may have at most ${bytesMax} bytes`, {
    members: { bytesMax },
  });
}
