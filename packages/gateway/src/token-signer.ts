import { createHmac, timingSafeEqual } from 'node:crypto';
import { InvalidArgumentError, parseToken } from '@fenced/store';
import { shown } from '@fenced/store/internal';

/**
 * Signs the tokens that the gateway issues, each for one subject, and accepts only those. A caller
 * that may present any number could present 2^63-1, and lock all others out for ever.
 *
 *     34.k1.1795000000000.mCgY5d…    token . key . end in ms since 1970 . HMAC-SHA256, base64url
 *
 * The HMAC covers token, key, end and subject. The end limits the use of a leaked signature. It is
 * not the end of the lease, because the token itself keeps late holders out.
 */
export interface TokenSigner {
  /** @throws {InvalidArgumentError | InvalidTokenError} if no valid signature could be made */
  sign(token: bigint, subject: SignatureSubject, expiresAtMs: number): string;
  /** @throws {SignatureError} */
  verify(text: string, subject: SignatureSubject): bigint;
}

/**
 * The only use of a signature. `token` presents the token of a lease of that resource. `lease`
 * extends and releases that owner's lease. A signature for one use is invalid for the other.
 */
export type SignatureSubject =
  | { readonly purpose: 'token'; readonly resource: string }
  | {
      readonly purpose: 'lease';
      /** One, or the sorted resources of a set. */
      readonly resource: string | readonly string[];
      readonly owner: string;
    };

export interface SigningKey {
  /** On the wire, in clear. 1 to 32 letters, digits, `_` and `-`. */
  readonly id: string;
  /** Random, at least 32 bytes. */
  readonly secret: Uint8Array;
}

/**
 * The reason of a refusal, as far as a caller would act differently:
 *
 * - `malformed`: not a signed token, but a bare number, for example. The caller must send the
 *   issued token unchanged.
 * - `expired`: it was valid. The caller must acquire the lease again.
 * - `refused`: another key or resource, or a changed text. The gateway does not reveal which.
 */
export type SignatureFault = 'malformed' | 'expired' | 'refused';

const EXPLANATIONS: Readonly<Record<SignatureFault, string>> = {
  malformed: 'the fencing token must be the signed one that the gateway issued with the lease',
  expired: "the fencing token's signature has expired: acquire the lease again",
  refused: 'the fencing token was not issued here for this resource',
};

/** No gateway with these keys issued the presented token for this resource. */
export class SignatureError extends Error {
  readonly fault: SignatureFault;

  constructor(fault: SignatureFault) {
    super(EXPLANATIONS[fault]);
    this.name = 'SignatureError';
    this.fault = fault;
  }
}

const SECRET_BYTES_MIN = 32;
const KEY_ID = /^[\w-]{1,32}$/;
const SIGNED = /^([1-9][0-9]{0,18})\.([\w-]{1,32})\.([1-9][0-9]{0,15})\.([\w-]{43})$/;

/**
 * @param keys The first one signs, all verify. To replace a key while several gateways run, append
 *   the new one everywhere, then put it first everywhere. Remove the old one after its last
 *   signature's end.
 * @param nowMs the wall clock in milliseconds since 1970
 * @throws {InvalidArgumentError} without a key, or with an invalid one
 */
export function createTokenSigner(keys: readonly SigningKey[], nowMs: () => number): TokenSigner {
  const secrets = new Map<string, Uint8Array>();
  for (const { id, secret } of keys) {
    if (!KEY_ID.test(id))
      throw new InvalidArgumentError(
        `id of a signing key must be 1 to 32 letters, digits, _ and - id=${shown(id)}`,
      );
    if (secrets.has(id)) throw new InvalidArgumentError(`two signing keys have one id id=${id}`);
    if (secret.length < SECRET_BYTES_MIN)
      throw new InvalidArgumentError(
        `secret of a signing key must be at least ${SECRET_BYTES_MIN} bytes id=${id} bytes=${secret.length}`,
      );
    secrets.set(id, Uint8Array.from(secret));
  }
  const [first] = keys;
  if (first === undefined) throw new InvalidArgumentError('at least one signing key is needed');

  const mac = (keyId: string, digits: string, end: string, subject: SignatureSubject): string => {
    const { purpose, resource } = subject;
    const owner = purpose === 'lease' ? subject.owner : null;
    return (
      createHmac('sha256', secrets.get(keyId) ?? '')
        // JSON encodes the fields without ambiguity. The first field separates other uses of the
        // secret.
        .update(
          JSON.stringify(['fenced-signed-token-1', purpose, keyId, digits, end, resource, owner]),
        )
        .digest('base64url')
    );
  };

  return {
    sign: (token, subject, expiresAtMs) => {
      const digits = String(parseToken(token));
      if (!Number.isSafeInteger(expiresAtMs) || expiresAtMs < 1)
        throw new InvalidArgumentError(
          `expiresAtMs must be whole milliseconds since 1970 value=${shown(expiresAtMs)}`,
        );
      const end = String(expiresAtMs);
      return [digits, first.id, end, mac(first.id, digits, end, subject)].join('.');
    },
    verify: (text, subject) => {
      const [, digits = '', keyId = '', end = '', given = ''] = SIGNED.exec(text) ?? [];
      if (given === '') throw new SignatureError('malformed');
      const expected = mac(keyId, digits, end, subject);
      const isGenuine = timingSafeEqual(Buffer.from(given), Buffer.from(expected));
      if (!isGenuine || !secrets.has(keyId)) throw new SignatureError('refused');
      if (Number(end) <= nowMs()) throw new SignatureError('expired');
      return parseToken(digits);
    },
  };
}
