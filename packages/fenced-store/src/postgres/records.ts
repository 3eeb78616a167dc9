import {
  checkFunction,
  checkNoToken,
  checkObject,
  checkSignal,
  checkWholeNumber,
} from '../core/check.js';
import {
  ConflictError,
  InvalidArgumentError,
  OutcomeUnknownError,
  type Settlement,
  StoreUnavailableError,
  UnsupportedByStoreError,
  VersionMismatchError,
} from '../core/errors.js';
import { shown } from '../core/shown.js';
import { parseToken, type TokenLike } from '../core/token.js';
import { publish, publishOutcome, type StoreEvent, type WriteEvent } from '../events.js';
import {
  isSerializationFailure,
  isServerError,
  type PostgresResult,
  wasNotSent,
} from './client.js';
import { refusal } from './failures.js';
import { complaintAboutName } from './fence.js';
import type { Runtime } from './runtime.js';
import type { Connections, Session, WaitLimit } from './session.js';
import { put } from './statements.js';

/** What JSON can say. */
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
  /** 1 with the first write, one more with each that follows, deletions too. */
  readonly version: bigint;
  /** Of the write that made this version. */
  readonly writeId: string;
}

export type WrittenRecord = Omit<CurrentRecord, 'body'>;

export interface RecordOptions {
  /** The token of the lock that the caller holds; see `parseToken`. */
  readonly token: TokenLike;
  /** Ends the wait for a connection or between two attempts. What was sent is waited for. */
  readonly signal?: AbortSignal;
}

export interface RecordReadOptions {
  /** A read writes nothing: `claimAndGet` takes a token. */
  readonly token?: never;
  readonly signal?: AbortSignal;
}

export interface RecordWriteOptions extends RecordOptions {
  /** The version that the write may replace; null: there may be no document. Without it, whatever is there is replaced. */
  readonly expected?: bigint | null;
  /** Called with the id of the write right before it is sent. Without a call nothing was sent. It must not throw. */
  readonly onWriteId?: (writeId: string) => void;
}

export interface RecordUpdateOptions extends RecordOptions {
  /** How often what others wrote is taken up at most. @default 10 */
  readonly attemptsMax?: number;
}

const BACKOFF_BASE_MS = 5;
const BACKOFF_MAX_MS = 500;

const COLUMNS = 'body, token::pg_catalog.text, version::pg_catalog.text, write_id::pg_catalog.text';

interface Row {
  readonly body: string | null;
  readonly token: string;
  readonly version: string;
  readonly write_id: string | null;
}

/**
 * JSON documents in PostgreSQL, each with the highest token that it has seen. One statement writes and checks, so a write
 * takes one round trip, and a paused holder holds nothing.
 *
 * A write ends in one of three ways: it was applied; it was not; or `OutcomeUnknownError`, where a reply was lost and
 * the document does not tell.
 */
export class FencedRecords {
  readonly #collection: string;
  readonly #connections: Connections;
  readonly #waitLimit: WaitLimit;
  readonly #runtime: Runtime;

  /** Made by `records` of FencedPostgres. @throws {InvalidArgumentError} */
  constructor(collection: string, connections: Connections, holdMs: number, runtime: Runtime) {
    checkName('collection', collection);
    this.#collection = collection;
    this.#connections = connections;
    // The signal is not for the connection: closing that would leave a write unknown.
    this.#waitLimit = { limitMs: holdMs, signal: undefined };
    this.#runtime = runtime;
  }

  /**
   * Writes a document, whatever is there, unless a higher token has been seen. For read-modify-write use `update`.
   *
   * @throws {StaleTokenError} where a higher token has been seen.
   * @throws {VersionMismatchError} where another version is there than `expected`.
   * @throws {OutcomeUnknownError} where the reply was lost and the document does not tell.
   * @throws {StoreUnavailableError | StoreSetupError} nothing was written.
   * @throws {InvalidArgumentError | InvalidTokenError} nothing was sent; or it is JSON that PostgreSQL cannot store (`\u0000`).
   */
  async put(id: string, body: Json, options: RecordWriteOptions): Promise<WrittenRecord> {
    const { token } = this.#check(id, options);
    const json = toJson(body);
    return this.#published('put', id, token, () => this.#replace(id, json, token, options));
  }

