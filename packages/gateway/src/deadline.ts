import type { Runtime } from './runtime.js';

/**
 * The time in which the stores and the lock nodes do their part of one request. It does not pass while the client sends its body,
 * and begins anew with each piece of that, so that it bounds every silence of the gateway.
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

  /** @param moreMs a wait that the client has asked for */
  restart(moreMs = 0): void {
    this.stop();
    this.#cancel = this.#runtime.after(this.#limitMs + moreMs, this.#onLate);
  }

  stop(): void {
    this.#cancel();
  }
}
