import { type Runtime, sleep, timeLimit } from '../runtime/runtime.js';
import { isTokenRefused, type Login } from './login.js';

/** The calls that `EtcdLock` makes. The global `fetch` fits. */
export type Fetch = (
  url: string,
  init: {
    readonly method: 'POST';
    readonly body: string;
    /** With the token of a user, if there is one. */
    readonly headers: Readonly<Record<string, string>>;
    readonly signal: AbortSignal;
  },
) => Promise<Pick<Response, 'ok' | 'status' | 'text' | 'body'>>;

/** An error that etcd answered. */
export class EtcdError extends Error {
  /** The HTTP status, which etcd's JSON gateway derives from the gRPC code. */
  readonly status: number;

  constructor(status: number, message: string) {
    super(`etcd answered ${status}: ${message}`);
    this.name = 'EtcdError';
    this.status = status;
  }

  /** True if the same request may succeed later or at another member. */
  get isPassing(): boolean {
    return this.status >= 500 || this.status === 408 || this.status === 429;
  }
}

const NO_TOKEN = Promise.resolve(null);
/** The limits of the pause after a round in which each member failed. */
const ROUND_PAUSE_MIN_MS = 50;
const ROUND_PAUSE_MAX_MS = 1_000;
/** A member that is silent for longer is given up for the next one. */
const MEMBER_LIMIT_MIN_MS = 250;

/** Calls of etcd's JSON gateway, at whichever member answers. */
export class EtcdClient {
  readonly #endpoints: readonly string[];
  readonly #fetch: Fetch;
  readonly #login: Login | null;
  readonly #runtime: Runtime;
  /** The member that is asked first: the last that answered, or the next after one that did not. */
  #at = 0;
  /** The time of the first failure since the last answer; null after an answer. */
  #failingSinceMs: number | null = null;

  /** @param login null without a user */
  constructor(endpoints: readonly string[], fetch: Fetch, login: Login | null, runtime: Runtime) {
    this.#endpoints = endpoints;
    this.#fetch = fetch;
    this.#login = login;
    this.#runtime = runtime;
  }

  /**
   * Asks one member after the other until one answers. A silent member may carry out the request
   * nevertheless, so the request may be carried out twice.
   *
   * @param onRepeat called each time that the request is sent again
   * @throws {EtcdError} it was refused, or no member carried it out within `limitMs`
   * @throws the last error, if no member answered
   */
  async call<Reply>(
    path: string,
    body: object,
    limitMs: number,
    onRepeat?: () => void,
  ): Promise<Reply> {
    const endMs = this.#runtime.nowMs() + limitMs;
    const memberLimitMs = Math.max(MEMBER_LIMIT_MIN_MS, limitMs / this.#endpoints.length);
    for (let tries = 1; ; tries += 1) {
      const at = this.#at;
      const leftMs = endMs - this.#runtime.nowMs();
      try {
        return await this.#ask<Reply>(path, body, Math.max(1, Math.min(leftMs, memberLimitMs)));
      } catch (error) {
        if (error instanceof EtcdError && !error.isPassing) throw error;
        this.#failingSinceMs ??= this.#runtime.nowMs();
        // While this request waited, another call may already have skipped the member.
        if (this.#at === at) this.skipMember();
        const pauseMs = tries % this.#endpoints.length === 0 ? this.#roundPauseMs() : 0;
        if (endMs - this.#runtime.nowMs() <= pauseMs) throw error;
        if (pauseMs > 0) await sleep(this.#runtime, pauseMs);
        onRepeat?.();
      }
    }
  }

  /**
   * Opens a stream at one member. The answer's body goes on until the signal aborts. If the member
   * refuses the token, the other calls of the waiters that read the stream bring a new one.
   */
  async stream(
    path: string,
    body: object,
    signal: AbortSignal,
  ): Promise<AsyncIterable<Uint8Array>> {
    const answer = await this.#post(path, body, await this.#token(signal), signal);
    if (!answer.ok || !answer.body) throw new EtcdError(answer.status, await answer.text());
    return answer.body;
  }

  /**
   * A quarter of the time for which no member has answered to any call. Members that refuse
   * connections do so at once, so many waiters would otherwise ask all the time.
   */
  #roundPauseMs(): number {
    const nowMs = this.#runtime.nowMs();
    const failingMs = nowMs - (this.#failingSinceMs ?? nowMs);
    return Math.min(Math.max(ROUND_PAUSE_MIN_MS, failingMs / 4), ROUND_PAUSE_MAX_MS);
  }

  /** Asks the next member first from now on. */
  skipMember(): void {
    this.#at = (this.#at + 1) % this.#endpoints.length;
  }

  async #ask<Reply>(path: string, body: object, limitMs: number): Promise<Reply> {
    using limit = timeLimit(this.#runtime, limitMs);
    for (let isNew = false; ; isNew = true) {
      const login = this.#token(limit.signal);
      try {
        return await this.#read<Reply>(path, body, await login, limit.signal);
      } catch (error) {
        const mayHelp = !isNew && error instanceof EtcdError && isTokenRefused(error);
        if (!this.#login || !mayHelp) throw error;
        this.#login.forget(login);
      }
    }
  }

  /** Logs in if there is no token yet. Null without a user. */
  #token(signal: AbortSignal): Promise<string | null> {
    const ask = (user: object) =>
      this.#read<{ readonly token: string }>('auth/authenticate', user, null, signal);
    return this.#login?.token(ask) ?? NO_TOKEN;
  }

  async #read<Reply>(
    path: string,
    body: object,
    token: string | null,
    signal: AbortSignal,
  ): Promise<Reply> {
    const answer = await this.#post(path, body, token, signal);
    const text = await answer.text();
    if (!answer.ok) throw new EtcdError(answer.status, messageOf(text));
    this.#failingSinceMs = null;
    return JSON.parse(text) as Reply;
  }

  #post(path: string, body: object, token: string | null, signal: AbortSignal): ReturnType<Fetch> {
    const url = `${this.#endpoints[this.#at]}/v3/${path}`;
    const headers = token === null ? {} : { Authorization: token };
    return this.#fetch(url, { method: 'POST', body: JSON.stringify(body), headers, signal });
  }
}

function messageOf(text: string): string {
  try {
    const { message, error } = JSON.parse(text) as { message?: string; error?: string };
    return message ?? error ?? text;
  } catch {
    return text;
  }
}
