import type { Runtime } from '../runtime/runtime.js';
import type { Move } from './move.js';

/** The pause (ms) before the next announcement: a node may have lost the last one with its data. */
const AGAIN_MS = 60_000;
/** The pause (ms) while a node has not taken the announcement. */
const RETRY_MS = 5_000;

/**
 * Announces the next node set to its own nodes, as long as the present one serves. It begins with
 * the first lease, so a process that only asks for the state of a move announces nothing.
 */
export class Announcements {
  readonly #move: Move;
  readonly #runtime: Runtime;
  #cancelNext: () => void = () => {};
  #isBegun = false;
  #isOver = false;

  constructor(move: Move, runtime: Runtime) {
    this.#move = move;
    this.#runtime = runtime;
  }

  begin(): void {
    if (this.#isBegun) return;
    this.#isBegun = true;
    void this.#again();
  }

  end(): void {
    this.#isOver = true;
    this.#cancelNext();
  }

  async #again(): Promise<void> {
    if (this.#isOver) return;
    const pauseMs = (await this.#move.announce()) ? AGAIN_MS : RETRY_MS;
    if (this.#isOver) return;
    this.#cancelNext = this.#runtime.after(pauseMs, () => void this.#again(), 'background');
  }
}
