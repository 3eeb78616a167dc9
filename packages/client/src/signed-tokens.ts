import { InvalidArgumentError, parseToken, type TokenLike } from '@fenced/store';
import { encodedPath } from './protocol/path.js';

/** A token as it is presented: its number, and the headers for the gateway. */
export interface Presented {
  readonly token: bigint;
  readonly headers: Readonly<Record<string, string>>;
}

const TOKENS_MAX = 10_000;

/**
 * The signed form of each token that this client received. So callers can name tokens by their
 * numbers. Beyond {@link TOKENS_MAX}, the oldest token is forgotten. A gateway that signs refuses
 * its bare number.
 */
export class SignedTokens {
  readonly #byToken = new Map<bigint, Map<string, string>>();

  /** Keeps the signed form of a token. @returns the token's number */
  keep(signed: string, resource: string): bigint {
    const token = parseToken(signed.split('.', 1)[0] ?? '');
    const known = this.#byToken.get(token) ?? new Map<string, string>();
    this.#byToken.delete(token);
    this.#byToken.set(token, known.set(resource, signed));
    if (this.#byToken.size > TOKENS_MAX)
      for (const [oldest] of this.#byToken) {
        this.#byToken.delete(oldest);
        break;
      }
    return token;
  }

  /**
   * @param key the key that is read or written
   * @throws {InvalidTokenError}
   * @throws {InvalidArgumentError} if leases of several resources have this number, and the key is
   *   none of them
   */
  present(given: TokenLike, key: string): Presented {
    const token = parseToken(given);
    const known = this.#byToken.get(token);
    if (known === undefined) return { token, headers: { 'Fencing-Token': String(token) } };
    const [only] = known;
    const [resource, signed] = known.has(key) ? [key, known.get(key)] : (only ?? []);
    const isSigned = signed?.includes('.') ?? false;
    if (
      signed === undefined ||
      resource === undefined ||
      (isSigned && known.size > 1 && resource !== key)
    )
      throw new InvalidArgumentError(
        `the lease of this token has several resources, and the key is none of them: write under a lease of one resource token=${token} key=${key}`,
      );
    return {
      token,
      headers: {
        'Fencing-Token': signed,
        ...(isSigned && resource !== key && { 'Fencing-Resource': encodedPath(resource) }),
      },
    };
  }
}
