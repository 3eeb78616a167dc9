import type { ChannelListener, ClientAdapter, ScriptArguments, SpareClient } from '../client.js';
import { asError } from '../command.js';

/** The part of a `GlideClient` or `GlideClusterClient` that the lock uses. */
export interface ValkeyGlideClient {
  customCommand(args: string[], options?: { decoder?: number }): Promise<unknown>;
  invokeScript(...args: never[]): Promise<unknown>;
  configGet(parameters: string[], options?: { decoder?: number }): Promise<unknown>;
  close(): void;
}

/**
 * Fields that GLIDE's types do not show. Without `config` or `createClient`, waiters poll, and the
 * lock keeps the client's connection.
 */
interface Internals {
  readonly config?: object;
  readonly isClosed?: boolean;
  readonly constructor: { createClient?(config: object): Promise<Other> };
}

/** Another client, made from the settings of the owner's. */
interface Other extends ValkeyGlideClient {
  /** Subscribes in the background. Only newer clients of a Cluster have it. */
  ssubscribeLazy?(channels: readonly string[]): Promise<void>;
}

/** `Decoder.String`, and the mode of a plain channel. */
const [STRING, EXACT] = [1, 0];

type Client = ValkeyGlideClient & Internals;

/** Valkey GLIDE. It reports no connection state, and limits each command by `requestTimeout`. */
export class GlideAdapter implements ClientAdapter {
  readonly address = null;
  /** GLIDE may send a command again after it has connected anew. */
  readonly isOrdered = false;
  readonly isCluster: boolean;
  /** The reason why a spare could not be made. */
  lastError: Error | null = null;
  /** Null while a spare is being made, or if that failed. */
  #client: Client | null;
  readonly #waiting = new Set<() => void>();

  /** @param client null for a spare: see `#become` */
  constructor(client: ValkeyGlideClient | null) {
    this.#client = client as Client | null;
    this.isCluster = client !== null && 'pubsubShardChannels' in client;
  }

  get state(): string {
    if (this.isConnecting) return 'connecting';
    return this.isClosed ? 'closed' : 'ready';
  }

  get isConnecting(): boolean {
    return this.#client === null && this.lastError === null;
  }

  get isClosed(): boolean {
    return this.#client ? this.#client.isClosed === true : this.lastError !== null;
  }

  onceConnected(callback: () => void): void {
    if (this.isConnecting) this.#waiting.add(callback);
  }

  evalsha(sha1: string, args: ScriptArguments): Promise<unknown> {
    return this.#run('EVALSHA', sha1, args);
  }

  eval(source: string, args: ScriptArguments): Promise<unknown> {
    return this.#run('EVAL', source, args);
  }

  async configGet(parameter: string): Promise<string | null> {
    const settings = await this.#client?.configGet([parameter], { decoder: STRING });
    const value: unknown = Object(settings)[parameter];
    return typeof value === 'string' ? value : null;
  }

  /** Makes another client, because GLIDE delivers all messages of a client to one callback. */
  subscribe(channel: string, listener: ChannelListener): (() => void) | null {
    let isClosed = false;
    const made = this.#another({
      pubsubSubscriptions: {
        channelsAndPatterns: { [EXACT]: new Set([channel]) },
        callback: ({ message }: { message: unknown }) => listener.onMessage(String(message)),
      },
    });
    if (!made) return null;
    made.then(
      (client) => {
        if (isClosed) return;
        listener.onListening();
        client.ssubscribeLazy?.([channel]).catch(() => {});
      },
      () => listener.onFailed(),
    );
    return () => {
      isClosed = true;
      closeMade(made);
    };
  }

  spare(): SpareClient | null {
    const made = this.#another({});
    if (!made) return null;
    const adapter = new GlideAdapter(null);
    void adapter.#become(made);
    return Object.assign(adapter, { close: () => closeMade(made) });
  }

  #another(settings: object): Promise<Other> | null {
    if (!this.#client?.config) return null;
    const { config, constructor: Client } = this.#client;
    return Client.createClient?.({ ...config, ...settings }) ?? null;
  }

  async #become(made: Promise<Other>): Promise<void> {
    try {
      this.#client = (await made) as Client;
    } catch (error) {
      this.lastError = asError(error);
    }
    for (const callback of this.#waiting) callback();
  }

  async #run(command: string, script: string, args: ScriptArguments): Promise<unknown> {
    try {
      const values = [command, script, ...args.map(String)];
      if (!this.#client) throw this.lastError ?? new Error('the client is not connected yet');
      return await this.#client.customCommand(values, { decoder: STRING });
    } catch (error) {
      throw error instanceof Error ? asSent(error) : error;
    }
  }
}

function closeMade(made: Promise<Other>): void {
  made.then(
    (client) => client.close(),
    () => {},
  );
}

/** The error with the server's own text. GLIDE adds words before the code, and a colon after it. */
function asSent(error: Error): Error {
  const text = error.message
    .replace(/^An error was signalled by the server: - /, '')
    .replace(/^NoScriptError: /, 'NOSCRIPT ')
    .replace(/^([A-Z]+): /, '$1 ');
  return text === error.message ? error : new Error(text, { cause: error });
}
