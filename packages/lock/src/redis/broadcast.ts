import type { NodeFailure } from '../core/answers.js';
import { LATE_MS, type PreferredMajority } from '../core/preferred-majority.js';
import { noAnswer, type Runtime } from '../runtime/runtime.js';
import type { Command, Reply } from './command.js';
import type { Read, RedisNode } from './node.js';

/** The nodes of a lock service. */
interface Receivers {
  readonly all: readonly RedisNode[];
  readonly preferred: PreferredMajority;
  readonly runtime: Runtime;
  after(delayMs: number, callback: () => void): () => void;
}

/** The answer of a node that was not asked, or has not answered its last command. */
export interface Pending {
  readonly answer: 'pending';
}

/**
 * The part of the time for answers after which a silent node gets a new connection. The time is
 * half of the TTL, so this is a third of the TTL. The rest of the lease is for another try.
 */
const SILENT_PART = 2 / 3;

const PENDING: Pending = { answer: 'pending' };

/**
 * The receiver of every answer, also after `end()`. A ballot is its own listener, without a
 * closure: in Node 24, minor garbage collections never free the objects to which such a closure
 * refers.
 */
export interface AnswerListener<Answer> {
  onAnswer(index: number, answer: Answer | NodeFailure, elapsedMs: number): void;
}

/**
 * The commands of one operation, and the answers of the nodes. A node gets its next command only
 * after it has answered the one before.
 *
 * A caller reads `answers`, decides, and awaits `change()` if it cannot decide yet.
 */
export class Broadcast<Answer extends object> {
  /** By node. If a node does not answer in time, its answer is a failure. */
  readonly answers: (Answer | NodeFailure | Pending)[];
  /** True if a node has not answered within `LATE_MS`. */
  isLate = false;
  listener: AnswerListener<Answer> | null = null;
  readonly #nodes: Receivers;
  readonly #limitMs: number;
  readonly #endMs: number;
  /** Bit set of the nodes that have not answered their command yet. */
  #unanswered = 0;
  #cancelTimer: (() => void) | null = null;
  #resolve: (() => void) | null = null;

  /** @param limitMs the time for all answers */
  constructor(nodes: Receivers, limitMs: number) {
    this.#nodes = nodes;
    this.#limitMs = limitMs;
    this.answers = nodes.all.map(() => PENDING);
    this.#endMs = nodes.runtime.nowMs() + limitMs;
  }

  /** True if all nodes that were asked have answered. */
  get isAnswered(): boolean {
    return this.#unanswered === 0;
  }

  /** @param worthMs the time after which the command is not worth sending any more */
  send(indexes: readonly number[], command: Command, read: Read<Answer>, worthMs: number): void {
    const sentMs = this.#nodes.runtime.nowMs();
    this.#cancelTimer ??= this.#startTimer(Math.max(1, this.#endMs - sentMs));
    const call = {
      command,
      untilMs: sentMs + worthMs,
      onReply: (node: Parameters<Read<Answer>>[2], reply: Reply | Error) => {
        const elapsedMs = this.#nodes.runtime.nowMs() - sentMs;
        this.#answer(this.#nodes.all.indexOf(node), node.read(reply, read), elapsedMs);
      },
    };
    for (const index of indexes) {
      this.answers[index] = PENDING;
      this.#unanswered |= 1 << index;
      this.#nodes.all[index]?.send(call);
    }
  }

  /** Resolves when an answer has come, a node is late, or `wake` is called. */
  change(): Promise<void> {
    return new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  wake(): void {
    this.#resolve?.();
  }

  /** Ends the time limit, because the operation is decided. Nodes may still answer. */
  end(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = null;
  }

  #answer(index: number, answer: Answer | NodeFailure, elapsedMs: number): void {
    if (!this.#isUnanswered(index)) return;
    this.#unanswered ^= 1 << index;
    if (this.#unanswered === 0) this.end();
    this.answers[index] = answer;
    this.listener?.onAnswer(index, answer, elapsedMs);
    this.wake();
  }

  #isUnanswered(index: number): boolean {
    return (this.#unanswered & (1 << index)) !== 0;
  }

  #startTimer(leftMs: number): () => void {
    const lateMs = Math.min(LATE_MS, leftMs);
    return this.#nodes.after(lateMs, () => this.#late(leftMs - lateMs));
  }

  #late(leftMs: number): void {
    this.isLate = true;
    this.#nodes.all.forEach((_, index) => {
      if (this.#isUnanswered(index)) this.#nodes.preferred.missed(index);
    });
    const silentMs = SILENT_PART * leftMs;
    this.#cancelTimer = this.#nodes.after(silentMs, () =>
      this.#silent(silentMs, leftMs - silentMs),
    );
    this.wake();
  }

  #silent(silentMs: number, leftMs: number): void {
    this.#nodes.all.forEach((node, index) => {
      if (this.#isUnanswered(index)) node.noteSilence(silentMs);
    });
    this.#cancelTimer = this.#nodes.after(leftMs, () => this.#fail());
  }

  #fail(): void {
    this.#nodes.all.forEach((node, index) => {
      this.#answer(index, noAnswer(this.#limitMs, node), this.#limitMs);
    });
  }
}
