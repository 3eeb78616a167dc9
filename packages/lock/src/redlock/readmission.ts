import { majorityOf } from '../core/quorum.js';
import type { RedisNode } from '../redis/node.js';
import type { Runtime } from '../runtime/runtime.js';
import {
  type Force,
  type NodeSet,
  RETRY_MS,
  ReadmissionRound,
  type RoundOutcome,
} from './readmission-round.js';

/** The result of `readmit`. `ok` only if the nodes concerned are known to vote; see `resultOf`. */
export type ReadmitResult =
  | { readonly ok: true }
  | {
      readonly ok: false;
      /** Every node's answer, and advice. */
      readonly reason: string;
      /** Milliseconds after which another try may succeed, according to the nodes; else 0. */
      readonly retryAfterMs: number;
    };

/**
 * Readmits nodes that lost their memory, or never had any. It works in rounds, at most one at a
 * time, in the background. Never rejects.
 */
export class Readmissions {
  readonly #set: NodeSet;
  readonly #runtime: Runtime;
  #round: Promise<RoundOutcome> | null = null;
  #cancelNext: (() => void) | null = null;
  #last: RoundOutcome | null = null;
  #isClosed = false;

  constructor(set: NodeSet, runtime: Runtime) {
    this.#set = set;
    this.#runtime = runtime;
  }

  /** The end of the last round; null before the first. */
  get last(): RoundOutcome | null {
    return this.#last;
  }

  /**
   * Readmits a node that has no vote, or one that does not count, unless a round is running or
   * planned.
   */
  call(): void {
    if (!this.#cancelNext && !this.#isClosed) void this.run();
  }

  /** Runs a round now, or joins the one that is running. */
  run(): Promise<RoundOutcome> {
    this.#forgetNext();
    this.#round ??= this.#runRound(null).then((outcome) => {
      const { againMs } = outcome;
      this.#round = null;
      this.#last = outcome;
      // Until the next round, further acquisitions may meet a node without a vote. A round for each
      // of them would only be load.
      const next = (): void => (againMs === null ? this.#forgetNext() : void this.run());
      if (!this.#isClosed) {
        this.#cancelNext = this.#runtime.after(againMs ?? RETRY_MS, next, 'background');
      }
      return outcome;
    });
    return this.#round;
  }

  /**
   * Runs a round without recovery waits, in which silent nodes count as gone for good.
   *
   * If one node is named, only that node skips its wait, and no node counts as gone. The named node
   * begins a new incarnation, whatever it remembers.
   */
  async force(force: Force): Promise<RoundOutcome> {
    await this.#round;
    return this.#runRound(force);
  }

  /** Cancels the planned round; a running round ends by itself. */
  close(): void {
    this.#isClosed = true;
    this.#forgetNext();
  }

  #runRound(force: Force | null): Promise<RoundOutcome> {
    return new ReadmissionRound(this.#set, { force }, this.#runtime).run();
  }

  #forgetNext(): void {
    this.#cancelNext?.();
    this.#cancelNext = null;
  }
}

/**
 * Returns the result for the caller. `ok` only if a majority is known to vote. A named node must
 * vote, too. With force and no name, all nodes that answered must vote.
 */
export function resultOf(
  { voting, notVoting, reason, againMs }: RoundOutcome,
  nodeCount: number,
  index: number | null,
  isForced: boolean,
): ReadmitResult {
  const isDone = index === null ? !isForced || notVoting.length === 0 : voting.includes(index);
  if (isDone && voting.length >= majorityOf(nodeCount)) return { ok: true };
  return { ok: false, reason, retryAfterMs: againMs ?? 0 };
}

/** Sets the limit of the leases on all nodes. `ok` only if a majority is known to have it. */
export async function limitOn(
  nodes: readonly RedisNode[],
  maxTtlMs: number,
): Promise<ReadmitResult> {
  const replies = await Promise.all(nodes.map((node) => node.limit(maxTtlMs)));
  const limited = replies.filter(({ answer }) => answer === 'limited');
  if (limited.length >= majorityOf(nodes.length)) return { ok: true };
  const each = nodes.map(({ name }, at) => {
    const reply = replies[at];
    return `${name} (${reply && 'error' in reply ? reply.error.message : reply?.answer})`;
  });
  const reason = `no majority is known to have the limit; ask again: ${each.join(', ')}`;
  return { ok: false, reason, retryAfterMs: 0 };
}
