import {
  checkEdited,
  checkExpected,
  checkFunction,
  checkNoToken,
  checkOptions,
  checkSignal,
  checkWholeNumber,
} from '../core/check.js';
import {
  InvalidArgumentError,
  OutcomeUnknownError,
  type Settlement,
  StoreUnavailableError,
  UnsupportedByStoreError,
  VersionMismatchError,
} from '../core/errors.js';
import { shown } from '../core/shown.js';
import { parseToken, type TokenLike } from '../core/token.js';
import { publishOutcome, type WriteEvent } from '../events.js';
import { fieldsOf, type ServerError, wasNotSent } from './client.js';
import type { Connections } from './connections.js';
import { refusal } from './failures.js';
import { checkName } from './fence.js';
import { backOff, type Retried, untilSerialized } from './retry.js';
import type { Runtime } from './runtime.js';
import type { Session } from './session.js';

/** A value of JSON. */
export type Json =
  | null
  | boolean
  | number
  | string
  | readonly Json[]
  | { readonly [key: string]: Json };

/** A document that was read. */
export interface CurrentRecord {
  readonly body: Json;
  readonly token: bigint;
  /**
   * Names what this write made, and nothing else. Compare versions only for equality: after a
   * failover, the numbers in them may repeat.
   */
  readonly version: string;
  /** The id of the write that made this version. */
  readonly writeId: string;
}

export type WrittenRecord = Omit<CurrentRecord, 'body'>;

export interface RecordOptions {
  /** The token of the lock that the caller holds; see `parseToken`. */
  readonly token: TokenLike;
  /** Prevents the next attempt. The answer to a statement that was sent is waited for. */
  readonly signal?: AbortSignal;
}

export interface RecordReadOptions {
  /** A read writes nothing: `claimAndGet` takes a token. */
  readonly token?: never;
  readonly signal?: AbortSignal;
}

export interface RecordWriteOptions extends RecordOptions {
  /**
   * The version that the write may replace; null if there may be no document.
   * @default any
   */
  readonly expected?: string | null;
  /**
   * Called with the write's id right before it is sent. Without a call nothing was sent. It must
   * not throw.
   */
  readonly onWriteId?: (writeId: string) => void;
}

export interface RecordUpdateOptions extends RecordOptions {
  /** Number of attempts, if other writes come between. @default 10 */
  readonly attemptsMax?: number;
}

/** Number of attempts, if the server rolls a statement back because of concurrent transactions. */
const ATTEMPTS_MAX = 10;

