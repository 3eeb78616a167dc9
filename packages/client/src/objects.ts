import { Readable } from 'node:stream';
import {
  ConflictError,
  InvalidArgumentError,
  OutcomeUnknownError,
  StaleTokenError,
  StoreUnavailableError,
  UnsupportedByStoreError,
  VersionMismatchError,
} from '@fenced/store';
import {
  bodyBytes,
  checkAttempts,
  checkCall,
  checkExpected,
  checkFunction,
  checkHeaders,
  checkObject,
  checkRead,
  readEach,
  slice,
} from '@fenced/store/internal';
import type {
  CallOptions,
  Current,
  CurrentStream,
  Edit,
  FencedS3,
  Headers,
  PutOptions,
  ReadOptions,
  ReplaceOptions,
  S3Body,
  Settlement,
  SettleOptions,
  Stat,
  StoredHeaders,
  TokenOptions,
  UpdateOptions,
  Written,
} from '@fenced/store/s3';
import { backOff, settlementOf, writeIn } from './answers.js';
import { type Answer, type Call, type Calls, pathOf } from './calls.js';
import { errorOf, idOf } from './problems.js';
import type { Runtime } from './runtime.js';
import type { Presented, SignedTokens } from './signed-tokens.js';

/** What a `FencedS3` does that goes over HTTP: all but what only its operator may do. */
export type Objects = Pick<
  FencedS3,
  | 'put'
  | 'update'
  | 'get'
  | 'getStream'
  | 'stat'
  | 'claim'
  | 'claimAndGet'
  | 'claimAndGetStream'
  | 'delete'
  | 'highest'
  | 'settle'
>;

/** What of a body is wanted. */
type Wanted = Pick<ReadOptions, 'signal' | 'range'>;

const UNSETTLED_MAX = 1_000;
const META = 'fencing-meta-';
const META_OUT = 'Fencing-Meta-';

/** The objects of a bucket, behind a gateway. Methods, options and errors are those of `FencedS3`. */
export class GatewayObjects implements Objects {
  readonly #calls: Calls;
  readonly #tokens: SignedTokens;
  readonly #attemptsMax: number;
  readonly #runtime: Runtime;
  /** The keys of writes whose outcome is unknown, by their ids. */
  readonly #unsettled = new Map<string, string>();

  /** Made by `objects` of FencedGateway. */
  constructor(calls: Calls, tokens: SignedTokens, attemptsMax: number, runtime: Runtime) {
    this.#calls = calls;
    this.#tokens = tokens;
    this.#attemptsMax = attemptsMax;
    this.#runtime = runtime;
  }

