/** The keys and arguments of a script, in the order in which EVALSHA takes them. */
export type ScriptArguments = readonly [keyCount: number, ...keysAndValues: string[]];

/**
 * Port to one node: all that the lock needs of a Redis client. `clients/` has an adapter for each
 * kind of client. The client stays its owner's: an adapter neither connects nor closes it.
 */
export interface NodeClient {
  /** `host:port` if the client has exactly one address. */
  readonly address: string | null;
  /** State of the connection for messages; `ready` if it can be used. */
  readonly state: string;
  /** True while the client tries to connect. The lock keeps its calls until that ends. */
  readonly isConnecting: boolean;
  /** True if the node runs commands in the order in which they were sent. */
  readonly isOrdered: boolean;
  /** True if the node is a Redis Cluster. */
  readonly isCluster: boolean;
  /** The reason why the connection is not ready, if the client reported one. */
  readonly lastError: Error | null;
  /** Calls back once after the connection became ready or was given up. */
  onceConnected(callback: () => void): void;
  /** Rejects with the server's own text, which begins with its code: `NOSCRIPT …`. */
  evalsha(sha1: string, args: ScriptArguments): Promise<unknown>;
  /** As `evalsha`, with the source of the script. */
  eval(source: string, args: ScriptArguments): Promise<unknown>;
  /** Value of a server setting; null if the server does not report it. */
  configGet(parameter: string): Promise<string | null>;
  /**
   * Opens another connection, which listens to one channel.
   *
   * @returns a function that closes that connection; null if the client cannot make another one
   */
  subscribe(channel: string, listener: ChannelListener): (() => void) | null;
  /**
   * Opens one more connection, to the server of a Cluster that has the channel's slot. It listens
   * to the sharded channel of this name. Absent if `subscribe` listens to that channel, too, or if
   * the client cannot.
   *
   * @returns a function that closes that connection; null if the client does not know the server
   */
  subscribeSharded?(channel: string, listener: ShardedListener): (() => void) | null;
}

/** Receives the messages and states of a subscribed connection. A message may be lost or late. */
export interface ChannelListener {
  onMessage(message: string): void;
  /** Messages that are published from now on arrive. */
  onListening(): void;
  /** The connection is lost. The client connects again by itself. */
  onLost(): void;
  /** The client never connected, and has given up. */
  onFailed(): void;
}

/** `onLost`: the connection is closed, or the slot has moved to another server. */
export type ShardedListener = Pick<ChannelListener, 'onMessage' | 'onLost'>;
