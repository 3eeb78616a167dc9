import { createTokenSigner, type GatewayOptions, type TokenSigner } from '@fenced/gateway';
import type { Config } from '@fenced/gateway/config';
import { type Credentials, openCredentials } from '@fenced/gateway/credentials';
import { parseToken } from '@fenced/store';

/**
 * The credentials and signing keys of a gateway that runs. They can be replaced without a restart:
 * each request is checked with those of its beginning.
 */
export class GatewaySecrets {
  #config: Config;
  #keys: Credentials | undefined;
  #jwt: Credentials | undefined;
  #signer: TokenSigner | undefined;

  constructor(config: Config) {
    this.#config = config;
    this.#keys = keysOf(config);
    this.#jwt = jwtOf(config);
    this.#signer = signerOf(config);
  }

  get options(): Pick<GatewayOptions, 'credentials' | 'signer'> {
    const signer = (): TokenSigner => this.#signer as TokenSigner;
    return {
      ...(!this.#config.credentials.anonymous && {
        credentials: {
          authenticate: async (authorization) =>
            (await this.#keys?.authenticate(authorization)) ??
            (await this.#jwt?.authenticate(authorization)) ??
            null,
        },
      }),
      ...(this.#signer && {
        signer: {
          sign: (...token) => signer().sign(...token),
          verify: (...token) => signer().verify(...token),
        },
      }),
    };
  }

  /**
   * Takes the credentials and signing keys of another configuration. The issuer's keys that were
   * fetched stay known, unless the settings for JSON Web Tokens differ.
   *
   * @returns whether anything has changed
   * @throws if credentials or signing were added or removed as a whole. The address of the gateway
   *   and the form of its tokens depend on them, so that needs a restart.
   */
  replace(config: Config): boolean {
    const before = this.#config;
    if (before.credentials.anonymous !== config.credentials.anonymous)
      throw new Error('credentials can be added or removed as a whole only by a restart');
    if ((before.signing === undefined) !== (config.signing === undefined))
      throw new Error('signing can be added or removed as a whole only by a restart');
    const parts = ['credentials', 'signing'] as const;
    if (parts.every((part) => isSame(before[part], config[part]))) return false;
    const keys = keysOf(config);
    const signer = signerOf(config);
    if (!isSame(before.credentials.jwt, config.credentials.jwt)) this.#jwt = jwtOf(config);
    this.#keys = keys;
    this.#signer = signer;
    this.#config = config;
    return true;
  }
}

/** Compares data of a configuration. Of a URL, only its JSON shows the text. */
function isSame(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

function keysOf({ credentials: { keys } }: Config): Credentials | undefined {
  return keys.length > 0 ? openCredentials({ keys }) : undefined;
}

function jwtOf({ credentials: { jwt } }: Config): Credentials | undefined {
  return jwt && openCredentials({ jwt });
}

function signerOf({ signing }: Config): TokenSigner | undefined {
  if (signing === undefined) return undefined;
  const signed = createTokenSigner(signing.keys, () => Date.now());
  if (signing.required) return signed;
  return {
    sign: (...token) => signed.sign(...token),
    verify: (text, subject) =>
      /^[0-9]+$/.test(text) ? parseToken(text) : signed.verify(text, subject),
  };
}
