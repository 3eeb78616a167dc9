import type { Stored } from '../../core/stored.js';
import type { ObjectHead, OpenObject, Requests, WholeObject } from '../http/requests.js';
import type { Runtime } from '../runtime.js';
import { LastSeen } from './last-seen.js';

/**
 * The objects of one bucket. Each read throws {@link RatchetLostError} if the object's token is
 * lower than one that this process has seen.
 */
export class Objects {
  readonly requests: Requests;
  readonly lastSeen: LastSeen;

  constructor(requests: Requests, runtime: Runtime) {
    this.requests = requests;
    this.lastSeen = new LastSeen(() => runtime.nowMs());
  }

  async stamp(key: string, signal?: AbortSignal): Promise<Stored | null> {
    return (await this.head(key, signal))?.stored ?? null;
  }

  head(key: string, signal?: AbortSignal): Promise<ObjectHead | null> {
    return this.#compared(key, () => this.requests.head(key, signal));
  }

  get(key: string, signal?: AbortSignal): Promise<WholeObject | null> {
    return this.#compared(key, () => this.requests.get(key, signal));
  }

  /** @param isVerified whether the reader checks the CRC-32 of the body */
  open(
    key: string,
    signal: AbortSignal | undefined,
    isVerified: boolean,
  ): Promise<OpenObject | null> {
    return this.#compared(key, () => this.requests.open(key, signal, isVerified));
  }

  async #compared<Found extends ObjectHead & Partial<Pick<OpenObject, 'cancel'>>>(
    key: string,
    read: () => Promise<Found | null>,
  ): Promise<Found | null> {
    const before = this.lastSeen.highest(key);
    const found = await read();
    try {
      this.lastSeen.noteRead(key, before, found?.stored ?? null);
    } catch (error) {
      found?.cancel?.();
      throw error;
    }
    return found;
  }
}
