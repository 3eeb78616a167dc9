// Neither version exports its types. These are the calls that the bench uses.
declare module 'redlock-4' {
  export default class Redlock {
    constructor(
      clients: readonly object[],
      options: { retryCount: number; retryDelay: number; retryJitter: number },
    );
    on(event: 'clientError', listener: () => void): void;
    lock(resource: string, ttlMs: number): Promise<{ unlock(): Promise<unknown> }>;
  }
}

declare module 'redlock-5' {
  export default class Redlock {
    constructor(
      clients: readonly object[],
      options: { retryCount: number; retryDelay: number; retryJitter: number },
    );
    on(event: 'error', listener: () => void): void;
    acquire(resources: string[], ttlMs: number): Promise<{ release(): Promise<unknown> }>;
  }
}
