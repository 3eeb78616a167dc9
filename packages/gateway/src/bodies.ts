import { setImmediate } from 'node:timers';
import type { Request } from 'express';
import type { Exchange } from './exchange.js';
import type { JsonValue } from './parts.js';
import { Problem } from './problem.js';
import type { Runtime } from './runtime.js';

/** How the bodies of requests are read. */
export interface BodyLimits {
  readonly bytesMax: number;
  readonly pace: PaceLimits;
}

/** The least rate of a body, on average over `idleTimeoutMs`. */
export interface PaceLimits {
  readonly bytesPerSecondMin: number;
  readonly idleTimeoutMs: number;
}

/** The time that a client takes over a body. The time that the gateway or a store takes does not count. */
class Pace {
  readonly #windowMs: number;
  readonly #windowBytes: number;
  readonly #runtime: Runtime;
  #spentMs = 0;
  #bytes = 0;

  constructor({ bytesPerSecondMin, idleTimeoutMs }: PaceLimits, runtime: Runtime) {
    this.#windowMs = idleTimeoutMs;
    this.#windowBytes = Math.max(1, (bytesPerSecondMin * idleTimeoutMs) / 1_000);
    this.#runtime = runtime;
  }

  /** The client's time begins. @returns ends it */
  begin(onSlow: () => void): () => void {
    const startedMs = this.#runtime.nowMs();
    let hasEnded = false;
    const cancel = this.#runtime.after(Math.max(0, this.#windowMs - this.#spentMs), () =>
      // What came while this process was busy is read before an immediate runs.
      setImmediate(() => hasEnded || onSlow()),
    );
    return () => {
      hasEnded = true;
      cancel();
      this.#spentMs += this.#runtime.nowMs() - startedMs;
    };
  }

  /** The client has sent or read so much. */
  moved(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes < this.#windowBytes) return;
    this.#bytes = 0;
    this.#spentMs = 0;
  }
}

/**
 * The bytes of a body as they come. What is not read stays with the client.
 *
 * @throws {Problem} `body-too-large`, as soon as that is known; `request-timeout`
 */
export async function* bytesOf(
  { request, deadline }: Exchange,
  { bytesMax, pace: paceLimits }: BodyLimits,
  runtime: Runtime,
): AsyncGenerator<Uint8Array> {
  // RFC 9110, 10.1.1: a client of HTTP/1.0 would take it for the answer.
  if (request.get('expect') !== undefined && request.httpVersion !== '1.0')
    request.res?.writeContinue();
  // The iterator's own way to end early would take the connection with it, and the answer.
  const pieces = request.iterator({ destroyOnReturn: false });
  const pace = new Pace(paceLimits, runtime);
  let bytes = 0;
  try {
    for (;;) {
      deadline.stop();
      // Not a race with one promise for all pieces: that would keep them all.
      const next = await new Promise<IteratorResult<Buffer>>((resolve, reject) => {
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
    // Whoever reads on, to let the client end, could not while this does.
    void pieces.return?.();
  }
}

/** The bytes of an answer as the client takes them; `onSlow` is called if it takes them too slowly. */
export async function* paced(
  body: AsyncIterable<Uint8Array>,
  limits: PaceLimits,
  runtime: Runtime,
  onSlow: () => void,
): AsyncGenerator<Uint8Array> {
  const pace = new Pace(limits, runtime);
  for await (const piece of body) {
    // The time until the next piece is there is not the client's.
    const end = pace.begin(onSlow);
    try {
      yield piece;
    } finally {
      end();
    }
    pace.moved(piece.length);
  }
}

/** Before anything is read. @throws {Problem} */
export function checkBody(request: Request, bytesMax: number): void {
  const encoding = request.get('content-encoding') ?? 'identity';
  if (encoding.toLowerCase() !== 'identity')
    throw new Problem('unsupported-media-type', 'send bodies without a Content-Encoding');
  if ((declaredBytes(request) ?? 0) > bytesMax) throw tooLarge(bytesMax);
}

/** The length that the client has declared, if it has. */
export function declaredBytes(request: Request): number | undefined {
  const length = request.get('content-length');
  if (length !== undefined) return Number(length);
  return request.get('transfer-encoding') === undefined ? 0 : undefined;
}

/**
 * A body of JSON.
 *
 * @throws {Problem} `unsupported-media-type`, `body-too-large`, `invalid-request`
 */
export async function jsonOf(
  exchange: Exchange,
  limits: BodyLimits,
  runtime: Runtime,
): Promise<JsonValue> {
  const { request } = exchange;
  checkBody(request, limits.bytesMax);
  if (!request.is(['application/json', 'application/*+json']))
    throw new Problem('unsupported-media-type', 'send JSON, with Content-Type: application/json');
  const bytes = Buffer.concat(await Array.fromAsync(bytesOf(exchange, limits, runtime)));
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    return JSON.parse(text, exactNumber as Parameters<typeof JSON.parse>[1]);
  } catch (error) {
    if (error instanceof Problem) throw error;
    throw new Problem('invalid-request', `the body is not JSON: ${(error as Error).message}`);
  }
}

/** A reviver that refuses numbers which would be stored as others. */
function exactNumber(_: string, value: JsonValue, { source = '' }: { source?: string }): JsonValue {
  if (typeof value !== 'number') return value;
  const isKept =
    !/^-?\d+$/.test(source) || String(value) === source || BigInt(value) === BigInt(source);
  if (Number.isFinite(value) && isKept) return value;
  throw new Problem(
    'invalid-request',
    `a number has more digits than can be kept: send it as a string number=${source.slice(0, 40)}`,
  );
}

function tooLarge(bytesMax: number): Problem {
  return new Problem('body-too-large', `the body may have at most ${bytesMax} bytes`, {
    members: { bytesMax },
  });
}
