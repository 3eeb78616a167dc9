import { LockArgumentError } from './errors.js';
import { driftMs } from './validity.js';

/** Settings of a `Redlock` besides its nodes. All clients of these nodes should agree on them. */
export interface RedlockOptions {
  /**
   * The longest lease in milliseconds that this client may ask for, 10 to 86,400,000 (a day). Nodes
   * that have no limit yet store it, and refuse longer leases. From then on the limit is theirs:
   * `readmit` changes it. Without this option, such nodes get a limit of a day.
   * @default 60_000
   */
  readonly maxTtlMs?: number;
  /**
   * Prefix of all keys. Braces make Redis Cluster keep them in one slot. Another prefix is another
   * lock service: the two share neither locks nor the order of tokens.
   * @default '{fenced}:'
   */
  readonly keyPrefix?: string;
  /**
   * Milliseconds for which a node remembers the last token of a resource that nobody locks. It may
   * remember it for twice as long. At least `maxTtlMs`, at most 365 days.
   *
   * If clients set different times, the shortest counts. If memory is full, names are forgotten
   * earlier.
   * Forgetting is safe: the next token then continues from the highest of all resources.
   * @default 300_000, or `maxTtlMs` if that is longer
   */
  readonly fenceTtlMs?: number;
  /**
   * The first token of nodes that were never used, 1 to 2^53-1, for demonstrations only. Without
   * it, tokens begin at the wall clock's microseconds. They then go on growing even if all nodes
   * lose everything at once. With it, tokens begin at `firstToken` again after such a loss, below
   * the earlier ones.
   */
  readonly firstToken?: bigint;
}

export type ResolvedOptions = Required<Omit<RedlockOptions, 'firstToken'>> & {
  /** The limit of the leases for nodes that have none. */
  readonly firstMaxTtlMs: number;
  readonly firstToken: bigint | null;
};

const TTL_MIN_MS = 10;
const DAY_MS = 86_400_000;
/** Five times the default of `maxTtlMs`. docs/redis-servers.md has the memory that this costs. */
const FENCE_TTL_MS = 300_000;
const WAIT_MAX_MS = 2 ** 31 - 1;
const RESOURCE_LENGTH_MAX = 1024;
const RESOURCES_MAX = 256;
const NODES_MAX = 15;
const FIRST_TOKEN_MAX = 2n ** 53n - 1n;

/** Settings of other libraries, above all of node-redlock, and the setting to use here instead. */
const HINTS: ReadonlyMap<string, string> = new Map([
  ['retryCount', 'waitMs of acquire and using says for how long to try'],
  ['retryDelay', 'a waiter is woken when the lock is free; waitMs says for how long to try'],
  ['retryJitter', 'the pauses between attempts have their own jitter'],
  ['driftFactor', 'each lease counts 1 % of its TTL and 2 ms for drift'],
  ['automaticExtensionThreshold', 'using extends each time half of what is left has passed'],
  ['settings', 'give each setting to the call that it concerns'],
  ['extensionsMax', 'maxHoldMs says for how long a lease may be held in all'],
  ['waitMs', 'acquire and using wait; tryAcquire makes one attempt'],
  [
    'resources',
    'the field is called resource, also for several; a lease that you have extends and releases itself',
  ],
  ['clients', 'the field is called nodes'],
  [
    'client',
    'give nodes to Redlock, pool to PostgresLock, and { objects: new FencedS3({ client, bucket }) } to S3Lock',
  ],
  ['bucket', 'give { objects: new FencedS3({ client, bucket }) }'],
  ['ttl', 'the field of acquire and using is called ttlMs'],
  ['duration', 'the field of acquire and using is called ttlMs'],
  ['wait', 'waitMs of acquire and using says for how long to try'],
  ['timeout', 'waitMs of acquire and using says for how long to try'],
  ['name', 'the field is called resource'],
  ['host', 'make a client of the address, and pass { name, client }'],
  ['url', 'make a client of the address, and pass { name, client }'],
  ['connect', 'pass { pool }'],
  ['connectionString', 'make a pool with it, and pass { pool }'],
]);

/**
 * Requires an object with no other fields than these. Otherwise a misspelt setting, or one of
 * another library, would be ignored silently.
 *
 * @param what for the message, as `the options of acquire`
 * @throws {LockArgumentError} it is no object, or it has another field
 */
export function checkFields(what: string, options: unknown, known: readonly string[]): void {
  if (typeof options !== 'object' || options === null)
    throw noOptions(what, known, String(options && typeof options), options);
  if (Array.isArray(options)) throw noOptions(what, known, 'an array');
  for (const field of Object.keys(options)) {
    if (known.includes(field)) continue;
    const hint = HINTS.get(field);
    // The caller may have passed a client or a pool in place of the options.
    const { name = 'Object' } = Object(options.constructor);
    if (hint === undefined && name !== 'Object') throw noOptions(what, known, `a ${name}`);
    throw new LockArgumentError(
      `unknown field ${field} in ${what}${hint === undefined ? '' : `: ${hint}`}; known are ${known.join(', ')}`,
    );
  }
}

function noOptions(
  what: string,
  [example]: readonly string[],
  type: string,
  value?: unknown,
): LockArgumentError {
  const shown = typeof value === 'number' ? String(value) : '…';
  return new LockArgumentError(
    `${what} must be an object such as { ${example}: ${shown} }, not ${type}`,
  );
}

