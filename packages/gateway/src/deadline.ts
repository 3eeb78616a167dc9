import type { Runtime } from './runtime.js';

/**
 * The time limit for the stores' and lock nodes' part of one request. It stops while the gateway
 * waits for a piece of the client's body, and starts anew after each piece.
 */
export class Deadline {
  readonly #limitMs: number;
  readonly #runtime: Runtime;
  readonly #onLate: () => void;
  #cancel: () => void = () => undefined;

  constructor(limitMs: number, runtime: Runtime, onLate: () => void) {
    this.#limitMs = limitMs;
    this.#runtime = runtime;
    this.#onLate = onLate;
    this.restart();
  }

  /** @param moreMs added to the limit: the wait that the client asked for */
  restart(moreMs = 0): void {
    this.stop();
    this.#cancel = this.#runtime.after(this.#limitMs + moreMs, this.#onLate);
  }

  stop(): void {
    this.#cancel();
  }
}
