import { InvalidArgumentError, StoreUnavailableError } from '@fenced/store';
import { type Asked, type ProblemDocument, readProblem, unsaid } from './problems.js';
import { encodedPath, segmentsOf } from './protocol/path.js';

/** A request to a gateway. */
export interface Call extends Asked {
  readonly method: 'GET' | 'HEAD' | 'PUT' | 'POST' | 'PATCH' | 'DELETE';
  /** Behind `/v1/`, not encoded. */
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array | AsyncIterable<Uint8Array>;
  readonly signal?: AbortSignal | undefined;
}

export type Answer =
  | { readonly ok: true; readonly response: Response }
  | { readonly ok: false; readonly problem: ProblemDocument };

/** What `fetch` fails with before a connection is there: nothing was sent. */
const NOT_SENT: ReadonlySet<unknown> = new Set([
  ...['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH'],
  ...['UND_ERR_CONNECT_TIMEOUT', 'CERT_HAS_EXPIRED', 'DEPTH_ZERO_SELF_SIGNED_CERT'],
]);

/** Requests to one gateway, or to the load balancer before several. */
export class Calls {
  readonly #base: URL;
  readonly #fetch: typeof fetch;
  readonly #authorization: Readonly<Record<string, string>>;

  /** @throws {InvalidArgumentError} */
  constructor(url: string | URL, key: string | undefined, fetcher: typeof fetch) {
    if (!URL.canParse(String(url)) || !/^https?:$/.test(new URL(url).protocol))
      throw new InvalidArgumentError('url must be that of a gateway, http:// or https://');
    this.#base = new URL(url);
    if (!this.#base.pathname.endsWith('/')) this.#base.pathname += '/';
    this.#fetch = fetcher;
    this.#authorization = key === undefined ? {} : { Authorization: `Bearer ${key}` };
  }

  /**
   * @throws {InvalidArgumentError} for a name that no path can carry
   * @throws {StoreUnavailableError} where nothing was sent, or nothing was written
   * @throws {OutcomeUnknownError} where a write was sent, and no answer came
   * @throws what the body throws, or the signal's reason, where nothing was written for it
   */
  async ask({ method, path, headers, body, signal, ...asked }: Call): Promise<Answer> {
    const target = `v1${pathOf(path)}`;
    signal?.throwIfAborted();
    const source = body && !(body instanceof Uint8Array) ? new Source(body) : null;
    let response: Response;
    try {
      response = await this.#fetch(new URL(target, this.#base), {
        method,
        headers: { ...this.#authorization, ...headers },
        redirect: 'error',
        ...(signal && { signal }),
        ...(source ? { body: source, duplex: 'half' } : body && { body }),
      } as RequestInit);
    } catch (error) {
      if (source?.failure) throw source.failure.error;
      // What was not sent to its end is no request that anybody may act upon.
      if (source?.isWhole === false) throw aborted(signal) ?? unavailable(error);
      if (!asked.isWrite && signal?.aborted) throw signal.reason;
      throw wasNotSent(error)
        ? unavailable(error)
        : unsaid(asked, signal?.aborted ? signal.reason : error);
    }
    if (response.ok) return { ok: true, response };
    return { ok: false, problem: await readProblem(response) };
  }
}

/** A name as it stands in a path. @throws {InvalidArgumentError} */
export function pathOf(name: string): string {
  try {
    const path = `/${encodedPath(name)}`;
    segmentsOf(path);
    return path;
  } catch (error) {
    throw new InvalidArgumentError(
      `no path can carry this name: ${(error as Error).message} name=${JSON.stringify(name)}`,
    );
  }
}

/** A body as it is sent, and what became of it. */
class Source {
  isWhole = false;
  failure: { readonly error: unknown } | null = null;
  readonly #body: AsyncIterable<Uint8Array>;

  constructor(body: AsyncIterable<Uint8Array>) {
    this.#body = body;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array> {
    try {
      yield* this.#body;
      this.isWhole = true;
    } catch (error) {
      this.failure = { error };
      throw error;
    }
  }
}

function wasNotSent(error: unknown): boolean {
  const { cause } = Object(error);
  const causes: unknown[] = cause instanceof AggregateError ? cause.errors : [cause];
  return causes.every((one) => NOT_SENT.has(Object(one).code));
}

function unavailable(cause: unknown): Error {
  return new StoreUnavailableError('the gateway cannot be reached; nothing was written', { cause });
}

function aborted(signal: AbortSignal | undefined): unknown {
  return signal?.aborted ? signal.reason : undefined;
}
