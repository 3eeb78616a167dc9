import type { Redis } from 'ioredis';

export interface LockSettings {
  readonly ttlMs: number;
  /** Mean pause between two acquisitions of a library that polls. */
  readonly retryDelayMs: number;
}

export type Release = () => Promise<unknown>;

/** Waits for the lock without a limit. */
export type Acquire = (resource: string) => Promise<Release>;

/** A lock over independent nodes, with the settings of a typical user. */
export interface LockSubject {
  readonly name: string;
  readonly kind: 'ours' | 'peer' | 'raw' | 'floor';
  open(clients: readonly Redis[], settings: LockSettings): Promise<Acquire>;
}
