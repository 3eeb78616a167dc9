import { checkFunction, checkObject, checkSignal, checkWholeNumber } from '../core/check.js';
import { InvalidArgumentError } from '../core/errors.js';
import { shown } from '../core/shown.js';
import { parseToken, type TokenLike } from '../core/token.js';

/** The three levels of PostgreSQL; READ UNCOMMITTED is READ COMMITTED there. */
export type IsolationLevel = 'read committed' | 'repeatable read' | 'serializable';

/** What a writer presents. */
export interface Fence {
  /**
   * What the token was given for: 1 to 1024 bytes each. Several are advanced in sorted order, so that transactions
   * which share some of them cannot deadlock over them.
   */
  readonly resource: string | readonly string[];
  /** The token of the lock that the caller holds; see `parseToken`. */
  readonly token: TokenLike;
  /**
   * The lease behind the token, as far as it is used here. Its remaining time takes the place of `holdMs`; its signal ends
   * the wait for a connection or a statement, and keeps `COMMIT` from being sent.
   */
  readonly lease?: { remainingMs(): number; readonly signal?: AbortSignal };
  /** As the lease's signal, for callers whose lock has none. */
  readonly signal?: AbortSignal;
  /**
   * How often the transaction is run at most where the server rolls it back because of others (SQLSTATE 40001 and 40P01).
   * @default 10
   */
  readonly attemptsMax?: number;
  /**
   * A name for the write, from `newWriteId`: the transaction then notes it (one more row of 40 bytes, kept for a day), so
   * that `settle` can tell what became of it, also another process after this one was killed. To be used once.
   */
  readonly writeId?: string;
}

export interface TransactionOptions extends Fence {
  /** @default 'read committed' */
  readonly isolation?: IsolationLevel;
}

/** A fence that was read and found good. */
export interface CheckedFence {
  /** Without duplicates and in the order in which they are advanced. */
  readonly resources: readonly string[];
  readonly token: bigint;
  readonly isolation: IsolationLevel;
  readonly attemptsMax: number;
  readonly signal: AbortSignal | undefined;
  readonly writeId: string | undefined;
  readonly hasLease: boolean;
  /**
   * How long the resource may be held from now on: asked again for every message that says so to the server.
   *
   * @throws {InvalidArgumentError} where the lease is over.
   */
  limitMs(): number;
}

const RESOURCE_BYTES_MAX = 1024;
const ISOLATION_LEVELS: readonly unknown[] = ['read committed', 'repeatable read', 'serializable'];

/** The longest time limit that PostgreSQL takes: about 24 days. */
export const LIMIT_MS_MAX: number = 2 ** 31 - 1;

/**
 * Reads what the caller presents, before anything is sent.
 *
 * @throws {InvalidArgumentError} @throws {InvalidTokenError}
 */
export function checkFence(options: TransactionOptions, holdMs: number): CheckedFence {
  checkObject('options', options);
  const { isolation = 'read committed', attemptsMax = 10, lease, writeId } = options;
  checkSignal('signal', options.signal);
  if (lease !== undefined) {
    checkObject('lease', lease);
    checkFunction('lease.remainingMs', lease.remainingMs);
    checkSignal('lease.signal', lease.signal);
  }
  if (!ISOLATION_LEVELS.includes(isolation)) {
    throw new InvalidArgumentError(
      `isolation must be one of ${ISOLATION_LEVELS.join(', ')} value=${shown(isolation)}`,
    );
  }
  checkWholeNumber('attemptsMax', attemptsMax, 1, Number.MAX_SAFE_INTEGER);
  if (writeId !== undefined && !checkWriteId(writeId))
    throw new InvalidArgumentError(`writeId must be one of newWriteId() value=${shown(writeId)}`);
  return {
    resources: checkResources(options.resource),
    token: parseToken(options.token),
    isolation,
    attemptsMax,
    signal: eitherOf(options.signal, lease?.signal),
    writeId,
    hasLease: lease !== undefined,
    limitMs: () => (lease ? leaseMs(lease) : holdMs),
  };
}

function eitherOf(a: AbortSignal | undefined, b: AbortSignal | undefined): AbortSignal | undefined {
  return a && b ? AbortSignal.any([a, b]) : (a ?? b);
}

/** @throws {InvalidArgumentError} where one of them cannot name a resource, or there is none. */
function checkResources(resource: string | readonly string[]): readonly string[] {
  if (typeof resource === 'string') {
    checkResource(resource);
    return [resource];
  }
  const resources = [...new Set(Array.isArray(resource) ? resource : [resource])];
  if (resources.length === 0) throw new InvalidArgumentError('resource must name at least one');
  for (const name of resources) checkResource(name);
  // By bytes, as `fenced.present` sorts them: all must have one order, and JavaScript's own is another one.
  return resources.sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
}

/**
 * Whether it is an id that `newWriteId` made; `false` for those of version 4, which errors of other writes have.
 *
 * @throws {InvalidArgumentError} where it is neither.
 */
export function checkWriteId(writeId: unknown): boolean {
  const [, version] =
    /^[0-9a-f]{8}-[0-9a-f]{4}-([47])[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.exec(
      typeof writeId === 'string' ? writeId : '',
    ) ?? [];
  if (version === undefined)
    throw new InvalidArgumentError(`writeId must be one of newWriteId() value=${shown(writeId)}`);
  return version === '7';
}

/** @throws {InvalidArgumentError} where it cannot name a resource. */
export function checkResource(name: unknown): void {
  const complaint = complaintAboutName(name);
  if (complaint) throw new InvalidArgumentError(`resource ${complaint}`);
}

export function complaintAboutName(name: unknown): string | null {
  if (typeof name !== 'string') return `must be a string type=${typeof name}`;
  if (name === '') return 'must not be empty';
  if (name.includes('\0')) return 'must not contain NUL, which PostgreSQL cannot store';
  if (!name.isWellFormed()) return 'must not contain half a surrogate pair';
  const bytes = Buffer.byteLength(name);
  return bytes > RESOURCE_BYTES_MAX
    ? `must not exceed ${RESOURCE_BYTES_MAX} bytes in UTF-8 bytes=${bytes}`
    : null;
}

/** Rounded up: 0 would mean "no limit" to PostgreSQL. */
function leaseMs(lease: { remainingMs(): number }): number {
  const remainingMs = Math.ceil(lease.remainingMs());
  if (remainingMs >= 1) return Math.min(remainingMs, LIMIT_MS_MAX);
  throw new InvalidArgumentError(
    `the lease is over: acquire the lock again, for a new token remainingMs=${remainingMs}`,
  );
}
