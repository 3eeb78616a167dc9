/** A lease of any lock service. */
export interface RunLease {
  readonly token: bigint;
  /** The token as a gateway accepts it. */
  readonly signedToken?: string;
  remainingMs(): number;
  extend(ttlMs: number): Promise<void>;
  release(): Promise<'released' | 'expired' | 'unknown'>;
}

export interface AcquireOptions {
  readonly ttlMs: number;
  readonly waitMs: number;
  readonly signal: AbortSignal;
}

/** Any lock service. */
export interface RunLock {
  acquire(resource: string, options: AcquireOptions): Promise<RunLease>;
}
