import { InvalidArgumentError, parseToken, type TokenLike } from '@fenced/store';
import { encodedPath } from './protocol/path.js';

/** A token as it is presented: the number for the caller, the headers for the gateway. */
export interface Presented {
  readonly token: bigint;
  readonly headers: Readonly<Record<string, string>>;
}

const TOKENS_MAX = 10_000;

/**
 * The seals of the tokens that this client was given, so that callers can go on naming tokens by their numbers. The oldest ones
 * are forgotten where there are too many: the gateway then says that it wants the sealed one.
 */
export class Seals {
  readonly #byToken = new Map<bigint, Map<string, string>>();

  /** @returns the number */
  keep(sealed: string, resource: string): bigint {
    const token = parseToken(sealed.split('.', 1)[0] ?? '');
    const known = this.#byToken.get(token) ?? new Map<string, string>();
    this.#byToken.delete(token);
    this.#byToken.set(token, known.set(resource, sealed));
    if (this.#byToken.size > TOKENS_MAX)
      for (const [oldest] of this.#byToken) {
        this.#byToken.delete(oldest);
        break;
      }
    return token;
  }

  /**
   * @param key what is read or written
   * @throws {InvalidTokenError}
   * @throws {InvalidArgumentError} where several leases have this number, and none of them is the key's
   */
  present(given: TokenLike, key: string): Presented {
    const token = parseToken(given);
    const known = this.#byToken.get(token);
    if (known === undefined) return { token, headers: { 'Fencing-Token': String(token) } };
    const [only] = known;
    const [resource, sealed] = known.has(key) ? [key, known.get(key)] : (only ?? []);
    if (sealed === undefined || resource === undefined || (known.size > 1 && resource !== key))
      throw new InvalidArgumentError(
        `several leases have this token: write under one whose resource is the key token=${token} key=${key}`,
      );
    const isSealed = sealed.includes('.');
    return {
      token,
      headers: {
        'Fencing-Token': sealed,
        ...(isSealed && resource !== key && { 'Fencing-Resource': encodedPath(resource) }),
      },
    };
  }
}
