import { Readable } from 'node:stream';
import {
  InvalidArgumentError,
  OutcomeUnknownError,
  StaleTokenError,
  StoreUnavailableError,
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
  editOf,
  readEach,
  slice,
} from '@fenced/store/internal';
import type {
  CallOptions,
  Current,
  CurrentStream,
  Edit,
  FencedS3,
  PutOptions,
  ReadOptions,
  ReplaceOptions,
  S3Body,
  Settlement,
  SettleOptions,
  Stat,
  TokenOptions,
  UpdateOptions,
  Written,
} from '@fenced/store/s3';
import { type GatewayHttp, pathOf } from './http.js';
import { keptHeaders, originOf, requestHeaders } from './object-headers.js';
import type { Runtime } from './runtime.js';
import type { SignedTokens } from './signed-tokens.js';
import { conditionOf, Values } from './values.js';

/**
 * The methods of a `FencedS3` that work through a gateway: all but those for the bucket's operator.
 */
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

type Wanted = Pick<ReadOptions, 'signal' | 'range'>;

const UNSETTLED_MAX = 1_000;

/**
 * The objects of a bucket, behind a gateway. Methods, options and errors are those of `FencedS3`.
 */
export class GatewayObjects implements Objects {
  readonly #values: Values;
  readonly #tokens: SignedTokens;
  readonly #attemptsMax: number;
  /** The key of each write whose outcome is unknown, by its write id. */
  readonly #unsettled = new Map<string, string>();

  /** Made by `objects` of FencedGateway. */
  constructor(http: GatewayHttp, tokens: SignedTokens, attemptsMax: number, runtime: Runtime) {
    this.#values = new Values('objects', http, tokens, runtime);
    this.#tokens = tokens;
    this.#attemptsMax = attemptsMax;
  }

  /**
   * As `put` of `FencedS3`. A stream is sent as it comes, and never held in memory. Tags, storage
   * classes and Object Lock are not supported.
   */
  async put(key: string, body: S3Body, options: PutOptions): Promise<Written> {
    checkCall(options);
    const headers = checkHeaders(options);
    const { onProgress, expected, bodyBytes: declaredBytes } = options;
    if (onProgress !== undefined) checkFunction('onProgress', onProgress);
    checkExpected(expected);
    const content = contentOf(body, (bytes) =>
      onProgress?.({ bodyBytes: bytes, storedBytes: bytes }),
    );
    const length = content instanceof Uint8Array ? undefined : declaredBytes;
    return this.#write('PUT', key, options, {
      body: content,
      headers: {
        ...requestHeaders(headers),
        ...conditionOf(expected),
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
    const call = { ...(signal && { signal }) };
    return this.#values.update(
      key,
      { attemptsMax, signal },
      {
        read: () => this.get(key, call),
        edit: async (current: Current | null) => {
          if (current !== null && current.token > token)
            throw new StaleTokenError({ resource: key, presented: token, highest: current.token });
          return edit(current);
        },
        put: (edited, current) => {
          const { body, ...headers } = editOf(edited) as Exclude<Edit, string | Uint8Array>;
          return this.put(key, body, {
            ...keptHeaders(current),
            ...headers,
            ...call,
            token: options.token,
            expected: current?.version ?? null,
          });
        },
      },
    );
  }

