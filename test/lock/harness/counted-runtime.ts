import { randomUUID } from 'node:crypto';
import type { Runtime } from '@fenced/lock';

/** A runtime with the number of timers that are set. */
export class CountedRuntime implements Runtime {
  timers = 0;
  readonly nowMs = (): number => performance.now();
  readonly wallClockMs = (): number => Date.now();
  readonly random = (): number => Math.random();
  readonly uniqueId = (): string => randomUUID();
  readonly soon = (callback: () => void): void => void setImmediate(callback);

  after(delayMs: number, callback: () => void, background?: 'background'): () => void {
    let isSet = true;
    const end = (): void => {
      if (isSet) this.timers -= 1;
      isSet = false;
    };
    this.timers += 1;
    const fire = (): void => {
      end();
      callback();
    };
    const timer = setTimeout(fire, delayMs);
    if (background) timer.unref();
    return () => {
      end();
      clearTimeout(timer);
    };
  }
}
