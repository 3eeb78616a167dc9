import { ConflictError, InvalidArgumentError, VersionMismatchError } from '@fenced/store';
import {
  checkFunction,
  checkNoToken,
  checkObject,
  checkSignal,
  checkWholeNumber,
  shown,
} from '@fenced/store/internal';
import type {
  CurrentRecord,
  FencedRecords,
  Json,
  RecordOptions,
  RecordReadOptions,
  RecordUpdateOptions,
  RecordWriteOptions,
  WrittenRecord,
} from '@fenced/store/postgres';
import { backOff, writeIn } from './answers.js';
import { type Answer, type Call, type Calls, pathOf } from './calls.js';
import { type Asked, errorOf, idOf } from './problems.js';
import type { Runtime } from './runtime.js';
import type { SignedTokens } from './signed-tokens.js';

/** What `FencedRecords` does. */
export type Records = Pick<
  FencedRecords,
  'put' | 'update' | 'get' | 'claim' | 'claimAndGet' | 'delete' | 'highest'
>;

/** The JSON documents of a collection, behind a gateway. Methods, options and errors are those of `FencedRecords`. */
export class GatewayRecords implements Records {
  readonly #collection: string;
  readonly #calls: Calls;
  readonly #tokens: SignedTokens;
  readonly #runtime: Runtime;

  /** Made by `records` of FencedGateway. @throws {InvalidArgumentError} */
  constructor(collection: string, calls: Calls, tokens: SignedTokens, runtime: Runtime) {
    checkSegment('collection', collection);
    this.#collection = collection;
    this.#calls = calls;
    this.#tokens = tokens;
    this.#runtime = runtime;
  }

  /** As `put` of `FencedRecords`. */
  async put(id: string, body: Json, options: RecordWriteOptions): Promise<WrittenRecord> {
    return this.#write('PUT', id, options, bytesOf(body));
  }