  /** As `get` of `FencedS3`. */
  async get(key: string, options?: ReadOptions): Promise<Current | null>;
  async get(keys: readonly string[], options?: ReadOptions): Promise<Map<string, Current | null>>;
  async get(
    keys: string | readonly string[],
    options: ReadOptions = {},
  ): Promise<Current | null | Map<string, Current | null>> {
    checkRead(options, 'claimAndGet');
    const read = async (key: string) => currentOf(key, await this.#read(key, options), options);
    if (typeof keys === 'string') return read(keys);
    if (!Array.isArray(keys))
      throw new InvalidArgumentError('key must be a string, or an array of them');
    return readEach(keys, read);
  }

  /**
   * As `getStream` of `FencedS3`. If the object is damaged, or the answer is cut off, the stream
   * ends with `StoreUnavailableError`.
   */
  async getStream(key: string, options: ReadOptions = {}): Promise<CurrentStream | null> {
    checkRead(options, 'claimAndGetStream');
    return streamOf(key, await this.#read(key, options), options);
  }

  /** As `stat` of `FencedS3`. A gateway does not report `storedBytes` and `lastModifiedMs`. */
  async stat(key: string, options: CallOptions = {}): Promise<Stat | null> {
    checkCall(options);
    checkKey(key);
    const response = await this.#values.head(key, options);
    if (response === null) return null;
    const bodyBytes = bodyBytesOf(response);
    return { ...originOf(response), bodyBytes, storedBytes: undefined, lastModifiedMs: undefined };
  }

  /** As `claim` of `FencedS3`. */
  async claim(key: string, options: TokenOptions): Promise<void> {
    checkCall(options);
    checkKey(key);
    await this.#values.claim(key, options);
  }

  /** As `claimAndGet` of `FencedS3`. Needs the verbs `claim` and `read`. */
  async claimAndGet(key: string, options: TokenOptions): Promise<Current | null> {
    checkCall(options);
    checkKey(key);
    return currentOf(key, await this.#values.claimAndRead(key, options), options);
  }

  /** As `claimAndGetStream` of `FencedS3`. Needs the verbs `claim` and `read`. */
  async claimAndGetStream(key: string, options: TokenOptions): Promise<CurrentStream | null> {
    checkCall(options);
    checkKey(key);
    return streamOf(key, await this.#values.claimAndRead(key, options), options);
  }

  /** As `delete` of `FencedS3`. */
  async delete(key: string, options: ReplaceOptions): Promise<Written> {
    checkCall(options);
    checkExpected(options.expected);
    return this.#write('DELETE', key, options, { headers: conditionOf(options.expected) });
  }

  /** As `highest` of `FencedS3`. Needs the verb `ratchet`. */
  async highest(key: string, options: CallOptions = {}): Promise<bigint> {
    checkCall(options);
    checkKey(key);
    return this.#values.highest('s3', key, options);
  }

  /**
   * As `settle` of `FencedS3`. The gateway that made the write can always decide. Another gateway
   * can do so if at most 40 writes to the key followed.
   */
  async settle(writeId: string, options: SettleOptions = {}): Promise<Settlement> {
    checkCall(options);
    const key = options.key ?? this.#unsettled.get(writeId);
    if (key === undefined)
      throw new InvalidArgumentError(
        `this process knows no unsettled write of that id: name its key writeId=${String(writeId).slice(0, 40)}`,
      );
    const settlement = await this.#values.settle(writeId, key, options);
    if (settlement !== 'unknown') this.#unsettled.delete(writeId);
    return settlement;
  }

  async #read(key: string, { signal, range }: Wanted): Promise<Response | null> {
    checkKey(key);
    const headers = range && { Range: `bytes=${range.start}-${range.end ?? ''}` };
    return this.#values.read(key, { signal }, headers);
  }

  async #write(
    method: 'PUT' | 'DELETE',
    key: string,
    options: TokenOptions,
    sent: Parameters<Values['write']>[3],
  ): Promise<Written> {
    checkKey(key);
    try {
      return await this.#values.write(method, key, options, sent);
    } catch (error) {
      if (error instanceof OutcomeUnknownError) this.#note(error.writeId, key);
      throw error;
    }
  }

  #note(writeId: string, key: string): void {
    if (writeId === '') return;
    this.#unsettled.set(writeId, key);
    for (const [oldest] of this.#unsettled) {
      if (this.#unsettled.size <= UNSETTLED_MAX) break;
      this.#unsettled.delete(oldest);
    }
  }
}

/** @throws {InvalidArgumentError} */
function checkKey(key: string): void {
  if (typeof key !== 'string' || key === '')
    throw new InvalidArgumentError(`key must be a non-empty string type=${typeof key}`);
  pathOf(key);
}

async function currentOf(
  key: string,
  response: Response | null,
  wanted: Wanted,
): Promise<Current | null> {
  if (response === null) return null;
  const pieces = await Array.fromAsync(piecesOf(key, response, wanted));
  return { ...originOf(response), body: Buffer.concat(pieces) };
}

function streamOf(key: string, response: Response | null, wanted: Wanted): CurrentStream | null {
  if (response === null) return null;
  const body = Readable.from(piecesOf(key, response, wanted), { objectMode: false });
  return { ...originOf(response), body, bodyBytes: bodyBytesOf(response) };
}

/** The bytes of a body. The bytes of a stream are passed on as they come. */
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

/**
 * The bytes of the wanted range. A gateway that does not know the body's length sends the whole
 * body.
 */
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

/** The length of the whole body, if the gateway knows it. */
function bodyBytesOf({ headers }: Response): number | undefined {
  const bytes = headers.get('content-range')?.split('/')[1] ?? headers.get('content-length');
  return bytes === null ? undefined : Number(bytes);
}
