import type { Request } from 'express';
import type { Exchange } from './exchange.js';
import type { JsonValue } from './parts.js';
import { Problem } from './problem.js';
import type { Runtime } from './runtime.js';

/** How the bodies of requests are read. */
export interface BodyLimits {
  readonly bytesMax: number;
  /** How long the next 16 KiB, or what is left, may take. */
  readonly idleTimeoutMs: number;
}

/** A client that sends less than this in `idleTimeoutMs` is cut off. */
const PROGRESS_BYTES: number = 16 * 2 ** 10;

/**
 * The bytes of a body as they come. What is not read stays with the client.
 *
 * @throws {Problem} `body-too-large`, as soon as that is known; `request-timeout`
 */
export async function* bytesOf(
  { request, deadline }: Exchange,
  { bytesMax, idleTimeoutMs }: BodyLimits,
  runtime: Runtime,
): AsyncGenerator<Uint8Array> {
  if (request.get('expect') !== undefined) request.res?.writeContinue();
  // The iterator's own way to end early would take the connection with it, and the answer.
  const pieces = request.iterator({ destroyOnReturn: false });
  let giveUp: (reason: Problem) => void = () => undefined;
  const stalled = (): void => giveUp(new Problem('request-timeout', 'the body came too slowly'));
  let cancel = runtime.after(idleTimeoutMs, stalled);
  deadline.stop();
  let bytes = 0;
  let fresh = 0;
  try {
    for (;;) {
      // Not a race with one promise for all pieces: that would keep them all.
      const next = await new Promise<IteratorResult<Buffer>>((resolve, reject) => {
        giveUp = reject;
        pieces.next().then(resolve, reject);
      });
      deadline.restart();
      if (next.done) return;
      const piece = next.value;
      bytes += piece.length;
      fresh += piece.length;
      if (bytes > bytesMax) throw tooLarge(bytesMax);
      yield piece;
      deadline.stop();
      if (fresh < PROGRESS_BYTES) continue;
      fresh = 0;
      cancel();
      cancel = runtime.after(idleTimeoutMs, stalled);
    }
  } finally {
    cancel();
    // Whoever reads on, to let the client end, could not while this does.
    void pieces.return?.();
  }
}

/** The bytes of an answer as the client takes them; `onStall` is called where it takes too long over one piece. */
export async function* paced(
  body: AsyncIterable<Uint8Array>,
  idleTimeoutMs: number,
  runtime: Runtime,
  onStall: () => void,
): AsyncGenerator<Uint8Array> {
  for await (const piece of body) {
    // The time until the next piece is there is not the client's.
    const cancel = runtime.after(idleTimeoutMs, onStall);
    try {
      yield piece;
    } finally {
      cancel();
    }
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
