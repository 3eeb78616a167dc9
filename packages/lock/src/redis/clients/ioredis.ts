import type {
  ChannelListener,
  ClientAdapter,
  ScriptArguments,
  ShardedListener,
  SpareClient,
} from '../client.js';
import { Connection, type ConnectionEvents } from './connection.js';
import { ShardedSubscription, slotOf } from './sharded.js';

/** The part of an ioredis or iovalkey client that the lock uses: a `Redis`, or a `Cluster`. */
export interface IoredisClient {
  /** The state of the connection; `ready` if it can be used. */
  readonly status?: string;
  /** `false` if the node runs commands in the order in which they were sent, as for a `Redis`. */
  readonly isCluster?: boolean;
  readonly options?: object;
  /** `ready`: the connection is made. `end`: it will not be made again. */
  on?(event: 'error' | 'ready' | 'end', listener: (error: Error) => void): unknown;
  listenerCount?(event: 'error'): number;
  evalsha(
    sha1: string,
    keyCount: number,
    ...keysAndArguments: (string | number)[]
  ): Promise<unknown>;
  eval(
    script: string,
    keyCount: number,
    ...keysAndArguments: (string | number)[]
  ): Promise<unknown>;
  /**
   * Another client with the same settings, on which waiters are notified, or which replaces a
   * connection that is useless.
   */
  duplicate?(): IoredisSubscriber;
  /** `CONFIG GET`: checks the settings of a node that is declared durable. */
  config?(subcommand: 'GET', parameter: string): Promise<unknown>;
}

/** The part of a subscribed ioredis connection that the lock uses. */
export interface IoredisSubscriber {
  /** `wait` if it connects only on `connect()`. */
  readonly status?: string;
  readonly options?: object;
  connect(): Promise<unknown>;
  subscribe(channel: string): Promise<unknown>;
  on(event: 'message', listener: (channel: string, message: string) => void): unknown;
  on(event: 'ready' | 'close' | 'error', listener: () => void): unknown;
  disconnect(): void;
}

/** The part of a `Cluster` that the lock uses beside that of an `IoredisClient`. */
interface ClusterClient {
  /** For each slot, `host:port` of its master and of its replicas. */
  readonly slots?: readonly (readonly string[] | undefined)[];
  nodes?(role: 'master'): readonly {
    readonly options: { readonly host?: string; readonly port?: number };
    duplicate(overrides: object): ShardedSubscriber;
  }[];
}

interface ShardedSubscriber {
  connect(): Promise<unknown>;
  ssubscribe(channel: string): Promise<unknown>;
  on(event: 'smessage', listener: (channel: string, message: string) => void): unknown;
  on(event: 'close' | 'error' | 'moved', listener: () => void): unknown;
  disconnect(): void;
}

/** States of a client that is connecting. After `close`, it connects again, or ends for good. */
const CONNECTING: ReadonlySet<string> = new Set(['connecting', 'connect', 'reconnecting', 'close']);

/** ioredis 5 and later, and iovalkey. */
export class IoredisAdapter implements ClientAdapter {
  readonly #client: IoredisClient;
  readonly #connection: Connection | null;
  /** ioredis prints an error only if nobody listens. If only we listen, we print it instead. */
  readonly #print = (error: Error): void => {
    if (this.#client.listenerCount?.('error') !== 1) return;
    // biome-ignore lint/suspicious/noConsole: instead of ioredis, see above.
    console.error('[ioredis] Unhandled error event:', error.stack);
  };

  constructor(client: IoredisClient, onError?: () => void) {
    this.#client = client;
    const events = client.on ? (client as ConnectionEvents) : null;
    this.#connection = events && new Connection(events, onError ?? this.#print);
  }

  get address(): string | null {
    const { host, port, path, sentinels } = (this.#client.options ?? {}) as Record<string, unknown>;
    return host && port && !path && !sentinels ? `${host}:${port}` : null;
  }

  get state(): string {
    return this.#client.status ?? 'ready';
  }

  get isConnecting(): boolean {
    return this.#connection !== null && CONNECTING.has(this.state);
  }

  get isClosed(): boolean {
    return this.state === 'end';
  }

  get isOrdered(): boolean {
    return this.#client.isCluster === false;
  }

  get isCluster(): boolean {
    return this.#client.isCluster === true;
  }

  get lastError(): Error | null {
    return this.#connection?.lastError ?? null;
  }

  onceConnected(callback: () => void): void {
    this.#connection?.onceConnected(callback);
  }

  evalsha(sha1: string, args: ScriptArguments): Promise<unknown> {
    return this.#client.evalsha(sha1, ...args);
  }

  eval(source: string, args: ScriptArguments): Promise<unknown> {
    return this.#client.eval(source, ...args);
  }

  async configGet(parameter: string): Promise<string | null> {
    const reply = await this.#client.config?.('GET', parameter);
    // ioredis 6 replies with an object if the connection speaks RESP3 and maps its replies so.
    const value: unknown = Array.isArray(reply) ? reply[1] : Object(reply)[parameter];
    return typeof value === 'string' ? value : null;
  }

  subscribe(channel: string, listener: ChannelListener): (() => void) | null {
    const subscriber = this.#client.duplicate?.();
    if (!subscriber) return null;
    // ioredis ignores the promise of its own resubscription. If that rejects, the process ends.
    // So each `ready` subscribes here.
    Object.assign(subscriber.options ?? {}, { autoResubscribe: false });
    // Without a listener, ioredis prints the error.
    subscriber.on('error', () => {});
    subscriber.on('message', (_, message) => listener.onMessage(message));
    subscriber.on('close', () => listener.onLost());
    // If the subscription fails, the connection was closed again, or the user may not subscribe.
    subscriber.on('ready', () => {
      subscriber.subscribe(channel).then(
        () => listener.onListening(),
        () => {},
      );
    });
    if (subscriber.status === 'wait') subscriber.connect().catch(() => {});
    return () => subscriber.disconnect();
  }

  spare(): SpareClient | null {
    const spare = this.#connection && this.#client.duplicate?.();
    if (!spare) return null;
    const adapter = new IoredisAdapter(spare as unknown as IoredisClient, () => {});
    if (spare.status === 'wait') spare.connect().catch(() => {});
    return Object.assign(adapter, { close: () => spare.disconnect() });
  }

  /** ioredis' own sharded subscriptions do not report that one of them is lost. */
  subscribeSharded(channel: string, listener: ShardedListener): (() => void) | null {
    const cluster = this.#client as ClusterClient;
    const [address] = cluster.slots?.[slotOf(channel)] ?? [];
    const master = cluster
      .nodes?.('master')
      .find(({ options: { host, port } }) => `${host}:${port}` === address);
    if (!master) return null;
    const subscriber = master.duplicate({
      keyPrefix: '',
      retryStrategy: null,
      autoResubscribe: false,
    });
    const subscription = new ShardedSubscription(() => subscriber.disconnect(), listener);
    subscriber.on('smessage', (_, message) => listener.onMessage(message));
    // If the server ends a subscription, older ioredis versions emit `error`.
    for (const event of ['close', 'error', 'moved'] as const) {
      subscriber.on(event, subscription.lost);
    }
    subscriber
      .connect()
      .then(() => subscriber.ssubscribe(channel))
      .then((count) => {
        // Before ioredis 5.3, the reply is a list, and messages are errors.
        if (typeof count !== 'number') subscription.close();
      })
      .catch(subscription.failed);
    return subscription.close;
  }
}