  /**
   * Reads a document, has `edit` compute the next one, and writes that if nobody wrote in between; else starts again with what
   * they wrote. `edit` may be called several times, and should do nothing but compute. What it throws is passed on.
   *
   * @param edit is given null where there is no document.
   * @throws as `put`, and {ConflictError} where others wrote in between each time; nothing was written.
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
        const row = await this.#find(id, signal);
        const body = toJson(await edit(currentOf(row)));
        const written = await this.#write(id, body, token, row?.version ?? '0', signal);
        if (written) return written;
        if (attempt >= attemptsMax) throw new ConflictError({ resource: id, attempts: attempt });
        await this.#backOff(id, attempt, signal);
      }
    });
  }

  /** The document; null if there is none. Late writers may still change it: `claimAndGet` keeps them out. */
  async get(id: string, options: RecordReadOptions = {}): Promise<CurrentRecord | null> {
    checkObject('options', options);
    checkNoToken(options, 'claimAndGet');
    checkName('id', id);
    checkSignal('signal', options.signal);
    return currentOf(await this.#find(id, options.signal));
  }

  /**
   * Advances the ratchet without changing the document: from now on every lower token is refused. Errors as `put`. After
   * {@link OutcomeUnknownError}, claim again: that is harmless.
   */
  async claim(id: string, options: RecordOptions): Promise<void> {
    await this.#claim('claim', id, options, 'SELECT fenced.claim_record($1, $2, $3::bigint)');
  }

  /**
   * Claims the document and reads it in one step; null if there is none. When it returns, lower tokens are refused, so that nothing older can
   * still change the document, and its `token` is the caller's own. Errors as `claim`.
   */
  async claimAndGet(id: string, options: RecordOptions): Promise<CurrentRecord | null> {
    // In one statement: between two, another holder might write, and its document would be taken for ours.
    const statement = `SELECT ${COLUMNS} FROM fenced.claim_and_get_record($1, $2, $3::bigint)`;
    const { rows } = await this.#claim<Row>('claimAndGet', id, options, statement);
    return currentOf(rows[0]);
  }

  async #claim<Answer>(
    operation: 'claim' | 'claimAndGet',
    id: string,
    options: RecordOptions,
    statement: string,
  ): Promise<PostgresResult<Answer>> {
    const { token, signal } = this.#check(id, options);
    let isSent = false;
    const claim = (): Promise<PostgresResult<Answer>> =>
      this.#ask(id, signal, (session) => {
        isSent = true;
        return session.query<Answer>(statement, [this.#collection, id, String(token)]);
      }).catch((error) => {
        if (!isSent || !isUnanswered(error)) throw error;
        // The document keeps the ids of writes, not of claims.
        throw unknown(id, this.#runtime.uniqueId(), false, error);
      });
    return this.#published(operation, id, token, claim);
  }

  /** Deletes the document and keeps its token, so that earlier holders stay out. Errors as `put`. */
  async delete(id: string, options: RecordWriteOptions): Promise<WrittenRecord> {
    const { token } = this.#check(id, options);
    return this.#published('delete', id, token, () => this.#replace(id, null, token, options));
  }

  /**
   * What became of a write or a deletion, by its id. `applied` is certain as long as nobody has written after it; all else is
   * `unknown`: the write may come before another one, or may be under way still.
   */
  async settle(
    id: string,
    writeId: string,
    options: { readonly signal?: AbortSignal } = {},
  ): Promise<Exclude<Settlement, 'not-applied'>> {
    checkName('id', id);
    checkObject('options', options);
    checkSignal('signal', options.signal);
    const row = await this.#findLasting(id, options.signal);
    return row?.write_id === writeId ? 'applied' : 'unknown';
  }

  /** The highest token seen for the document; 0n where it was never written nor claimed. */
  async highest(id: string): Promise<bigint> {
    checkName('id', id);
    return BigInt((await this.#find(id, undefined))?.token ?? 0);
  }

  #published<Result>(
    operation: WriteEvent['operation'],
    id: string,
    token: bigint,
    write: () => Promise<Result>,
  ): Promise<Result> {
    return publishOutcome(
      write,
      () => ({ ...this.#eventOf(id), operation, token }),
      (result) => (result as Partial<WrittenRecord>).writeId,
      () => this.#runtime.nowMs(),
    );
  }

  #eventOf(id: string): Pick<StoreEvent, 'store' | 'collection' | 'resources'> {
    return { store: 'postgres', collection: this.#collection, resources: [id] };
  }

  #check(id: string, options: RecordOptions): { token: bigint; signal: AbortSignal | undefined } {
    checkName('id', id);
    checkObject('options', options);
    checkSignal('signal', options.signal);
    return { token: parseToken(options.token), signal: options.signal };
  }

  async #find(
    id: string,
    signal: AbortSignal | undefined,
    from = 'fenced.get_record($1, $2)',
  ): Promise<Row | undefined> {
    const { rows } = await this.#ask(id, signal, (session) =>
      session.query<Row>(`SELECT ${COLUMNS} FROM ${from}`, [this.#collection, id]),
    );
    return rows[0];
  }

  /** What is there even after a failover: with something for the log, so that it waits for synchronous standbys, as a write does. */
  async #findLasting(id: string, signal: AbortSignal | undefined): Promise<Row | undefined> {
    const something = "pg_logical_emit_message(true, 'fenced', '')";
    return this.#find(id, signal, `fenced.get_record($1, $2), ${something}`);
  }

  /** Writes upon what is expected, once. */
  async #replace(
    id: string,
    body: string | null,
    token: bigint,
    { expected, onWriteId, signal }: RecordWriteOptions,
  ): Promise<WrittenRecord> {
    if (onWriteId !== undefined) checkFunction('onWriteId', onWriteId);
    const version = expected === undefined ? null : await this.#versionOf(id, expected, signal);
    const written = await this.#write(id, body, token, version, signal, onWriteId);
    if (written !== null) return written;
    // Invariant: only a write that expects a version can miss it.
    if (expected === undefined) throw new Error('a write without expectation was not applied');
    throw mismatch(id, expected, await this.#find(id, signal));
  }

  /**
   * The version as the database counts it, where a document that was deleted, or only claimed, has one, too; -1, which none has,
   * where another one is there.
   */
  async #versionOf(
    id: string,
    expected: bigint | null,
    signal: AbortSignal | undefined,
  ): Promise<string> {
    if (expected !== null && typeof expected !== 'bigint')
      throw new InvalidArgumentError(`expected must be a bigint or null value=${shown(expected)}`);
    const row = await this.#find(id, signal);
    // A row is never removed, so that what is expected of none cannot come true later. An INSERT would not look.
    if (row === undefined && expected !== null) throw mismatch(id, expected, row);
    const present = row === undefined || row.body === null ? null : row.version;
    const isExpected = present === (expected === null ? null : String(expected));
    return isExpected ? (row?.version ?? '0') : '-1';
  }

  /** @returns null where the version was not the expected one: nothing was written. */
  async #write(
    id: string,
    body: string | null,
    token: bigint,
    expected: string | null,
    signal: AbortSignal | undefined,
    onWriteId?: (writeId: string) => void,
  ): Promise<WrittenRecord | null> {
    const writeId = this.#runtime.uniqueId();
    const values = [this.#collection, id, body, String(token), writeId, expected];
    let isSent = false;
    try {
      const version = await this.#ask(id, signal, async (session) => {
        isSent = true;
        onWriteId?.(writeId);
        const [result] = await session.batchFromStart<[string | null]>([put(values)]);
        return result?.rows[0]?.[0] ?? null;
      });
      return version === null ? null : { token, version: BigInt(version), writeId };
    } catch (error) {
      if (!isSent || !isUnanswered(error)) throw error;
      const row = await this.#findLasting(id, signal).catch(() => undefined);
      if (row?.write_id === writeId) return { token, version: BigInt(row.version), writeId };
      throw unknown(id, writeId, true, error);
    }
  }

  /** Asks until the server did not roll it back because of others. */
  async #ask<Answer>(
    id: string,
    signal: AbortSignal | undefined,
    question: (session: Session) => Promise<Answer>,
  ): Promise<Answer> {
    for (let attempt = 1; ; attempt++) {
      signal?.throwIfAborted();
      try {
        return await this.#connections.with(this.#waitLimit, async (session) => {
          signal?.throwIfAborted();
          try {
            return await question(session);
          } catch (error) {
            const isAlive = await session.rollBack('SELECT');
            throw isAlive && isServerError(error) ? meaningOf(error, id) : lost(error);
          }
        });
      } catch (error) {
        if (!isSerializationFailure(error)) throw error;
        if (attempt >= 10)
          throw new ConflictError({ resource: id, attempts: attempt }, { cause: error });
        await this.#backOff(id, attempt, signal, error);
      }
    }
  }

  #backOff(
    id: string,
    attempt: number,
    signal: AbortSignal | undefined,
    error?: unknown,
  ): Promise<void> {
    const facts = { attempt, reason: 'conflict', ...(error !== undefined && { error }) } as const;
    publish('fenced:store:retried', () => ({ ...this.#eventOf(id), ...facts }));
    const ceilingMs = Math.min(BACKOFF_MAX_MS, BACKOFF_BASE_MS * 2 ** attempt);
    return this.#runtime.sleep(this.#runtime.random() * ceilingMs, signal);
  }
}

function unknown(
  resource: string,
  writeId: string,
  canSettle: boolean,
  cause: unknown,
): OutcomeUnknownError {
  return new OutcomeUnknownError({ resource, writeId, store: 'postgres', canSettle }, { cause });
}

/** Whether a statement that was sent may have been carried out. */
function isUnanswered(error: unknown): boolean {
  return error instanceof StoreUnavailableError && !isAnswer(error.cause);
}

/** Whether the server itself said that it did not do it. */
function isAnswer(cause: unknown): boolean {
  return wasNotSent(cause) || (isServerError(cause) && cause.severity === 'ERROR');
}

function mismatch(id: string, expected: bigint | null, row: Row | undefined): Error {
  return new VersionMismatchError({
    resource: id,
    expected: expected === null ? null : String(expected),
    found: row === undefined || row.body === null ? null : row.version,
  });
}

function lost(error: unknown): Error {
  return new StoreUnavailableError('the connection was lost', { cause: error });
}

function meaningOf(error: Parameters<typeof refusal>[0], id: string): Error {
  switch (error.code) {
    case '22P05': // \u0000, which jsonb cannot hold, or a character that the database's encoding lacks.
    case '22P02':
      return new InvalidArgumentError(
        `PostgreSQL cannot store this JSON: ${error.message} id=${id}`,
      );
    case '54000':
    case '54001': // Too large, or nested too deep.
      return new UnsupportedByStoreError(`${error.message} id=${id}`, { cause: error });
    default:
      return refusal(error, id);
  }
}

function currentOf(row: Row | undefined): CurrentRecord | null {
  if (!row || row.body === null || row.write_id === null) return null;
  const { token, version, write_id: writeId } = row;
  return { body: JSON.parse(row.body), token: BigInt(token), version: BigInt(version), writeId };
}

/** @throws {InvalidArgumentError} where JSON has no word for it. */
function toJson(body: unknown): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(body);
  } catch (error) {
    throw new InvalidArgumentError(`body must be JSON: ${(error as Error).message}`);
  }
  if (text !== undefined) return text;
  throw new InvalidArgumentError(`body must be JSON value=${shown(body)}`);
}

/** @throws {InvalidArgumentError} where it cannot name a collection or a document. */
function checkName(what: string, name: unknown): void {
  const complaint = complaintAboutName(name);
  if (complaint) throw new InvalidArgumentError(`${what} ${complaint}`);
}
