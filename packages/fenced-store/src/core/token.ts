import { InvalidTokenError } from './errors.js';

/**
 * A fencing token from a caller: a `bigint`, a whole `number`, or decimal digits. Use the digits
 * over HTTP and in JSON: JSON numbers lose precision above 2^53.
 */
export type TokenLike = bigint | number | string;

/** The largest token: 2^63-1, the largest `bigint` of Postgres. */
export const TOKEN_MAX: bigint = 2n ** 63n - 1n;

/**
 * Returns the token, between 1 and 2^63-1.
 *
 * @throws {InvalidTokenError} if it is zero, negative, a fraction, an imprecise number, too large,
 *   or no number.
 */
export function parseToken(value: TokenLike): bigint {
  const token = toBigint(value);
  if (token === null) throw new InvalidTokenError(value);
  if (token < 1n || token > TOKEN_MAX) throw new InvalidTokenError(value);
  return token;
}

function toBigint(value: unknown): bigint | null {
  switch (typeof value) {
    case 'bigint':
      return value;
    case 'number':
      // A number above 2^53-1 may have been rounded to another holder's token.
      return Number.isSafeInteger(value) ? BigInt(value) : null;
    case 'string':
      return /^[1-9][0-9]{0,18}$/.test(value) ? BigInt(value) : null;
    default:
      return null;
  }
}
