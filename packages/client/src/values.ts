import {
  ConflictError,
  type Settlement,
  type TokenLike,
  VersionMismatchError,
} from '@fenced/store';
import type { GatewayHttp, GatewayRequest } from './http.js';
import { errorOf, idOf, unknownWrite } from './problems.js';
import type { Runtime } from './runtime.js';
import type { SignedTokens } from './signed-tokens.js';

const BACKOFF_BASE_MS = 5;
const BACKOFF_MAX_MS = 500;

interface CallOptions {
  readonly signal?: AbortSignal | undefined;
}

interface TokenOptions extends CallOptions {
  readonly token: TokenLike;
}

type Sent = Pick<GatewayRequest, 'headers' | 'body'>;

/** The values of one store behind a gateway. Objects and records have the same routes. */
export class Values {
  readonly #kind: 'objects' | 'records';
  readonly #http: GatewayHttp;
  readonly #tokens: SignedTokens;
  readonly #runtime: Runtime;

  constructor(
    kind: 'objects' | 'records',
    http: GatewayHttp,
    tokens: SignedTokens,
    runtime: Runtime,
  ) {
    this.#kind = kind;
    this.#http = http;
    this.#tokens = tokens;
    this.#runtime = runtime;
  }

  /** The response with the value; null if there is none. */
  async read(
    key: string,
    { signal }: CallOptions,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<Response | null> {
    const request = { ...this.#readOf('GET', key, signal), headers };
    const answer = await this.#http.ask(request);
    if (answer.ok) return answer.response;
    if (answer.problem.code === 'not-found') return null;
    // A range after the end of the body is empty. So the result is the answer to HEAD, which has no
    // body.
    if (answer.problem.code === 'range-not-satisfiable') return this.head(key, { signal });
    throw errorOf(answer.problem, request);
  }

  /**
   * The headers of a read; null if nothing is stored. A refused HEAD has no body that says why, so
   * a GET follows, whose problem is thrown.
   */
  async head(key: string, { signal }: CallOptions): Promise<Response | null> {
    const answer = await this.#http.ask(this.#readOf('HEAD', key, signal));
    if (answer.ok) return answer.response;
    const response = await this.read(key, { signal });
    await response?.body?.cancel();
    return response;
  }

  async claim(key: string, options: TokenOptions): Promise<void> {
    await this.#http.send(this.#claimOf(key, 'claim', options));
  }

  async claimAndRead(key: string, options: TokenOptions): Promise<Response | null> {
    const request = this.#claimOf(key, 'claim-and-get', options);
    const answer = await this.#http.ask(request);
    if (answer.ok) return answer.response;
    if (answer.problem.code === 'not-found') return null;
    throw errorOf(answer.problem, request);
  }

  /**
   * @throws {OutcomeUnknownError} if the answer was cut off: the write was applied under an unknown
   *   id
   */
  async write(
    method: 'PUT' | 'DELETE',
    key: string,
    { token: presented, signal }: TokenOptions,
    { headers, body }: Sent,
  ): Promise<{
    readonly token: bigint;
    readonly version: string | null;
    readonly writeId: string;
  }> {
    const { token, headers: own } = this.#tokens.present(presented, key);
    const response = await this.#http.send({
      method,
      path: `${this.#kind}/${key}`,
      resource: key,
      token,
      isWrite: true,
      headers: { ...headers, ...own },
      body,
      signal,
    });
    try {
      const { version, writeId } = (await response.json()) as Record<'version' | 'writeId', string>;
      return { token, version, writeId: idOf(writeId) };
    } catch (cause) {
      throw unknownWrite(key, '', cause);
    }
  }

  /** Reads, edits and writes. If another write came between, does so again. */
  async update<Current, Next, Written>(
    resource: string,
    { attemptsMax, signal }: { readonly attemptsMax: number } & CallOptions,
    steps: {
      read(): Promise<Current | null>;
      edit(current: Current | null): Promise<Next>;
      put(next: Next, current: Current | null): Promise<Written>;
    },
  ): Promise<Written> {
    for (let attempt = 1; ; attempt++) {
      const current = await steps.read();
      const next = await steps.edit(current);
      try {
        return await steps.put(next, current);
      } catch (error) {
        if (!(error instanceof VersionMismatchError || error instanceof ConflictError)) throw error;
        if (attempt >= attemptsMax) throw new ConflictError({ resource, attempts: attempt });
      }
      // Random, and longer with each attempt, so that writers that collided once do not collide
      // again.
      const ceilingMs = Math.min(BACKOFF_MAX_MS, BACKOFF_BASE_MS * 2 ** attempt);
      await this.#runtime.sleep(this.#runtime.random() * ceilingMs, signal);
    }
  }

  async highest(kind: 's3' | 'records', key: string, { signal }: CallOptions): Promise<bigint> {
    const path = `ratchets/${kind}/${key}`;
    const response = await this.#http.send({
      method: 'GET',
      path,
      resource: key,
      isWrite: false,
      signal,
    });
    return BigInt(((await response.json()) as { readonly token: string }).token);
  }

  /** @param id the `writeId` of an {@link OutcomeUnknownError} */
  async settle(id: string, key: string, { signal }: CallOptions): Promise<Settlement> {
    const path = `writes/${this.#kind}.${id}.${Buffer.from(key).toString('base64url')}`;
    const response = await this.#http.send({
      method: 'GET',
      path,
      resource: key,
      isWrite: false,
      signal,
    });
    return ((await response.json()) as { readonly outcome: Settlement }).outcome;
  }

  #readOf(method: 'GET' | 'HEAD', key: string, signal: AbortSignal | undefined): GatewayRequest {
    return { method, path: `${this.#kind}/${key}`, resource: key, isWrite: false, signal };
  }

  #claimOf(
    key: string,
    action: 'claim' | 'claim-and-get',
    { token: presented, signal }: TokenOptions,
  ): GatewayRequest {
    const { token, headers } = this.#tokens.present(presented, key);
    const path = `${this.#kind}/${key}/${action}`;
    return { method: 'POST', path, resource: key, token, isWrite: true, signal, headers };
  }
}

/** The condition of a write that expects a version, or none. */
export function conditionOf(expected: string | null | undefined): Record<string, string> {
  if (expected === undefined) return {};
  return expected === null ? { 'If-None-Match': '*' } : { 'If-Match': `"${expected}"` };
}
