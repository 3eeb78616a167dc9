// Neither version of `redlock` exports its types. These are the calls of the bench and the tests.
interface RedlockSettings {
  readonly driftFactor?: number;
  readonly retryCount: number;
  readonly retryDelay: number;
  readonly retryJitter: number;
}

declare module 'redlock-4' {
  interface Lock {
    readonly value: string;
    unlock(): Promise<unknown>;
  }

  export default class Redlock {
    constructor(clients: readonly object[], options: RedlockSettings);
    on(event: 'clientError', listener: () => void): void;
    lock(resource: string, ttlMs: number): Promise<Lock>;
    lockWithOptions(
      resource: string,
      ttlMs: number,
      options: { retryCount?: number },
    ): Promise<Lock>;
  }
}

declare module 'redlock-5' {
  export default class Redlock {
    constructor(clients: readonly object[], options: RedlockSettings);
    on(event: 'error', listener: () => void): void;
    acquire(
      resources: string[],
      ttlMs: number,
      settings?: { retryCount?: number },
    ): Promise<{ readonly value: string; release(): Promise<unknown> }>;
  }
}
