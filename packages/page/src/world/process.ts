import { Computer } from '../../../../test/simulation/computer.ts';
import { Connection } from '../../../../test/simulation/connection.ts';

/** A client's process. The network may hold the replies of the lock nodes to it. */
export class Process extends Computer {
  #isHeld = false;
  readonly #replies: (() => void | Promise<void>)[] = [];

  get heldReplies(): number {
    return this.#replies.length;
  }

  holdReplies(): void {
    this.#isHeld = true;
  }

  async deliverReplies(): Promise<void> {
    this.#isHeld = false;
    for (const deliver of this.#replies.splice(0)) await deliver();
  }

  override hand(...task: Parameters<Computer['hand']>): void | Promise<void> {
    const [, source] = task;
    if (!this.#isHeld || !(source instanceof Connection)) return super.hand(...task);
    this.#replies.push(() => super.hand(...task));
  }
}
