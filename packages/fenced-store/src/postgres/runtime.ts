import { randomUUID } from 'node:crypto';
import { setTimeout } from 'node:timers/promises';

/** Where time and chance come from. Tests give their own; nothing else here waits or draws. */
export interface Runtime {
  /** Resolves after `delayMs`; rejects with the signal's reason as soon as it aborts. */
  sleep(delayMs: number, signal: AbortSignal | undefined): Promise<void>;
  /** A number from 0 up to but not including 1. */
  random(): number;
  /** A name that no other write ever had. */
  uniqueId(): string;
}

export const systemRuntime: Runtime = {
  sleep: async (delayMs, signal) => {
    try {
      await setTimeout(delayMs, undefined, signal && { signal });
    } catch {
      throw signal?.reason;
    }
  },
  random: () => Math.random(),
  uniqueId: () => randomUUID(),
};