  /** As `put` of `FencedS3`. A stream is sent as it comes, and never held in memory. Without tags, storage classes and Object Lock. */
  async put(key: string, body: S3Body, options: PutOptions): Promise<Written> {
    checkCall(options);
    const headers = checkHeaders(options);
    const { onProgress, expected, signal, bodyBytes: declaredBytes } = options;
    if (onProgress !== undefined) checkFunction('onProgress', onProgress);
    checkExpected(expected);
    const content = contentOf(body, (bytes) =>
      onProgress?.({ bodyBytes: bytes, storedBytes: bytes }),
    );
    const length = content instanceof Uint8Array ? undefined : declaredBytes;
    return this.#write(key, options, {
      ...{ method: 'PUT', body: content, signal },
      headers: {
        ...requestHeaders(headers),
        ...condition(expected),
        ...(length !== undefined && { 'Content-Length': String(length) }),
      },
    });
  }

  /** As `update` of `FencedS3`. */
  async update(
    key: string,
    options: UpdateOptions,
    edit: (current: Current | null) => Edit | Promise<Edit>,
  ): Promise<Written> {
    checkCall(options);
    checkFunction('edit', edit);
    const { attemptsMax = this.#attemptsMax, signal } = options;
    checkAttempts(attemptsMax);
    const { token } = this.#tokens.present(options.token, key);
    for (let attempt = 1; ; attempt++) {
      const current = await this.get(key, { ...(signal && { signal }) });
      if (current !== null && current.token > token)
        throw new StaleTokenError({ resource: key, presented: token, highest: current.token });
      const edited = await edit(current);
      const { body, ...headers } =
        typeof edited === 'object' && 'body' in edited ? edited : { body: edited };
      try {
        return await this.put(key, body, {
          ...{ ...keptHeaders(current), ...headers, token: options.token },
          ...{ expected: current?.version ?? null, ...(signal && { signal }) },
        });
      } catch (error) {
        if (!(error instanceof VersionMismatchError || error instanceof ConflictError)) throw error;
        if (attempt >= attemptsMax) throw new ConflictError({ resource: key, attempts: attempt });
      }
      await backOff(this.#runtime, attempt, signal);
    }
  }

  /** As `get` of `FencedS3`. */
  async get(key: string, options?: ReadOptions): Promise<Current | null>;
  async get(keys: readonly string[], options?: ReadOptions): Promise<Map<string, Current | null>>;
  async get(
    keys: string | readonly string[],
    options: ReadOptions = {},
  ): Promise<Current | null | Map<string, Current | null>> {
    checkRead(options, 'claimAndGet');
    if (typeof keys === 'string') return this.#read(keys, options);
    if (!Array.isArray(keys))
      throw new InvalidArgumentError('key must be a string, or an array of them');
    return readEach(keys, (key) => this.#read(key, options));
  }

  /** As `getStream` of `FencedS3`. Bytes that were damaged on the way end it with {@link StoreUnavailableError}. */
  async getStream(key: string, options: ReadOptions = {}): Promise<CurrentStream | null> {
    checkRead(options, 'claimAndGetStream');
    return this.#stream(key, options);
  }

  /** As `stat` of `FencedS3`. A gateway does not tell `storedBytes` and `lastModifiedMs`. */
  async stat(key: string, options: CallOptions = {}): Promise<Stat | null> {
    checkCall(options);
    const response = await this.#head(key, options.signal);
    if (response === null) return null;
    const bodyBytes = bodyBytesOf(response);
    return { ...originOf(response), bodyBytes, storedBytes: undefined, lastModifiedMs: undefined };
  }

  /** As `claim` of `FencedS3`. */
  async claim(key: string, options: TokenOptions): Promise<void> {
    checkCall(options);
    const { token, headers } = this.#tokens.present(options.token, key);
    const answer = await this.#ask(key, {
      ...{ method: 'POST', path: `objects/${key}/claim`, headers, token, isWrite: true },
      signal: options.signal,
    });
    await refuse(answer, { resource: key, token, isWrite: true });
  }

  /** As `claimAndGet` of `FencedS3`. Needs the verbs `claim` and `read`. */
  async claimAndGet(key: string, options: TokenOptions): Promise<Current | null> {
    return this.#read(key, options, this.#presented(key, options));
  }

  /** As `claimAndGetStream` of `FencedS3`. Needs the verbs `claim` and `read`. */
  async claimAndGetStream(key: string, options: TokenOptions): Promise<CurrentStream | null> {
    return this.#stream(key, options, this.#presented(key, options));
  }

  /** As `delete` of `FencedS3`. */
  async delete(key: string, options: ReplaceOptions): Promise<Written> {
    checkCall(options);
    const { expected, signal } = options;
    checkExpected(expected);
    return this.#write(key, options, { method: 'DELETE', headers: condition(expected), signal });
  }

  /** As `highest` of `FencedS3`. Needs the verb `ratchet`. */
  async highest(key: string, options: CallOptions = {}): Promise<bigint> {
    checkCall(options);
    const asked = { resource: key, isWrite: false };
    const answer = await this.#calls.ask({
      ...{
        method: 'GET',
        path: `ratchets/s3/${checkedKey(key)}`,
        signal: options.signal,
        ...asked,
      },
    });
    const response = await refuse(answer, asked);
    return BigInt(((await response.json()) as { token: string }).token);
  }

  /** As `settle` of `FencedS3`. Only the gateway that made the write can always tell; others know forty writes back. */
  async settle(writeId: string, options: SettleOptions = {}): Promise<Settlement> {
    checkCall(options);
    const key = options.key ?? this.#unsettled.get(writeId);
    if (key === undefined)
      throw new InvalidArgumentError(
        `this process knows no unsettled write of that id: name its key writeId=${String(writeId).slice(0, 40)}`,
      );
    const settlement = await settlementOf(this.#calls, 'objects', writeId, key, options.signal);
    if (settlement !== 'unknown') this.#unsettled.delete(writeId);
    return settlement;
  }

  async #read(key: string, options: Wanted, presented?: Presented): Promise<Current | null> {
    const response = await this.#open(key, options, presented);
    if (response === null) return null;
    const pieces = await Array.fromAsync(piecesOf(key, response, options));
    return { ...originOf(response), body: Buffer.concat(pieces) };
  }

  async #stream(
    key: string,
    options: Wanted,
    presented?: Presented,
  ): Promise<CurrentStream | null> {
    const response = await this.#open(key, options, presented);
    if (response === null) return null;
    return {
      ...originOf(response),
      body: Readable.from(piecesOf(key, response, options), { objectMode: false }),
      bodyBytes: bodyBytesOf(response),
    };
  }

  #presented(key: string, options: TokenOptions): Presented {
    checkCall(options);
    return this.#tokens.present(options.token, key);
  }

  /** @param presented claims the key first @returns null where there is no object */
  async #open(
    key: string,
    { signal, range }: Wanted,
    presented: Presented | undefined,
  ): Promise<Response | null> {
    const asked = { resource: key, isWrite: presented !== undefined };
    const answer = await this.#ask(key, {
      ...(presented
        ? { method: 'POST', path: `objects/${key}/claim-and-get` }
        : { method: 'GET', path: `objects/${key}` }),
      ...(range && { headers: { Range: `bytes=${range.start}-${range.end ?? ''}` } }),
      ...{ ...asked, ...presented, signal },
    });
    if (!answer.ok && answer.problem.code === 'not-found') return null;
    // Behind the end of a body there are no bytes, as there are none in the answer to HEAD.
    if (!answer.ok && answer.problem.code === 'range-not-satisfiable')
      return this.#head(key, signal);
    return refuse(answer, { ...asked, ...presented });
  }

  async #head(key: string, signal: AbortSignal | undefined): Promise<Response | null> {
    const call = { method: 'HEAD', path: `objects/${key}`, isWrite: false, signal } as const;
    const answer = await this.#ask(key, call);
    if (answer.ok) return answer.response;
    // A refusal of HEAD has no body that would say why.
    const response = await this.#open(key, { ...(signal && { signal }) }, undefined);
    await response?.body?.cancel();
    return response;
  }

  async #write(
    key: string,
    options: TokenOptions,
    call: Pick<Call, 'method' | 'headers' | 'body' | 'signal'>,
  ): Promise<Written> {
    const { token, headers } = this.#tokens.present(options.token, key);
    const answer = await this.#ask(key, {
      ...{ ...call, path: `objects/${key}`, token, isWrite: true },
      headers: { ...call.headers, ...headers },
    });
    const response = await refuse(answer, { resource: key, token, isWrite: true }, (error) =>
      this.#note(error, key),
    );
    const { version, writeId } = await writeIn(response, key);
    return { token, version, writeId: idOf(writeId) };
  }

  async #ask(key: string, call: Omit<Call, 'resource'>): Promise<Answer> {
    checkedKey(key);
    return this.#calls.ask({ ...call, resource: key });
  }

  #note(error: Error, key: string): void {
    if (!(error instanceof OutcomeUnknownError) || error.writeId === '') return;
    this.#unsettled.set(error.writeId, key);
    for (const [oldest] of this.#unsettled) {
      if (this.#unsettled.size <= UNSETTLED_MAX) break;
      this.#unsettled.delete(oldest);
    }
  }
}

