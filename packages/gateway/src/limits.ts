import { checkObject, checkWholeNumber } from '@fenced/store/internal';

/** What one gateway allows. Bytes and milliseconds. */
export interface Limits {
  /** The largest body of an object. @default 5 GiB */
  readonly bodyBytesMax?: number;
  /** The largest record, and any other JSON. @default 1 MiB */
  readonly recordBytesMax?: number;
  /**
   * How many objects may be written at once. Of this and of the next two, a caller never uses more than it leaves free for others.
   *
   * @default 64
   */
  readonly uploadsMax?: number;
  /** How many requests may be under way at once, besides those that ask how the gateway is. @default 1000 */
  readonly requestsMax?: number;
  /** How many requests may wait for a lease at once. They do not count as under way. @default 4000 */
  readonly waitsMax?: number;
  /** How long the stores and the lock nodes may take for their part of a request, besides a wait for a lease. @default 50_000 */
  readonly storeTimeoutMs?: number;
  /** The longest wait for a lease. @default 30_000 */
  readonly waitMsMax?: number;
  /** The least that a client must send, or read, of a body in a second, on average over `idleTimeoutMs`. @default 16_384 */
  readonly bytesPerSecondMin?: number;
  /** How long a client may take to send, or to read, that many seconds' worth of a body, or what is left of it. @default 30_000 */
  readonly idleTimeoutMs?: number;
}

export type AllLimits = Required<Limits>;

const DEFAULTS: AllLimits = {
  bodyBytesMax: 5 * 2 ** 30,
  recordBytesMax: 2 ** 20,
  uploadsMax: 64,
  requestsMax: 1_000,
  waitsMax: 4_000,
  storeTimeoutMs: 50_000,
  waitMsMax: 30_000,
  bytesPerSecondMin: 16_384,
  idleTimeoutMs: 30_000,
};
const MAY_BE_0: readonly string[] = ['bodyBytesMax', 'waitMsMax', 'bytesPerSecondMin'];

/** @throws {InvalidArgumentError} where one is no whole number, or too small. */
export function resolveLimits(given: Limits = {}): AllLimits {
  checkObject('limits', given);
  const limits = { ...DEFAULTS, ...given };
  for (const [name, value] of Object.entries(limits)) {
    const min = MAY_BE_0.includes(name) ? 0 : 1;
    checkWholeNumber(`limits.${name}`, value, min, Number.MAX_SAFE_INTEGER);
  }
  return limits;
}
