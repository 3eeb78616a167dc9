import type { Redis } from 'ioredis';

export interface LockSettings {
  readonly ttlMs: number;
  /** Mean pause between two attempts of a library that polls. */
  readonly retryDelayMs: number;
}

export type Release = () => Promise<unknown>;

/** Waits for the lock as long as it takes. */
export type Acquire = (resource: string) => Promise<Release>;

/** A lock over independent nodes, as its users would set it up. */
export interface LockSubject {
  readonly name: string;
  readonly kind: 'ours' | 'peer' | 'raw' | 'floor';
  open(clients: readonly Redis[], settings: LockSettings): Promise<Acquire>;
}
