import type { ConcurrencyLimit, LimitUse } from './concurrency-limit.js';
import type { Exchange } from './exchange.js';

/** Begins work that has a place. @param leave gives the place back */
type Begin = (leave: () => void) => void;

/**
 * Work that waits for one of few places, such as connections to a database.
 *
 * The places are shared as {@link ConcurrencyLimit} says: a caller gets another one only if it has
 * fewer than are free. In place of a refusal, the work waits. So a caller that floods waits for its
 * own work, and a newcomer finds a free place. That would not hold if as many callers as there are
 * places flooded at once. Then the caller with the fewest places is next.
 */
export class FairQueue {
  readonly #limit: ConcurrencyLimit;
  /** By caller, in the order of arrival. */
  readonly #waiting = new Map<string, Begin[]>();

  constructor(limit: ConcurrencyLimit) {
    this.#limit = limit;
  }

  get use(): LimitUse {
    return this.#limit.use;
  }

  /**
   * Waits for a place, and does the work there.
   *
   * @throws the reason of the request's signal, if that aborts before the work has begun
   */
  async using<Result>({ caller, signal }: Exchange, work: () => Promise<Result>): Promise<Result> {
    const { name } = caller;
    const leave = this.#limit.hasRoom(name)
      ? this.#limit.enter(name)
      : await this.#turn(name, signal);
    try {
      return await work();
    } finally {
      leave();
      this.#beginNext();
    }
  }

  #turn(name: string, signal: AbortSignal): Promise<() => void> {
    return new Promise((resolve, reject) => {
      const line = this.#waiting.get(name) ?? [];
      this.#waiting.set(name, line);
      const giveUp = (): void => {
        line.splice(line.indexOf(begin), 1);
        if (line.length === 0) this.#waiting.delete(name);
        reject(signal.reason);
      };
      const begin: Begin = (leave) => {
        signal.removeEventListener('abort', giveUp);
        resolve(leave);
      };
      line.push(begin);
      if (signal.aborted) giveUp();
      else signal.addEventListener('abort', giveUp, { once: true });
    });
  }

  /**
   * Lets the next work begin. One place became free, so there is at most one. When it has the
   * place, as many are free as before.
   */
  #beginNext(): void {
    const [name, line] = [...this.#waiting]
      .filter(([one]) => this.#limit.hasRoom(one))
      .reduce<[string, Begin[]] | []>(
        (least, one) =>
          least[0] === undefined || this.#limit.ownOf(one[0]) < this.#limit.ownOf(least[0])
            ? one
            : least,
        [],
      );
    if (name === undefined || line === undefined) return;
    const begin = line.shift();
    if (line.length === 0) this.#waiting.delete(name);
    begin?.(this.#limit.enter(name));
  }
}
