import { InvalidArgumentError, StoreUnavailableError } from '@fenced/store';
import { shown } from '@fenced/store/internal';
import { errorOf, noAnswer, type ProblemDocument, readProblem, type Subject } from './problems.js';
import { checkName, encodedPath } from './protocol/path.js';

/** A request to a gateway. */
export interface GatewayRequest extends Subject {
  readonly method: 'GET' | 'HEAD' | 'PUT' | 'POST' | 'PATCH' | 'DELETE';
  /** The part after `/v1/`, not percent-encoded. */
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array | AsyncIterable<Uint8Array> | undefined;
  readonly signal?: AbortSignal | undefined;
}

export type Answer =
  | { readonly ok: true; readonly response: Response }
  | { readonly ok: false; readonly problem: ProblemDocument };

/** Errors of `fetch` before there is a connection: nothing was sent. */
const NOT_SENT: ReadonlySet<unknown> = new Set([
  ...['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH'],
  ...['UND_ERR_CONNECT_TIMEOUT', 'CERT_HAS_EXPIRED', 'DEPTH_ZERO_SELF_SIGNED_CERT'],
]);

/** Requests to one gateway, or to the load balancer before several. */
export class GatewayHttp {
  readonly #base: URL;
  readonly #fetch: typeof fetch;
  readonly #authorization: Readonly<Record<string, string>>;

  /** @throws {InvalidArgumentError} */
  constructor(url: string | URL, key: string | undefined, fetcher: typeof fetch) {
    if (!URL.canParse(String(url)) || !/^https?:$/.test(new URL(url).protocol))
      throw new InvalidArgumentError(
        `url must be the address of a gateway, http:// or https:// value=${String(url).slice(0, 80)}`,
      );
    this.#base = new URL(url);
    if (!this.#base.pathname.endsWith('/')) this.#base.pathname += '/';
    this.#fetch = fetcher;
    this.#authorization = key === undefined ? {} : { Authorization: `Bearer ${key}` };
  }

  /**
   * @throws {InvalidArgumentError} for a name that no path can carry
   * @throws {StoreUnavailableError} if nothing was sent, or a read got no answer
   * @throws {OutcomeUnknownError} if a write was sent, and no answer came
   * @throws the error of the body's source, or the signal's reason; in both cases, nothing was
   *   written
   */
  async ask(request: GatewayRequest): Promise<Answer> {
    const { method, path, headers, body, signal } = request;
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
      const reason: unknown = signal?.aborted ? signal.reason : undefined;
      // No server may act on a request whose body was not sent to its end. So nothing was written.
      if (source?.isWhole === false) throw reason ?? this.#unavailable(error);
      if (!request.isWrite && signal?.aborted) throw reason;
      throw wasNotSent(error) ? this.#unavailable(error) : noAnswer(request, reason ?? error);
    }
    if (response.ok) return { ok: true, response };
    return { ok: false, problem: await readProblem(response) };
  }

  #unavailable(cause: unknown): Error {
    const { message, code } = Object(Object(cause).cause ?? cause);
    return new StoreUnavailableError(
      `the gateway at ${this.#base.origin} cannot be reached, and nothing was written: ${message || code}`,
      { cause },
    );
  }

  /**
   * Returns the response if the request succeeded.
   *
   * @throws the error that the store itself would throw, and those of `ask`
   */
  async send(request: GatewayRequest): Promise<Response> {
    const answer = await this.ask(request);
    if (answer.ok) return answer.response;
    throw errorOf(answer.problem, request);
  }
}

/** A name as it stands in a path. @throws {InvalidArgumentError} */
export function pathOf(name: string): string {
  if (typeof name !== 'string' || name === '')
    throw new InvalidArgumentError(`a name must be a non-empty string value=${shown(name)}`);
  try {
    checkName(name);
    return `/${encodedPath(name)}`;
  } catch (error) {
    throw new InvalidArgumentError(
      `no path can carry this name: ${(error as Error).message} name=${JSON.stringify(name)}`,
    );
  }
}

/** A streamed body. Remembers its error, and whether it was read to its end. */
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
