/** A lease as its holder sees it. */
export interface HeldLock extends AsyncDisposable {
  /** Null where the lock gives none. */
  readonly token: bigint | null;
  /** Milliseconds for which the holder believes that nobody else has the lock. */
  remainingMs(): number;
}

export type LockAttempt =
  | { readonly ok: true; readonly lease: HeldLock }
  /** `why` is what the nodes said, in a few words. */
  | { readonly ok: false; readonly why: string };

/** What a client takes its locks from: ours, or what people write themselves. */
export interface Lock {
  tryAcquire(resource: string, ttlMs: number): Promise<LockAttempt>;
}

/** The answers of the nodes that were waited for, the same ones together: `A B held; C not-voting`. */
export function summarize(
  nodes: readonly { readonly name: string; readonly answer: string }[],
): string {
  const answered = nodes.filter(({ answer }) => answer !== 'pending');
  return [...Map.groupBy(answered, ({ answer }) => answer)]
    .map(([answer, same]) => `${same.map(({ name }) => name.toUpperCase()).join(' ')} ${answer}`)
    .join('; ');
}
