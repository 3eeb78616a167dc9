import type { ShardedListener } from '../client.js';

/** One connection that listens to a sharded channel on the server of its slot, until it is lost. */
export class ShardedSubscription {
  readonly #disconnect: () => void;
  readonly #listener: ShardedListener;
  #isOver = false;

  constructor(disconnect: () => void, listener: ShardedListener) {
    this.#disconnect = disconnect;
    this.#listener = listener;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  readonly close = (): void => {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#disconnect();
  };

  /** The connection is lost, or the slot has moved to another server. */
  readonly lost = (): void => {
    if (this.#isOver) return;
    this.close();
    this.#listener.onLost();
  };

  /** The subscription failed. If the server forbids it or is older than 7, no retry follows. */
  readonly failed = (error: unknown): void => {
    const isRefused = error instanceof Error && /^(ERR|NOPERM)\b/.test(error.message);
    if (isRefused) this.close();
    else this.lost();
  };
}

const SLOTS = 16_384;

/** The slot of a key or channel: CRC16 (XMODEM) of its hash tag, if it has one. */
export function slotOf(key: string): number {
  const tag = /^[^{]*\{([^}]+)\}/.exec(key)?.[1] ?? key;
  let crc = 0;
  for (const byte of new TextEncoder().encode(tag)) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit += 1) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  }
  return crc & (SLOTS - 1);
}