/** Returns the longest lease that nodes grant, checked. */
export function checkMaxTtlMs(value: number): number {
  return milliseconds('maxTtlMs', value, TTL_MIN_MS, DAY_MS);
}

export function resolveOptions(options: RedlockOptions): ResolvedOptions {
  const { keyPrefix = '{fenced}:', firstToken = null } = options;
  const maxTtlMs = checkMaxTtlMs(options.maxTtlMs ?? 60_000);
  const firstMaxTtlMs = options.maxTtlMs ?? DAY_MS;
  const fenceTtlMs = milliseconds(
    'fenceTtlMs',
    options.fenceTtlMs ?? Math.max(FENCE_TTL_MS, maxTtlMs),
    maxTtlMs,
    365 * DAY_MS,
  );
  if (typeof keyPrefix !== 'string' || keyPrefix === '' || !keyPrefix.isWellFormed()) {
    throw new LockArgumentError('keyPrefix must be a non-empty string of well-formed Unicode');
  }
  if (firstToken !== null && !isFirstToken(firstToken)) {
    throw new LockArgumentError(
      `firstToken must be a bigint from 1 to ${FIRST_TOKEN_MAX} firstToken=${String(firstToken)} type=${typeof firstToken}`,
    );
  }
  return Object.freeze({ maxTtlMs, firstMaxTtlMs, keyPrefix, fenceTtlMs, firstToken });
}

function isFirstToken(value: unknown): boolean {
  return typeof value === 'bigint' && value >= 1n && value <= FIRST_TOKEN_MAX;
}

/**
 * Returns a setting that is on or off, checked.
 *
 * @param place for the message, as ` of nodes[0]`
 */
export function checkFlag(name: string, value: unknown, place = ''): boolean {
  if (typeof value === 'boolean') return value;
  throw new LockArgumentError(
    `${name}${place} must be true or false ${name}=${String(value)} type=${typeof value}`,
  );
}

/** Checks the names of the nodes. */
export function checkNodeNames(names: readonly string[]): void {
  if (names.length === 0) {
    throw new LockArgumentError('nodes must name at least one Redis node nodes=0');
  }
  if (names.length > NODES_MAX) {
    throw new LockArgumentError(
      `nodes must be at most ${NODES_MAX}: more only add delay nodes=${names.length}`,
    );
  }
  const twice = names.find((name, at) => names.indexOf(name) !== at);
  if (twice !== undefined) {
    throw new LockArgumentError(`each node needs a name of its own; used twice: name=${twice}`);
  }
}

/** Returns the resources of one lease, checked and sorted, so all clients name a set alike. */
export function checkResources(resource: string | readonly string[]): readonly string[] {
  const resources: readonly string[] = Array.isArray(resource) ? [...resource] : [resource];
  if (resources.length === 0) throw new LockArgumentError('resource must name at least one thing');
  if (resources.length > RESOURCES_MAX) {
    throw new LockArgumentError(
      `one lease has at most ${RESOURCES_MAX} resources resources=${resources.length}`,
    );
  }
  for (const name of resources) {
    if (typeof name !== 'string' || name === '' || name.length > RESOURCE_LENGTH_MAX) {
      throw new LockArgumentError(
        `resource must be a string of 1 to ${RESOURCE_LENGTH_MAX} characters resource=${String(name).slice(0, 60)}`,
      );
    }
    if (!name.isWellFormed()) {
      throw new LockArgumentError(
        `resource must be well-formed Unicode resource=${JSON.stringify(name)}`,
      );
    }
  }
  if (resources.length === 1) return resources;
  const twice = resources.find((name, at) => resources.indexOf(name) !== at);
  if (twice !== undefined) throw new LockArgumentError(`resource is named twice: ${twice}`);
  return resources.toSorted();
}

/** Returns the time to live of a lease, checked. */
export function checkTtlMs(ttlMs: number, maxTtlMs: number): number {
  const note = ` (maxTtlMs=${maxTtlMs}; using extends a lease while its function runs)`;
  milliseconds('ttlMs', ttlMs, TTL_MIN_MS, maxTtlMs, note);
  // Invariant: a lease that is granted at once can be relied on for some time.
  if (driftMs(ttlMs) >= ttlMs) throw new Error(`drift exceeds the lease ttlMs=${ttlMs}`);
  return ttlMs;
}

/** Returns the time that an acquire may wait, checked. */
export function checkWaitMs(waitMs: number): number {
  return milliseconds('waitMs', waitMs, 0, WAIT_MAX_MS);
}

/** Returns the total time for which a lease may be held, checked; infinity if none is given. */
export function checkMaxHoldMs(maxHoldMs: number | undefined, ttlMs: number): number {
  if (maxHoldMs === undefined) return Number.POSITIVE_INFINITY;
  return milliseconds('maxHoldMs', maxHoldMs, ttlMs, WAIT_MAX_MS, ` (ttlMs=${ttlMs})`);
}

/** Returns a time, checked. @param note on the limits, for the message */
export function milliseconds(
  name: string,
  value: number,
  min: number,
  max: number,
  note = '',
): number {
  if (Number.isSafeInteger(value) && value >= min && value <= max) return value;
  throw new LockArgumentError(
    `${name} must be a whole number of milliseconds from ${min} to ${max}${note} ${name}=${String(value)} type=${typeof value}`,
  );
}
