import type { NodeAnswer } from './core/answers.js';
import type { Failure } from './core/failure.js';
import { consistentQuorum, majorityOf } from './core/quorum.js';
import { nodeTimeoutMs, validityMs } from './core/validity.js';
import type { Holding, RedisNode } from './redis/node.js';
import { inTime, type Runtime } from './runtime.js';

/**
 * How an extension ended. `lost`: no majority holds the lease any more. `no-quorum`: too few nodes answered to tell.
 * `deadlineMs` is on the runtime's monotonic clock.
 */
export type ExtendOutcome =
  | { readonly ok: true; readonly deadlineMs: number }
  | (Failure & { readonly ok: false });

/** `unknown`: too few nodes answered to tell; what they still hold ends with its TTL. */
export type ReleaseOutcome = 'released' | 'expired' | 'unknown';

/** Asks all nodes to give the lease `ttlMs` from now on. Never rejects. */
export async function extendOnAll(
  nodes: readonly RedisNode[],
  holding: Holding,
  ttlMs: number,
  runtime: Runtime,
): Promise<ExtendOutcome> {
  const startedMs = runtime.nowMs();
  const ask = (node: RedisNode) =>
    inTime(runtime, node, node.extend(holding, ttlMs), nodeTimeoutMs(ttlMs));
  return poll(nodes, ask, ({ replies, no, pending, answers }) => {
    const extended = replies.flatMap((reply, index) =>
      reply.answer === 'extended' ? [{ index, ...reply }] : [],
    );
    // An old master, or a node before it lost its memory, may extend what its successor has forgotten.
    if (consistentQuorum(extended, majorityOf(nodes.length))) {
      const nowMs = runtime.nowMs();
      return { ok: true, deadlineMs: nowMs + validityMs(ttlMs, nowMs - startedMs) };
    }
    const fail = (reason: Failure['reason']): ExtendOutcome => ({
      ok: false,
      reason,
      nodes: answers(),
      retryAfterMs: 0,
    });
    if (no('not-held')) return fail('lost');
    if (pending > 0) return null;
    return fail(
      answers().some((node) => node.answer === 'ttl-too-long') ? 'ttl-too-long' : 'no-quorum',
    );
  });
}

/** Releases on all nodes; settles once a majority has decided, or `limitMs` after the start. Never rejects. */
export async function releaseOnAll(
  nodes: readonly RedisNode[],
  holding: Holding,
  limitMs: number,
  runtime: Runtime,
): Promise<ReleaseOutcome> {
  const ask = (node: RedisNode) => inTime(runtime, node, node.release(holding), limitMs);
  return poll(nodes, ask, ({ yes, no, pending }) => {
    if (yes('released')) return 'released';
    if (no('not-held')) return 'expired';
    return pending > 0 ? null : 'unknown';
  });
}

interface Poll<Reply extends { readonly answer: string }> {
  readonly replies: readonly (Reply | Pending)[];
  /** Whether a majority has answered this. */
  yes(answer: Reply['answer']): boolean;
  /** Whether so many have answered this that no majority can answer otherwise. */
  no(answer: Reply['answer']): boolean;
  readonly pending: number;
  answers(): readonly NodeAnswer[];
}

type Pending = { readonly answer: 'pending' };

/** Asks every node at once and settles as soon as `decide` can tell. With nothing pending it must. */
function poll<Reply extends { readonly answer: NodeAnswer['answer'] }, Result>(
  nodes: readonly RedisNode[],
  ask: (node: RedisNode) => Promise<Reply>,
  decide: (poll: Poll<Reply>) => Result | null,
): Promise<Result> {
  const majority = majorityOf(nodes.length);
  const replies: (Reply | Pending)[] = nodes.map(() => ({ answer: 'pending' }));
  const count = (answer: string): number =>
    replies.filter((reply) => reply.answer === answer).length;
  return new Promise((resolve) => {
    for (const [at, node] of nodes.entries()) {
      void ask(node).then((reply) => {
        replies[at] = reply;
        const result = decide({
          replies,
          yes: (answer) => count(answer) >= majority,
          no: (answer) => count(answer) > nodes.length - majority,
          pending: count('pending'),
          answers: () =>
            nodes.map(({ name }, index) => ({
              name,
              ...(replies[index] ?? { answer: 'pending' }),
            })),
        });
        if (result !== null) resolve(result);
      });
    }
  });
}
