import { checkFields, checkFlag } from '../core/options.js';
import type { LockTransport } from '../lease/transport.js';
import type { Runtime } from '../runtime/runtime.js';
import { Move, type MoveStatus } from './move.js';
import { MovingTransport } from './moving-transport.js';
import type { ServiceParts } from './node-set.js';

export interface MoveOptions {
  /**
   * True if the nodes of the present set that do not answer are gone for good. Only an operator can
   * know that.
   * @default false
   */
  readonly force?: boolean;
}

/** A lock service on a node set. If the locks move to the next set, it follows them. */
export class MovableService {
  readonly present: ServiceParts;
  readonly next: MovableService | null;
  readonly transport: LockTransport;
  readonly #move: Move | null = null;
  readonly #moving: MovingTransport | null = null;

  constructor(present: ServiceParts, next: MovableService | null, runtime: Runtime) {
    this.present = present;
    this.next = next;
    if (next) {
      this.#move = new Move(present.movable(), next.present.movable(), runtime);
      this.#moving = new MovingTransport(present.transport, next.transport, this.#move, runtime);
    }
    this.transport = this.#moving ?? present.transport;
  }

  /** The parts of the node set that serves now, as far as this process knows. */
  get served(): ServiceParts {
    return this.#moving?.isMoved && this.next ? this.next.served : this.present;
  }

  /** The state of the move; null without a next set. */
  async moveStatus(): Promise<MoveStatus | null> {
    return (await this.#move?.look()) ?? null;
  }

  /** Begins or continues the move. Returns its state; null without a next set. */
  async move(isForced: boolean): Promise<MoveStatus | null> {
    return (await this.#move?.run({ mayBegin: true, isForced })) ?? null;
  }
}

/** @returns true if the move is forced */
export function checkMoveOptions(options: MoveOptions): boolean {
  checkFields('the options of move', options, ['force']);
  return checkFlag('force', options.force ?? false);
}
