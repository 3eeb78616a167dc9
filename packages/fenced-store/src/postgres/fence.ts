import {
  checkFunction,
  checkObject,
  checkOptions,
  checkSignal,
  checkWholeNumber,
} from '../core/check.js';
import { InvalidArgumentError } from '../core/errors.js';
import { shown } from '../core/shown.js';
import { parseToken, type TokenLike } from '../core/token.js';

/** PostgreSQL's three levels. The server treats READ UNCOMMITTED as READ COMMITTED. */
export type IsolationLevel = 'read committed' | 'repeatable read' | 'serializable';

/** The token of a writer, with its resource and its time limits. */
export interface Fence {
  /**
   * The resource of the token, or several: 1 to 1024 bytes each. Several are locked in sorted
   * order, so that transactions which share some of them cannot deadlock over them.
   */
  readonly resource: string | readonly string[];
  /** The token of the lock that the caller holds; see `parseToken`. */
  readonly token: TokenLike;
  /**
   * The lease of the token. Its remaining time takes the place of `holdMs`. Its signal ends the
   * wait for a connection or a statement, and prevents COMMIT. If it has a `token` or `resources`,
   * as leases of `@fenced/lock` have, they must be those of this fence. If the lease guards other
   * names as well, pass its time alone: `{ remainingMs: () => lease.remainingMs(), signal }`.
   */
  readonly lease?: {
    remainingMs(): number;
    readonly signal?: AbortSignal;
    readonly token?: bigint;
    readonly resources?: readonly string[];
  };
  /** Acts as `lease.signal` does, for a lock whose leases have no signal. */
  readonly signal?: AbortSignal;
  /**
   * Number of attempts, if the server rolls the transaction back because of concurrent ones
   * (SQLSTATE 40001 and 40P01).
   * @default 10
   */
  readonly attemptsMax?: number;
  /**
   * An id from `newWriteId`, for this write only. The transaction notes it in a row of 40 bytes,
   * which is kept for a day. `settle` then reports the outcome, also to another process.
   */
  readonly writeId?: string;
}

export interface TransactionOptions extends Fence {
  /** @default 'read committed' */
  readonly isolation?: IsolationLevel;
}

/** A fence whose fields were checked. */
export interface CheckedFence {
  /** Sorted, without duplicates. */
  readonly resources: readonly string[];
  readonly token: bigint;
  readonly isolation: IsolationLevel;
  readonly attemptsMax: number;
  readonly signal: AbortSignal | undefined;
  readonly writeId: string | undefined;
  readonly hasLease: boolean;
  /**
   * Milliseconds for which the resource may be held from now on.
   *
   * @throws {InvalidArgumentError} the lease is over
   */
  limitMs(): number;
}

const NAME_BYTES_MAX = 1024;
const ISOLATION_LEVELS: readonly unknown[] = ['read committed', 'repeatable read', 'serializable'];

/** The longest time limit of PostgreSQL: about 24 days. */
export const LIMIT_MS_MAX: number = 2 ** 31 - 1;

/**
 * Checks the caller's fence before anything is sent.
 *
 * @throws {InvalidArgumentError}
 * @throws {InvalidTokenError}
 */
export function checkFence(options: TransactionOptions, holdMs: number): CheckedFence {
  checkOptions(options);
  const { isolation = 'read committed', attemptsMax = 10, lease, writeId } = options;
  checkSignal('signal', options.signal);
  if (!ISOLATION_LEVELS.includes(isolation))
    throw new InvalidArgumentError(
      `isolation must be one of ${ISOLATION_LEVELS.join(', ')} value=${shown(isolation)}`,
    );
  checkWholeNumber('attemptsMax', attemptsMax, 1, Number.MAX_SAFE_INTEGER);
  if (writeId !== undefined && !isNoted(writeId)) throw badWriteId(writeId);
  const resources = checkResources(options.resource);
  const token = parseToken(options.token);
  if (lease !== undefined) checkLease(lease, resources, token);
  return {
    resources,
    token,
    isolation,
    attemptsMax,
    signal: eitherOf(options.signal, lease?.signal),
    writeId,
    hasLease: lease !== undefined,
    limitMs: () => (lease ? remainingMs(lease) : holdMs),
  };
}

function checkLease(
  lease: NonNullable<Fence['lease']>,
  resources: readonly string[],
  token: bigint,
): void {
  checkObject('lease', lease);
  checkFunction('lease.remainingMs', lease.remainingMs);
  checkSignal('lease.signal', lease.signal);
  if (lease.token !== undefined && lease.token !== token)
    throw new InvalidArgumentError(
      `the lease has another token: pass lease.token token=${token} lease.token=${shown(lease.token)}`,
    );
  const locked = lease.resources;
  if (locked === undefined) return;
  const other = resources.find((name) => !locked.includes(name));
  if (other !== undefined)
    throw new InvalidArgumentError(
      `the lease is of ${locked.join(', ')}: lock ${other} with it, or pass only its time: { remainingMs: () => lease.remainingMs(), signal: lease.signal } resource=${other}`,
    );
}

function eitherOf(a: AbortSignal | undefined, b: AbortSignal | undefined): AbortSignal | undefined {
  return a && b ? AbortSignal.any([a, b]) : (a ?? b);
}

function checkResources(resource: string | readonly string[]): readonly string[] {
  const resources = [...new Set(Array.isArray(resource) ? resource : [resource])].sort();
  if (resources.length === 0)
    throw new InvalidArgumentError('resource must contain at least one name');
  for (const name of resources) checkName('resource', name);
  return resources;
}

const WRITE_ID = /^[0-9a-f]{8}-[0-9a-f]{4}-([47])[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

/**
 * True for an id of `newWriteId`, a UUID of version 7, which the database notes. False for a UUID
 * of version 4, which only the error of a write without `writeId` contains.
 *
 * @throws {InvalidArgumentError} the id is neither
 */
export function isNoted(writeId: unknown): boolean {
  const [, version] = WRITE_ID.exec(typeof writeId === 'string' ? writeId : '') ?? [];
  if (version === undefined) throw badWriteId(writeId);
  return version === '7';
}

function badWriteId(writeId: unknown): InvalidArgumentError {
  return new InvalidArgumentError(`writeId must come from newWriteId() value=${shown(writeId)}`);
}

/** @throws {InvalidArgumentError} it cannot name a resource, a collection or a document */
export function checkName(what: string, name: unknown): void {
  const complaint = complaintAbout(name);
  if (complaint) throw new InvalidArgumentError(`${what} ${complaint}`);
}

function complaintAbout(name: unknown): string | null {
  if (typeof name !== 'string') return `must be a string type=${typeof name}`;
  if (name === '') return 'must not be empty';
  if (name.includes('\0')) return 'must not contain NUL, which PostgreSQL cannot store';
  if (!name.isWellFormed()) return 'must not contain half a surrogate pair';
  const bytes = Buffer.byteLength(name);
  return bytes > NAME_BYTES_MAX
    ? `must not exceed ${NAME_BYTES_MAX} bytes in UTF-8 bytes=${bytes}`
    : null;
}

/** The lease's remaining time, rounded up. PostgreSQL takes 0 as "no limit". */
function remainingMs(lease: { remainingMs(): number }): number {
  const leftMs = Math.ceil(lease.remainingMs());
  if (leftMs >= 1) return Math.min(leftMs, LIMIT_MS_MAX);
  throw new InvalidArgumentError(
    `the lease is over: acquire the lock again, for a new token remainingMs=${leftMs}`,
  );
}
