/** The part of an ioredis client that the lock uses: a `Redis`, or a `Cluster` seen as one node. */
export interface RedisClient {
  /** The state of the connection; `ready` if it can be used. */
  readonly status?: string;
  /** `false` if commands are carried out in the order in which they were sent, as by a `Redis`. */
  readonly isCluster?: boolean;
  /** `ready`: the connection is made. `end`: it will not be made again. */
  once?(event: 'ready' | 'end', listener: () => void): unknown;
  /** `error` names the reason why the client is not connected. */
  on?(event: 'error' | 'ready', listener: (error: Error) => void): unknown;
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
  /** Another connection of the same kind, on which waiters are notified. */
  duplicate?(): RedisSubscriber;
  /** `CONFIG GET`: checks the settings of a node that is declared durable. */
  config?(subcommand: 'GET', parameter: string): Promise<unknown>;
}

/** The part of a subscribed ioredis connection that the lock uses. */
export interface RedisSubscriber {
  /** `wait` if it connects only on `connect()`. */
  readonly status?: string;
  readonly options?: object;
  connect(): Promise<unknown>;
  subscribe(channel: string): Promise<unknown>;
  on(event: 'message', listener: (channel: string, message: string) => void): unknown;
  on(event: 'ready' | 'close' | 'error', listener: () => void): unknown;
  disconnect(): void;
}
