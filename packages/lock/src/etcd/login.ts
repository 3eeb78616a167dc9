/** A user of etcd, as `etcdctl user add` names it. */
export interface EtcdUser {
  readonly name: string;
  readonly password: string;
}

/**
 * The token of a user. It ends when it was not used for `--auth-token-ttl`, 5 minutes by default.
 * A member also refuses it after a restart or a change of rights. The refused request was not
 * carried out, so the client logs in again and repeats it.
 */
export class Login {
  readonly #user: EtcdUser;
  /** The present token, or the login under way, which all calls share; null before the first. */
  #token: Promise<string | null> | null = null;

  constructor(user: EtcdUser) {
    this.#user = user;
  }

  /**
   * Returns the token, or null if the cluster does without users.
   *
   * @param ask sends a login. If it fails, the calls that share it fail, and the next one logs in
   */
  token(ask: (user: EtcdUser) => Promise<{ readonly token: string }>): Promise<string | null> {
    if (this.#token !== null) return this.#token;
    const asked = ask(this.#user).then(
      ({ token }) => token,
      (error: Error) => {
        if (error.message.includes('authentication is not enabled')) return null;
        this.forget(asked);
        throw error;
      },
    );
    this.#token = asked;
    return asked;
  }

  /** Logs in anew for the next call, unless another call has done so already. */
  forget(refused: Promise<string | null>): void {
    if (this.#token === refused) this.#token = null;
  }
}

/** Messages of etcd that a new login may help against. The last: users exist since the login. */
const REFUSED = ['invalid auth token', 'revision of auth store is old', 'user name is empty'];

export function isTokenRefused({ message }: Error): boolean {
  return REFUSED.some((text) => message.includes(text));
}