  /** As `update` of `FencedRecords`. */
  async update(
    id: string,
    options: RecordUpdateOptions,
    edit: (current: CurrentRecord | null) => Json | Promise<Json>,
  ): Promise<WrittenRecord> {
    const { token, signal } = this.#check(id, options);
    checkFunction('edit', edit);
    const { attemptsMax = 10 } = options;
    checkWholeNumber('attemptsMax', attemptsMax, 1, Number.MAX_SAFE_INTEGER);
    for (let attempt = 1; ; attempt++) {
      const current = await this.get(id, { ...(signal && { signal }) });
      const body = await edit(current);
      try {
        return await this.put(id, body, {
          ...{ token, expected: current?.version ?? null, ...(signal && { signal }) },
        });
      } catch (error) {
        if (!(error instanceof VersionMismatchError || error instanceof ConflictError)) throw error;
        if (attempt >= attemptsMax) throw new ConflictError({ resource: id, attempts: attempt });
      }
      await backOff(this.#runtime, attempt, signal);
    }
  }

  /** As `get` of `FencedRecords`. */
  async get(id: string, options: RecordReadOptions = {}): Promise<CurrentRecord | null> {
    checkObject('options', options);
    checkNoToken(options, 'claimAndGet');
    checkSignal('signal', options.signal);
    checkSegment('id', id);
    const asked = { resource: this.#key(id), isWrite: false };
    const path = `records/${asked.resource}`;
    const call = { method: 'GET', path, signal: options.signal, ...asked } as const;
    return currentOf({ asked, answer: await this.#calls.ask(call) });
  }

  /** As `claim` of `FencedRecords`. */
  async claim(id: string, options: RecordOptions): Promise<void> {
    this.#check(id, options);
    accepted(await this.#ask('POST', id, options, { path: '/claim' }));
  }

  /** As `claimAndGet` of `FencedRecords`. Needs the verbs `claim` and `read`. */
  async claimAndGet(id: string, options: RecordOptions): Promise<CurrentRecord | null> {
    this.#check(id, options);
    return currentOf(await this.#ask('POST', id, options, { path: '/claim-and-get' }));
  }

  /** As `delete` of `FencedRecords`. */
  async delete(id: string, options: RecordWriteOptions): Promise<WrittenRecord> {
    return this.#write('DELETE', id, options, undefined);
  }

  /** As `highest` of `FencedRecords`. Needs the verb `ratchet`. */
  async highest(id: string): Promise<bigint> {
    checkSegment('id', id);
    const asked = { resource: this.#key(id), isWrite: false };
    const path = `ratchets/records/${asked.resource}`;
    const answer = await this.#calls.ask({ method: 'GET', path, ...asked });
    if (!answer.ok) throw errorOf(answer.problem, asked);
    return BigInt(((await answer.response.json()) as { token: string }).token);
  }

  #key(id: string): string {
    return `${this.#collection}/${id}`;
  }

  #check(id: string, options: RecordOptions) {
    checkSegment('id', id);
    checkObject('options', options);
    checkSignal('signal', options.signal);
    const { token } = this.#tokens.present(options.token, this.#key(id));
    return { token, signal: options.signal };
  }

  async #write(
    method: 'PUT' | 'DELETE',
    id: string,
    options: RecordWriteOptions,
    body: Uint8Array | undefined,
  ): Promise<WrittenRecord> {
    const { token } = this.#check(id, options);
    const { expected } = options;
    if (expected !== undefined && expected !== null && typeof expected !== 'bigint')
      throw new InvalidArgumentError(`expected must be a bigint or null value=${shown(expected)}`);
    const answered = await this.#ask(method, id, options, {
      headers: {
        ...(body && { 'Content-Type': 'application/json' }),
        ...(expected === null && { 'If-None-Match': '*' }),
        ...(typeof expected === 'bigint' && { 'If-Match': `"${expected}"` }),
      },
      ...(body && { body }),
    });
    const { version, writeId } = await writeIn(accepted(answered), this.#key(id));
    return { token, version: BigInt(version ?? 0), writeId: idOf(writeId) };
  }

  /** Asks for something that may change the document. */
  async #ask(
    method: Call['method'],
    id: string,
    options: RecordOptions,
    { path = '', headers, body }: Partial<Pick<Call, 'path' | 'headers' | 'body'>>,
  ): Promise<Answered> {
    const resource = this.#key(id);
    const presented = this.#tokens.present(options.token, resource);
    const asked = { resource, token: presented.token, isWrite: true };
    const answer = await this.#calls.ask({
      ...{ ...asked, method, path: `records/${resource}${path}`, signal: options.signal },
      headers: { ...headers, ...presented.headers },
      ...(body && { body }),
    });
    return { asked, answer };
  }
}

interface Answered {
  readonly asked: Asked;
  readonly answer: Answer;
}

/** @throws the store's error if the gateway did not do it */
function accepted({ asked, answer }: Answered): Response {
  if (answer.ok) return answer.response;
  throw errorOf(answer.problem, asked);
}

/** The document of an answer; null if there is none. */
async function currentOf(answered: Answered): Promise<CurrentRecord | null> {
  const { answer } = answered;
  if (!answer.ok && answer.problem.code === 'not-found') return null;
  const response = accepted(answered);
  const { headers } = response;
  return {
    body: (await response.json()) as Json,
    token: BigInt(headers.get('fencing-token') ?? 0),
    version: BigInt(headers.get('etag')?.slice(1, -1) ?? 0),
    writeId: idOf(headers.get('fencing-write-id') ?? ''),
  };
}

/** @throws {InvalidArgumentError} */
function bytesOf(body: Json): Uint8Array {
  let text: string | undefined;
  try {
    text = JSON.stringify(body);
  } catch (error) {
    throw new InvalidArgumentError(`body must be JSON: ${(error as Error).message}`);
  }
  if (text === undefined) throw new InvalidArgumentError(`body must be JSON value=${shown(body)}`);
  return Buffer.from(text);
}

/** One segment of a path. @throws {InvalidArgumentError} */
function checkSegment(what: string, name: unknown): void {
  if (typeof name !== 'string' || name === '' || name.includes('/'))
    throw new InvalidArgumentError(
      `${what} must be a non-empty string without slashes value=${shown(name)}`,
    );
  pathOf(name);
}
