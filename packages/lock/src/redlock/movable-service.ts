import { checkFields, checkFlag } from '../core/options.js';
import type { Runtime } from '../runtime/runtime.js';
import { Move } from './move.js';
import { MovingTransport } from './moving-transport.js';
import type { ServiceParts } from './node-group.js';
import type { ServiceTransport } from './set-acquisition.js';

export interface MoveOptions {
  /**
   * An operator says that nodes of the present set which do not answer are gone for good.
   * @default false
   */
  readonly force?: boolean;
}

/**
 * The state of a move to the next node set. `JSON.stringify` writes tokens as decimal strings.
 *
 * - `not-begun`: the present set serves.
 * - `begun`: the present set is sealed, at least in part, and the next one does not serve yet.
 * - `done`: the next set serves.
 * - `refused`: the move is impossible. Nothing was changed by this call.
 */
export interface MoveStatus {
  readonly state: 'not-begun' | 'begun' | 'done' | 'refused';
  /** The nodes' own answers, or the reason of a refusal; empty if there is nothing to say. */
  readonly reason: string;
  /** Milliseconds after which `move` should be called again, if the state is `begun`; else 0. */
  readonly retryAfterMs: number;
}

/** A lock service on its node set, which follows moves to the next ones. */
export class MovableService {
  readonly present: ServiceParts;
  readonly next: MovableService | null;
  readonly transport: ServiceTransport;
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

  /** The parts that serve now, as far as this process knows. */
  get served(): ServiceParts {
    return this.#moving?.isMoved && this.next ? this.next.served : this.present;
  }

  /** Null without a next set. */
  async moveStatus(): Promise<MoveStatus | null> {
    const seen = await this.#move?.look();
    return seen ? { reason: '', retryAfterMs: 0, ...seen } : null;
  }

  /** Null without a next set. */
  async move(isForced: boolean): Promise<MoveStatus | null> {
    const outcome = await this.#move?.run({ mayBegin: true, isForced });
    if (!outcome) return null;
    const retryAfterMs = outcome.state === 'begun' ? outcome.againMs : 0;
    return {
      reason: 'reason' in outcome ? outcome.reason : '',
      retryAfterMs,
      state: outcome.state,
    };
  }
}

/** @returns true if the move is forced */
export function checkMoveOptions(options: MoveOptions): boolean {
  checkFields('the options of move', options, ['force']);
  return checkFlag('force', options.force ?? false);
}
