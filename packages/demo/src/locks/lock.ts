/** A lease as its holder sees it. */
export interface HeldLock extends AsyncDisposable {
  /** Null if the lock issues no tokens. */
  readonly token: bigint | null;
  /** Returns the milliseconds for which the holder relies on the lease. */
  remainingMs(): number;
}

export type LockAttempt =
  | { readonly ok: true; readonly lease: HeldLock }
  /** `why` has the nodes' answers in a few words. */
  | { readonly ok: false; readonly why: string };

/** A lock service: `@fenced/lock` or a do-it-yourself one. */
export interface Lock {
  tryAcquire(resource: string, ttlMs: number): Promise<LockAttempt>;
}

/**
 * Groups the nodes by their answers: `A B held; C not-voting`. Nodes that have not answered yet are
 * left out.
 */
export function summarize(
  nodes: readonly { readonly name: string; readonly answer: string }[],
): string {
  const answered = nodes.filter(({ answer }) => answer !== 'pending');
  return [...Map.groupBy(answered, ({ answer }) => answer)]
    .map(([answer, same]) => `${same.map(({ name }) => name.toUpperCase()).join(' ')} ${answer}`)
    .join('; ');
}
