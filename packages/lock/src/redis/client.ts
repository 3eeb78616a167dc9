import type { Runtime } from '../runtime/runtime.js';

/** The keys and arguments of a script, in the order in which EVALSHA takes them. */
export type ScriptArguments = readonly [keyCount: number, ...keysAndValues: string[]];

/**
 * A Redis client. `clients/` has an adapter for each kind. The client stays its owner's: an adapter
 * neither connects nor closes it.
 */
export interface ClientAdapter {
  /** `host:port` if the client has exactly one address. */
  readonly address: string | null;
  /** State of the connection for messages; `ready` if it can be used. */
  readonly state: string;
  /** True while the client tries to connect. The lock keeps its calls until that ends. */
  readonly isConnecting: boolean;
  /** True once its owner has closed it, or it has given up connecting. */
  readonly isClosed: boolean;
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
  /**
   * Makes another client with the same settings and a connection of its own. Null if the client
   * cannot, or would not report its end.
   */
  spare(): SpareClient | null;
}

/** A client of the lock's own. */
export interface SpareClient extends ClientAdapter {
  close(): void;
}

/** Port to one node: a client, which is replaced if its connection turns out to be useless. */
export interface NodeClient extends Omit<ClientAdapter, 'spare'> {
  /** Changes with each replacement. Calls before and after it may run in any order. */
  readonly connection: number;
  /**
   * Replaces the client: its server does not answer, or is a master no more. Does nothing if
   * `connection` is not the present one, or if the last replacement was a moment ago.
   */
  replace(connection: number, runtime: Pick<Runtime, 'nowMs' | 'after'>): void;
  /** To be called by each lock service. The returned function is called at its end. */
  use(): () => void;
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
