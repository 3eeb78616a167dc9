import type { Actor, Event } from './history.js';
import { isFenced, type Protection } from './job.js';
import type { Variant } from './stories/story.js';

/** Derives, from the events of one run in the order of time, how the storage compared tokens. */
export class Comparisons {
  readonly #protection: Protection;
  readonly #ignoresConditions: boolean;
  /** Token of each client's latest lease. */
  readonly #tokens = new Map<Actor, bigint>();
  #highest = 0n;

  constructor({ story, protection }: Pick<Variant, 'story' | 'protection'>) {
    this.#protection = protection;
    this.#ignoresConditions = story.ignoresConditions ?? false;
  }

  /** The comparison of a write or a claim: `33 < 34: refused`. Empty for other events. */
  of({ actor, operation, phase, token: issued, highest }: Event): string {
    const isReply = phase === 'ok' || phase === 'refused';
    if (operation === 'acquire' && phase === 'ok' && issued !== undefined)
      this.#tokens.set(actor, BigInt(issued));
    if ((operation !== 'write' && operation !== 'claim') || !isReply) return '';
    const token = isFenced(this.#protection) ? this.#tokens.get(actor) : undefined;
    if (phase === 'refused') {
      return highest === undefined ? 'refused' : `${token} < ${highest}: refused`;
    }
    if (token === undefined) return 'no token: applied';
    if (this.#protection === 'metadata')
      return this.#ignoresConditions ? 'no check: applied' : 'ETag fits: applied';
    const before = this.#highest;
    if (token > before) this.#highest = token;
    return `${token} ≥ ${before}: ${operation === 'claim' ? 'claimed' : 'applied'}`;
  }
}
