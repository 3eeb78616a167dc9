import type { OurStatement } from './batch.js';
import { isServerError } from './client.js';
import { NOT_ALLOWED, STALE } from './failures.js';
import type { CheckedFence } from './fence.js';
import type { ConnectionState } from './state.js';
import { type Entered, lock, look } from './statements.js';

const RESOURCES_MAX = 1_000;

/** SQLSTATE: the server has no such setting, since it is older than the one that was asked before. */
const UNKNOWN_SETTING = '42704';

/** A token, and what was last sent to present it again. */
interface Accepted {
  readonly token: bigint;
  /** By whether no BEGIN comes before it. */
  readonly looks: { readonly explicit: OurStatement; readonly implicit: OurStatement };
  lock: OurStatement | undefined;
  /** That of `lock`. */
  limitMs: number;
}

/**
 * The tokens that the ratchet accepted last. It can be asked about them in a shorter way than by `fenced.enter`, by roles that may
 * read it. That a token is among them decides only how the ratchet is asked.
 */
export class Shortcuts {
  readonly #accepted = new Map<string, Accepted>();

  /** What presents the token in the shorter way, to one of these kinds of transactions; undefined where that is not open. */
  statementsFor(
    fence: CheckedFence,
    state: ConnectionState,
    kind: 'explicit' | 'implicit',
  ): OurStatement[] | undefined {
    const { resources, token, isolation, writeId } = fence;
    const accepted = this.#accepted.get(resources[0] as string);
    const isOpen =
      state.mayLook && resources.length === 1 && isolation === 'read committed' && !writeId;
    if (!isOpen || accepted?.token !== token) return undefined;
    const limitMs = fence.limitMs();
    if (!accepted.lock || limitMs !== accepted.limitMs) {
      accepted.lock = lock(fence, limitMs);
      accepted.limitMs = limitMs;
    }
    return [accepted.lock, accepted.looks[kind]];
  }

  learn(fence: CheckedFence, state: ConnectionState, [mayLook]: Entered): void {
    const { resources, token } = fence;
    if (state.mayLook !== false)
      state.mayLook = (mayLook === 'true' && state.sender.canBatch) || undefined;
    if (!state.mayLook || resources.length > 1) return;
    if (this.#accepted.size >= RESOURCES_MAX) this.#accepted.clear();
    const looks = { explicit: look(fence, false), implicit: look(fence, true) };
    this.#accepted.set(resources[0] as string, { token, looks, lock: undefined, limitMs: 0 });
  }

  /** Whether this error says only that the shorter way was not open, so that the other one is to be taken. */
  unlearn({ resources }: CheckedFence, state: ConnectionState, error: unknown): boolean {
    for (const resource of resources) this.#accepted.delete(resource);
    if (!isServerError(error)) return false;
    // The connection has another server or another role than before, or one with fewer rights: not to be tried again.
    const isClosed = error.code === NOT_ALLOWED || error.code === UNKNOWN_SETTING;
    if (isClosed) state.mayLook = false;
    return isClosed || error.code === STALE;
  }
}