const COLUMNS = 'body, token::pg_catalog.text, version, write_id::pg_catalog.text';
/** The expectation of a write that may replace no document. */
const NONE = 'none';
/** Number and write id. */
const VERSION = /^[1-9]\d*-[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/;
const GET = `SELECT ${COLUMNS} FROM fenced.get_record($1, $2)`;
export const STATEMENTS: Readonly<
  Record<'put' | 'get' | 'getLasting' | 'claim' | 'claimAndGet', string>
> = {
  put: 'SELECT fenced.put_record($1, $2, $3::pg_catalog.text::pg_catalog.jsonb, $4, $5, $6::pg_catalog.text)',
  get: GET,
  /**
   * Also writes to the WAL, and so waits for synchronous standbys, which may lack the latest write.
   * After a failover to one of them, the answer is still true.
   */
  getLasting: `${GET}, pg_catalog.pg_logical_emit_message(true, 'fenced', '')`,
  claim: 'SELECT FROM fenced.claim_record($1, $2, $3)',
  claimAndGet: `SELECT ${COLUMNS} FROM fenced.claim_record($1, $2, $3)`,
};

/** A document as it is stored. The body is null if it was deleted, or only claimed. */
export type Row = readonly [
  body: string | null,
  token: string,
  version: string,
  writeId: string | null,
];

/**
 * JSON documents in PostgreSQL, each with the highest token that it has seen. One statement checks
 * and writes, so a write takes one round trip, and a paused holder holds no lock.
 *
 * A write was applied, or it was not, or it fails with `OutcomeUnknownError`: a reply was lost, and
 * the document does not show the outcome.
 */
export class FencedRecords {
  readonly #collection: string;
  readonly #connections: Connections;

  /** For `records` of FencedPostgres. @throws {InvalidArgumentError} */
  constructor(collection: string, connections: Connections) {
    checkName('collection', collection);
    this.#collection = collection;
    this.#connections = connections;
  }

  get #runtime(): Runtime {
    return this.#connections.runtime;
  }

  /**
   * Writes a document, unless a higher token has been seen. For read-modify-write use `update`.
   *
   * The document is stored as `jsonb`. It keeps every value, but neither the order of an object's
   * keys nor the sign of -0. NaN, Infinity and a nesting that overflows the stack are refused.
   *
   * @throws {StaleTokenError} a higher token has been seen
   * @throws {VersionMismatchError} another version than `expected` is there
   * @throws {OutcomeUnknownError} the reply was lost, and the document does not show the outcome
   * @throws {StoreUnavailableError | StoreSetupError} nothing was written
   * @throws {UnsupportedByStoreError} the document is too large, or nested too deep
   * @throws {InvalidArgumentError | InvalidTokenError} nothing was sent, or PostgreSQL cannot store
   *   this JSON (`\u0000`)
   */
  async put(id: string, body: Json, options: RecordWriteOptions): Promise<WrittenRecord> {
    return this.#replace('put', id, toJson(body), options);
  }

  /**
   * Deletes the document and keeps its token, so that earlier holders stay out. Errors as `put`.
   */
  async delete(id: string, options: RecordWriteOptions): Promise<WrittenRecord> {
    return this.#replace('delete', id, null, options);
  }

  /**
   * Reads a document, computes the next one by `edit`, and writes it if no other write came
   * between. Otherwise it starts again. `edit` may be called several times, and should only
   * compute. Its errors are passed on.
   *
   * @param edit takes the document, or null if there is none
   * @throws as `put`, and {ConflictError} another write came between each time; nothing written
   */
  async update(
    id: string,
    options: RecordUpdateOptions,
    edit: (current: CurrentRecord | null) => Json | Promise<Json>,
  ): Promise<WrittenRecord> {
    const { token, signal } = this.#check(id, options);
    checkFunction('edit', edit);
    const { attemptsMax = 10 } = options;
    checkWholeNumber('attemptsMax', attemptsMax, 1, Number.MAX_SAFE_INTEGER);
    return this.#published('update', id, token, async () => {
      for (let attempt = 1; ; attempt++) {
        const current = await this.#find(id, signal);
        const edited = await edit(current);
        checkEdited(edited);
        const body = toJson(edited);
        const expected = current?.version ?? NONE;
        const written = await this.#write({ id, body, token, expected, signal });
        if (written) return written;
        await backOff(this.#retried(id, signal, attemptsMax), attempt);
      }
    });
  }

  /** Reads the document; null if there is none. Only `claimAndGet` keeps late writers out. */
  async get(id: string, options: RecordReadOptions = {}): Promise<CurrentRecord | null> {
    checkOptions(options);
    checkNoToken(options, 'claimAndGet');
    checkName('id', id);
    checkSignal('signal', options.signal);
    return this.#find(id, options.signal);
  }

  /**
   * Raises the ratchet without changing the document, so that lower tokens are refused. Errors as
   * `put`. After {@link OutcomeUnknownError}, claim again: that is harmless.
   */
  async claim(id: string, options: RecordOptions): Promise<void> {
    await this.#claim('claim', id, options, STATEMENTS.claim);
  }

  /**
   * Claims the document and reads it in one step; null if there is none. Lower tokens are refused
   * then, and `token` is the caller's own. Errors as `claim`.
   */
  async claimAndGet(id: string, options: RecordOptions): Promise<CurrentRecord | null> {
    // Invariant: one statement. Between two, a later holder might write, and its document would be
    // taken for one that this token protects.
    return currentOf(await this.#claim('claimAndGet', id, options, STATEMENTS.claimAndGet));
  }

  /**
   * Reports the outcome of a write or a deletion: `applied` while the document has this write.
   * Otherwise `unknown`, because another write may have replaced it, or it may still be under way.
   */
  async settle(
    id: string,
    writeId: string,
    options: { readonly signal?: AbortSignal } = {},
  ): Promise<Exclude<Settlement, 'not-applied'>> {
    checkName('id', id);
    checkOptions(options);
    checkSignal('signal', options.signal);
    const row = await this.#ask(id, options.signal, STATEMENTS.getLasting);
    return row?.[3] === writeId ? 'applied' : 'unknown';
  }

  /** The highest token seen for the document; 0n if it was never written nor claimed. */
  async highest(id: string): Promise<bigint> {
    checkName('id', id);
    return BigInt((await this.#ask(id, undefined, STATEMENTS.get))?.[1] ?? 0);
  }

  async #replace(
    operation: 'put' | 'delete',
    id: string,
    body: string | null,
    options: RecordWriteOptions,
  ): Promise<WrittenRecord> {
    const { token, signal } = this.#check(id, options);
    const { expected, onWriteId } = options;
    if (onWriteId !== undefined) checkFunction('onWriteId', onWriteId);
    checkExpected(expected);
    return this.#published(operation, id, token, async () => {
      const write = { id, body, token, expected: expected === null ? NONE : expected, signal };
      // No document has such a version, and `none` would mean that there is none.
      const isImpossible = expected != null && !VERSION.test(expected);
      const written = isImpossible ? null : await this.#write(write, onWriteId);
      if (written) return written;
      // Invariant: only a write that expects a version can miss it.
      if (expected === undefined) throw new Error('a write without expectation was not applied');
      const found = await this.#find(id, signal);
      throw new VersionMismatchError({
        resource: id,
        expected,
        found: found?.version ?? null,
      });
    });
  }

  /** Sends one write. Null if another version is there: nothing was written. */
  async #write(
    { id, body, token, expected, signal }: Write,
    onWriteId?: (writeId: string) => void,
  ): Promise<WrittenRecord | null> {
    const writeId = this.#runtime.uniqueId();
    const values = [body, String(token), writeId, expected ?? null];
    try {
      const row = await this.#ask<readonly [string | null]>(id, signal, STATEMENTS.put, values, {
        onSend: () => onWriteId?.(writeId),
        onLost: (cause) => unknown(id, writeId, true, cause),
      });
      const version = row?.[0] ?? null;
      return version === null ? null : { token, version, writeId };
    } catch (error) {
      if (!(error instanceof OutcomeUnknownError)) throw error;
      const row = await this.#ask(id, signal, STATEMENTS.getLasting).catch(() => undefined);
      if (row?.[3] !== writeId) throw error;
      return { token, version: row[2], writeId };
    }
  }

  async #find(id: string, signal: AbortSignal | undefined): Promise<CurrentRecord | null> {
    return currentOf(await this.#ask(id, signal, STATEMENTS.get));
  }

  #claim(
    operation: 'claim' | 'claimAndGet',
    id: string,
    options: RecordOptions,
    text: string,
  ): Promise<Row | undefined> {
    const { token, signal } = this.#check(id, options);
    // The document keeps the ids of writes, not of claims.
    const onLost = (cause: unknown) => unknown(id, this.#runtime.uniqueId(), false, cause);
    const claim = () => this.#ask(id, signal, text, [String(token)], { onLost });
    return this.#published(operation, id, token, claim);
  }

  #check(id: string, options: RecordOptions): { token: bigint; signal: AbortSignal | undefined } {
    checkName('id', id);
    checkOptions(options);
    checkSignal('signal', options.signal);
    return { token: parseToken(options.token), signal: options.signal };
  }

  #published<Result>(
    operation: WriteEvent['operation'],
    id: string,
    token: bigint,
    write: () => Promise<Result>,
  ): Promise<Result> {
    const facts = { store: 'postgres', collection: this.#collection, operation, token } as const;
    return publishOutcome(
      write,
      () => ({ ...facts, resources: [id] }),
      (result) => (result as Partial<WrittenRecord> | null)?.writeId,
      () => this.#runtime.nowMs(),
    );
  }

  #retried(id: string, signal: AbortSignal | undefined, attemptsMax = ATTEMPTS_MAX): Retried {
    const place = { collection: this.#collection, resources: [id] };
    return { runtime: this.#runtime, signal, attemptsMax, place };
  }

  /**
   * Sends a statement about a document, again while the server rolls it back because of concurrent
   * transactions.
   */
  async #ask<Fields = Row>(
    id: string,
    signal: AbortSignal | undefined,
    text: string,
    values: readonly unknown[] = [],
    { onSend = () => {}, onLost = lost }: AskOptions = {},
  ): Promise<Fields | undefined> {
    const question = async (session: Session): Promise<Fields | undefined> => {
      signal?.throwIfAborted();
      onSend();
      const all = [this.#collection, id, ...values];
      const result = await session.query(text, all);
      return fieldsOf(result)[0] as Fields | undefined;
    };
    const meaning = (error: ServerError): Error => meaningOf(error, id);
    const noAnswer = (cause: unknown): Error => {
      if (cause === signal?.reason) return signal?.reason;
      return (wasNotSent(cause) ? lost : onLost)(cause);
    };
    // One statement leaves no transaction open. So `SELECT`, which does nothing, takes the place of
    // ROLLBACK.
    return untilSerialized(this.#retried(id, signal), () =>
      this.#connections.ask(question, meaning, noAnswer, 'SELECT'),
    );
  }
}

/** One write. `expected` is the version to be replaced, or `NONE`; any if it is not given. */
interface Write {
  readonly id: string;
  /** Null deletes the document. */
  readonly body: string | null;
  readonly token: bigint;
  readonly expected: string | undefined;
  readonly signal: AbortSignal | undefined;
}

interface AskOptions {
  readonly onSend?: () => void;
  /** Makes the error for a lost answer. */
  readonly onLost?: (cause: unknown) => Error;
}

function lost(cause: unknown): Error {
  return new StoreUnavailableError('the connection was lost', { cause });
}

function unknown(resource: string, writeId: string, canSettle: boolean, cause: unknown): Error {
  return new OutcomeUnknownError({ resource, writeId, store: 'postgres', canSettle }, { cause });
}

function meaningOf(error: ServerError, id: string): Error {
  switch (error.code) {
    case '22P05': // \u0000, which jsonb cannot hold, or a character that the encoding lacks
    case '22P02':
      return new InvalidArgumentError(
        `PostgreSQL cannot store this JSON, for example because a text has NUL (\\u0000) or half a surrogate pair: ${error.message} id=${id}`,
      );
    case '54000':
    case '54001': // too large, or nested too deep
      return new UnsupportedByStoreError(`${error.message} id=${id}`, { cause: error });
    default:
      return refusal(error, id);
  }
}

function currentOf(row: Row | undefined): CurrentRecord | null {
  const [body, token = '', version = '', writeId] = row ?? [null];
  if (body === null || !writeId) return null;
  return { body: JSON.parse(body), token: BigInt(token), version, writeId };
}

/**
 * The text of a document. JSON.stringify writes NaN and Infinity as null. A replacer finds them,
 * but takes more stack and time, so it looks only at documents with a null.
 *
 * @throws {InvalidArgumentError} it is no value of JSON
 */
function toJson(body: unknown): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(body);
    if (text?.includes('null')) JSON.stringify(body, refuseOddNumbers);
  } catch (error) {
    if (error instanceof InvalidArgumentError) throw error;
    // A RangeError is a nesting that overflows the stack.
    throw new InvalidArgumentError(`body must be JSON: ${(error as Error).message}`);
  }
  if (text !== undefined) return text;
  throw new InvalidArgumentError(`body must be JSON value=${shown(body)}`);
}

function refuseOddNumbers(key: string, value: unknown): unknown {
  const isNumber = typeof value === 'number' || value instanceof Number;
  if (!isNumber || Number.isFinite(Number(value))) return value;
  throw new InvalidArgumentError(`JSON has no ${value}: write null or a string key=${shown(key)}`);
}
