import { InvalidArgumentError, parseToken, type Settlement } from '@fenced/store';
import {
  checkEdited,
  checkExpected,
  checkFunction,
  checkNoToken,
  checkOptions,
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
import { type GatewayHttp, pathOf } from './http.js';
import { idOf } from './problems.js';
import type { Runtime } from './runtime.js';
import type { SignedTokens } from './signed-tokens.js';
import { conditionOf, Values } from './values.js';

/** The methods of `FencedRecords`. */
export type Records = Pick<
  FencedRecords,
  'put' | 'update' | 'get' | 'claim' | 'claimAndGet' | 'delete' | 'highest' | 'settle'
>;

/**
 * The JSON documents of a collection, behind a gateway. Methods, options and errors are those of
 * `FencedRecords`.
 */
export class GatewayRecords implements Records {
  readonly #collection: string;
  readonly #values: Values;

  /** Made by `records` of FencedGateway. @throws {InvalidArgumentError} */
  constructor(collection: string, http: GatewayHttp, tokens: SignedTokens, runtime: Runtime) {
    checkSegment('collection', collection);
    this.#collection = collection;
    this.#values = new Values('records', http, tokens, runtime);
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
    const key = this.#keyOf(id, options);
    checkFunction('edit', edit);
    const { attemptsMax = 10, token, signal } = options;
    checkWholeNumber('attemptsMax', attemptsMax, 1, Number.MAX_SAFE_INTEGER);
    parseToken(token);
    const call = { ...(signal && { signal }) };
    return this.#values.update(
      key,
      { attemptsMax, signal },
      {
        read: () => this.get(id, call),
        edit: async (current: CurrentRecord | null) => {
          const edited = await edit(current);
          checkEdited(edited);
          return edited;
        },
        put: (body, current) =>
          this.put(id, body, { ...call, token, expected: current?.version ?? null }),
      },
    );
  }

  /** As `get` of `FencedRecords`. */
  async get(id: string, options: RecordReadOptions = {}): Promise<CurrentRecord | null> {
    const key = this.#keyOf(id, options);
    checkNoToken(options, 'claimAndGet');
    return currentOf(await this.#values.read(key, options));
  }

  /** As `claim` of `FencedRecords`. */
  async claim(id: string, options: RecordOptions): Promise<void> {
    await this.#values.claim(this.#keyOf(id, options), options);
  }

  /** As `claimAndGet` of `FencedRecords`. Needs the verbs `claim` and `read`. */
  async claimAndGet(id: string, options: RecordOptions): Promise<CurrentRecord | null> {
    return currentOf(await this.#values.claimAndRead(this.#keyOf(id, options), options));
  }

  /** As `delete` of `FencedRecords`. */
  async delete(id: string, options: RecordWriteOptions): Promise<WrittenRecord> {
    return this.#write('DELETE', id, options, undefined);
  }

  /** As `highest` of `FencedRecords`. Needs the verb `ratchet`. */
  async highest(id: string): Promise<bigint> {
    return this.#values.highest('records', this.#keyOf(id, {}), {});
  }

  /** As `settle` of `FencedRecords`. Needs the verb `write`. */
  async settle(
    id: string,
    writeId: string,
    options: { readonly signal?: AbortSignal } = {},
  ): Promise<Exclude<Settlement, 'not-applied'>> {
    const settlement = await this.#values.settle(writeId, this.#keyOf(id, options), options);
    return settlement === 'applied' ? 'applied' : 'unknown';
  }

  /** Checks a call's arguments. @returns collection and id, with a slash between */
  #keyOf(id: string, options: { readonly signal?: AbortSignal | undefined }): string {
    checkSegment('id', id);
    checkOptions(options);
    checkSignal('signal', options.signal);
    return `${this.#collection}/${id}`;
  }

  async #write(
    method: 'PUT' | 'DELETE',
    id: string,
    options: RecordWriteOptions,
    body: Uint8Array | undefined,
  ): Promise<WrittenRecord> {
    const key = this.#keyOf(id, options);
    const { expected } = options;
    checkExpected(expected);
    const headers = {
      ...(body && { 'Content-Type': 'application/json' }),
      ...conditionOf(expected),
    };
    const written = await this.#values.write(method, key, options, { headers, body });
    return { ...written, version: written.version ?? '' };
  }
}

/** The document of an answer; null if there is none. */
async function currentOf(response: Response | null): Promise<CurrentRecord | null> {
  if (response === null) return null;
  const { headers } = response;
  return {
    body: (await response.json()) as Json,
    token: BigInt(headers.get('fencing-token') ?? 0),
    version: headers.get('etag')?.slice(1, -1) ?? '',
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

/** Checks one segment of a path. @throws {InvalidArgumentError} */
function checkSegment(what: string, name: unknown): void {
  if (typeof name !== 'string' || name === '' || name.includes('/'))
    throw new InvalidArgumentError(
      `${what} must be a non-empty string without slashes value=${shown(name)}`,
    );
  pathOf(name);
}
