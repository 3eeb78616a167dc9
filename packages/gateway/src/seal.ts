import { createHmac, timingSafeEqual } from 'node:crypto';
import { InvalidArgumentError, parseToken } from '@fenced/store';
import { shown } from '@fenced/store/internal';

/**
 * Whoever may present any number could present 2^63-1 and lock everybody else out for ever. So the gateway seals the tokens
 * that it issues, and accepts only those, each for the subject that it was issued for:
 *
 *     34.k1.1795000000000.mCgY5d…      token . key . when the seal ends, in ms since 1970 . HMAC-SHA256, as base64url
 *
 * The HMAC covers token, key, end and subject: the purpose with the names that belong to it. The seal's end is not the lease's: a holder that comes late is kept out by
 * its token, which is what tokens are for. It bounds for how long a seal that leaked can be used.
 */
export interface Seal {
  /** @throws {InvalidArgumentError | InvalidTokenError} if no seal could be made that opens again */
  seal(token: bigint, subject: SealSubject, expiresAtMs: number): string;
  /** @throws {SealError} */
  open(text: string, subject: SealSubject): bigint;
}

/**
 * The one thing that a seal is good for: `token` to present the token of a lease of that resource, `lease` to extend and release
 * that owner's lease. A seal for one opens nothing for the other, whatever the names are.
 */
export type SealSubject =
  | { readonly purpose: 'token'; readonly resource: string }
  | { readonly purpose: 'lease'; readonly resource: string; readonly owner: string };

export interface SealKey {
  /** On the wire, in clear. 1 to 32 letters, digits, `_` and `-`. */
  readonly id: string;
  /** Random, at least 32 bytes. */
  readonly secret: Uint8Array;
}

/**
 * Why a seal was refused, as far as a caller would act differently:
 *
 * - `malformed`: it is no sealed token, but a bare number, say. The caller must send what the gateway gave it, as it is.
 * - `expired`: it was good. The caller must acquire the lease again.
 * - `refused`: it was not made here, not for this resource, with a key that is gone, or was changed. Which one is not told.
 */
export type SealFault = 'malformed' | 'expired' | 'refused';

const EXPLANATIONS: Readonly<Record<SealFault, string>> = {
  malformed: 'the fencing token must be the sealed one that the gateway issued with the lease',
  expired: "the fencing token's seal has expired: acquire the lease again",
  refused: 'the fencing token was not issued here for this resource',
};

/** A presented token is none that this gateway, or one with the same keys, issued for the resource. */
export class SealError extends Error {
  readonly fault: SealFault;

  constructor(fault: SealFault) {
    super(EXPLANATIONS[fault]);
    this.name = 'SealError';
    this.fault = fault;
  }
}

const SECRET_BYTES_MIN = 32;
const KEY_ID = /^[\w-]{1,32}$/;
const SEALED = /^([1-9][0-9]{0,18})\.([\w-]{1,32})\.([1-9][0-9]{0,15})\.([\w-]{43})$/;

/**
 * @param keys the first one seals, all of them open. To replace a key while several gateways run: add the new one behind the old on
 *   all of them, then put it first on all of them, and take the old one away when the last seal made with it has ended.
 * @param nowMs the wall clock in milliseconds since 1970
 * @throws {InvalidArgumentError} where there is no key, or one cannot be used
 */
export function createSeal(keys: readonly SealKey[], nowMs: () => number): Seal {
  const secrets = new Map<string, Uint8Array>();
  for (const { id, secret } of keys) {
    if (!KEY_ID.test(id))
      throw new InvalidArgumentError(
        `id of a seal key must be 1 to 32 letters, digits, _ and - id=${shown(id)}`,
      );
    if (secrets.has(id)) throw new InvalidArgumentError(`two seal keys have one id id=${id}`);
    if (secret.length < SECRET_BYTES_MIN)
      throw new InvalidArgumentError(
        `secret of a seal key must be at least ${SECRET_BYTES_MIN} bytes id=${id} bytes=${secret.length}`,
      );
    secrets.set(id, Uint8Array.from(secret));
  }
  const [first] = keys;
  if (first === undefined) throw new InvalidArgumentError('at least one seal key is needed');

  const mac = (keyId: string, digits: string, end: string, subject: SealSubject): string => {
    const { purpose, resource } = subject;
    const owner = purpose === 'lease' ? subject.owner : null;
    return (
      createHmac('sha256', secrets.get(keyId) ?? '')
        // JSON has one reading only; the first word keeps other uses of the same secret apart.
        .update(JSON.stringify(['fenced-seal-2', purpose, keyId, digits, end, resource, owner]))
        .digest('base64url')
    );
  };

  return {
    seal: (token, subject, expiresAtMs) => {
      const digits = String(parseToken(token));
      if (!Number.isSafeInteger(expiresAtMs) || expiresAtMs < 1)
        throw new InvalidArgumentError(
          `expiresAtMs must be whole milliseconds since 1970 value=${shown(expiresAtMs)}`,
        );
      const end = String(expiresAtMs);
      return [digits, first.id, end, mac(first.id, digits, end, subject)].join('.');
    },
    open: (text, subject) => {
      const [, digits = '', keyId = '', end = '', given = ''] = SEALED.exec(text) ?? [];
      if (given === '') throw new SealError('malformed');
      const expected = mac(keyId, digits, end, subject);
      const isGenuine = timingSafeEqual(Buffer.from(given), Buffer.from(expected));
      if (!isGenuine || !secrets.has(keyId)) throw new SealError('refused');
      if (Number(end) <= nowMs()) throw new SealError('expired');
      return parseToken(digits);
    },
  };
}