/** @throws the store's error where the gateway did not do it */
async function refuse(
  answer: Answer,
  asked: { readonly resource: string; readonly token?: bigint; readonly isWrite: boolean },
  note: (error: Error) => void = () => undefined,
): Promise<Response> {
  if (answer.ok) return answer.response;
  const error = errorOf(answer.problem, asked);
  note(error);
  throw error;
}

/** @throws {InvalidArgumentError} */
function checkedKey(key: string): string {
  if (typeof key !== 'string' || key === '')
    throw new InvalidArgumentError(`key must be a non-empty string type=${typeof key}`);
  pathOf(key);
  return key;
}

/** The bytes of a body, each stretch of a stream as it comes. */
function contentOf(
  body: S3Body,
  onRead: (bytes: number) => void,
): Uint8Array | AsyncGenerator<Uint8Array> {
  const opened = typeof body === 'function' ? body() : body;
  if (typeof opened === 'string' || opened instanceof Uint8Array) {
    const bytes = bodyBytes(opened);
    onRead(bytes.length);
    return bytes;
  }
  checkObject('body', opened);
  if (!(Symbol.asyncIterator in opened))
    throw new InvalidArgumentError(
      'body must be a string, a Uint8Array, a stream, or a function that opens one',
    );
  return (async function* () {
    let bytes = 0;
    for await (const piece of opened) {
      const taken = bodyBytes(piece);
      bytes += taken.length;
      onRead(bytes);
      yield taken;
    }
    onRead(bytes);
  })();
}

