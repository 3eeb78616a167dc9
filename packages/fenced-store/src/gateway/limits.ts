import { checkObject, checkWholeNumber } from '../core/check.js';

/** What one gateway allows. Bytes and milliseconds. */
export interface Limits {
  /** The largest body of an object. @default 5 TiB, what S3 takes */
  readonly objectBytesMax?: number;
  /** The largest body of a record, or of any other request with JSON. @default 1 MiB */
  readonly recordBytesMax?: number;
  /** How many bodies of objects may be on their way to the store at once. @default 64 */
  readonly uploadsMax?: number;
  /** How many requests may be under way at once. @default 1000 */
  readonly requestsMax?: number;
  /** The longest `waitMs` of a lease. @default 30_000 */
  readonly waitMsMax?: number;
  /** How long a client may take to send or read the next piece of a body. @default 30_000 */
  readonly stallMs?: number;
  /** How long a sealed token may be presented after its lease has ended. @default 3_600_000 */
  readonly sealGraceMs?: number;
}

export type AllLimits = Required<Limits>;

const DEFAULTS: AllLimits = {
  objectBytesMax: 5 * 2 ** 40,
  recordBytesMax: 2 ** 20,
  uploadsMax: 64,
  requestsMax: 1_000,
  waitMsMax: 30_000,
  stallMs: 30_000,
  sealGraceMs: 3_600_000,
};

/** @throws {InvalidArgumentError} where one is no whole number, or none that makes sense. */
export function resolveLimits(given: Limits = {}): AllLimits {
  checkObject('limits', given);
  const limits = { ...DEFAULTS, ...given };
  for (const [name, value] of Object.entries(limits))
    checkWholeNumber(
      `limits.${name}`,
      value,
      name === 'waitMsMax' ? 0 : 1,
      Number.MAX_SAFE_INTEGER,
    );
  return limits;
}
