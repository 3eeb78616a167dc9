import type { ChannelListener, NodeClient, ScriptArguments } from '../client.js';

/** The part of a `GlideClient` or `GlideClusterClient` that the lock uses. */
export interface ValkeyGlideClient {
  customCommand(args: string[], options?: { decoder?: number }): Promise<unknown>;
  invokeScript(...args: never[]): Promise<unknown>;
  configGet(parameters: string[], options?: { decoder?: number }): Promise<unknown>;
  close(): void;
}

/** Fields that GLIDE's types do not show. Without `config` or `createClient`, waiters poll. */
interface Internals {
  readonly config?: object;
  readonly isClosed?: boolean;
  readonly constructor: { createClient?(config: object): Promise<Subscriber> };
}

interface Subscriber {
  close(): void;
  /** Subscribes in the background. Only newer clients of a Cluster have it. */
  ssubscribeLazy?(channels: readonly string[]): Promise<void>;
}

/** `Decoder.String`, and the mode of a plain channel. */
const [STRING, EXACT] = [1, 0];

/** Valkey GLIDE. It reports no connection state, and limits each command by `requestTimeout`. */
export class GlideAdapter implements NodeClient {
  readonly address = null;
  readonly isConnecting = false;
  /** GLIDE may send a command again after it has connected anew. */
  readonly isOrdered = false;
  readonly isCluster: boolean;
  readonly lastError = null;
  readonly #client: ValkeyGlideClient & Internals;

  constructor(client: ValkeyGlideClient) {
    this.#client = client as ValkeyGlideClient & Internals;
    this.isCluster = 'pubsubShardChannels' in client;
  }

  get state(): string {
    return this.#client.isClosed === true ? 'closed' : 'ready';
  }

  onceConnected(): void {}

  evalsha(sha1: string, args: ScriptArguments): Promise<unknown> {
    return this.#run('EVALSHA', sha1, args);
  }

  eval(source: string, args: ScriptArguments): Promise<unknown> {
    return this.#run('EVAL', source, args);
  }

  async configGet(parameter: string): Promise<string | null> {
    const settings = await this.#client.configGet([parameter], { decoder: STRING });
    const value: unknown = Object(settings)[parameter];
    return typeof value === 'string' ? value : null;
  }

  /** Makes another client, because GLIDE delivers all messages of a client to one callback. */
  subscribe(channel: string, listener: ChannelListener): (() => void) | null {
    const { config, constructor: Client } = this.#client;
    if (!config || !Client.createClient) return null;
    let isClosed = false;
    const made = Client.createClient({
      ...config,
      pubsubSubscriptions: {
        channelsAndPatterns: { [EXACT]: new Set([channel]) },
        callback: ({ message }: { message: unknown }) => listener.onMessage(String(message)),
      },
    });
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
      made.then(
        (client) => client.close(),
        () => {},
      );
    };
  }

  async #run(command: string, script: string, args: ScriptArguments): Promise<unknown> {
    try {
      const values = [command, script, ...args.map(String)];
      return await this.#client.customCommand(values, { decoder: STRING });
    } catch (error) {
      throw error instanceof Error ? asSent(error) : error;
    }
  }
}

/** The error with the server's own text. GLIDE adds words before the code, and a colon after it. */
function asSent(error: Error): Error {
  const text = error.message
    .replace(/^An error was signalled by the server: - /, '')
    .replace(/^NoScriptError: /, 'NOSCRIPT ')
    .replace(/^([A-Z]+): /, '$1 ');
  return text === error.message ? error : new Error(text, { cause: error });
}