/** The bytes that were asked for. A gateway that does not know how many there are sends all of them. */
async function* piecesOf(
  key: string,
  response: Response,
  { signal, range }: Wanted,
): AsyncGenerator<Uint8Array> {
  const { body, status } = response;
  try {
    yield* range && body && status !== 206 ? slice(body, range) : (body ?? []);
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    throw new StoreUnavailableError(`the body was cut off resource=${key}`, { cause: error });
  }
}

/** How many bytes the whole body has. */
function bodyBytesOf({ headers }: Response): number | undefined {
  const bytes = headers.get('content-range')?.split('/')[1] ?? headers.get('content-length');
  return bytes === null ? undefined : Number(bytes);
}

function requestHeaders(headers: Headers): Record<string, string> {
  const { contentType, cacheControl, contentDisposition, contentLanguage } = headers;
  for (const name of ['storageClass', 'tags', 'objectLock'] as const)
    if (headers[name] !== undefined)
      throw new UnsupportedByStoreError(`${name} cannot be given through a gateway`);
  return {
    ...(contentType !== undefined && { 'Content-Type': contentType }),
    ...(cacheControl !== undefined && { 'Cache-Control': cacheControl }),
    ...(contentDisposition !== undefined && { 'Content-Disposition': contentDisposition }),
    ...(contentLanguage !== undefined && { 'Content-Language': contentLanguage }),
    ...Object.fromEntries(
      Object.entries(headers.metadata ?? {}).map(([name, value]) => [META_OUT + name, value]),
    ),
  };
}

function condition(expected: string | null | undefined): Record<string, string> {
  if (expected === undefined) return {};
  return expected === null ? { 'If-None-Match': '*' } : { 'If-Match': `"${expected}"` };
}

function originOf({ headers }: Response): StoredHeaders & Omit<Current, 'body'> {
  const metadata = [...headers].flatMap(([name, value]) =>
    name.startsWith(META) ? [[name.slice(META.length), value]] : [],
  );
  const defaults = headers.get('fencing-defaults')?.split(', ') ?? [];
  const text = (name: string): string | undefined =>
    defaults.includes(name) ? undefined : (headers.get(name) ?? undefined);
  return {
    token: BigInt(headers.get('fencing-token') ?? 0),
    version: headers.get('etag')?.slice(1, -1) ?? '',
    writeId: idOf(headers.get('fencing-write-id') ?? ''),
    metadata: Object.fromEntries(metadata),
    contentType: text('content-type'),
    cacheControl: text('cache-control'),
    contentDisposition: text('content-disposition'),
    contentLanguage: text('content-language'),
    storageClass: undefined,
  };
}

/** The headers that an update does not give stay as they were. */
function keptHeaders(current: Current | null): Headers {
  if (current === null) return {};
  const { metadata, contentType, cacheControl, contentDisposition, contentLanguage } = current;
  return {
    ...(contentType !== undefined && { contentType }),
    ...(cacheControl !== undefined && { cacheControl }),
    ...(contentDisposition !== undefined && { contentDisposition }),
    ...(contentLanguage !== undefined && { contentLanguage }),
    ...(Object.keys(metadata).length > 0 && { metadata }),
  };
}
