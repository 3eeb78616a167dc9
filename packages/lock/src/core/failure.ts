import type { NodeAnswer } from './answers.js';
import {
  AcquireTimeoutError,
  LeaseLostError,
  type LockError,
  LockHeldError,
  NoQuorumError,
  QuorumError,
} from './errors.js';
import { describeMismatch } from './mismatch.js';
import type { LossReason } from './tally.js';

const NOT_HELD = 'no majority holds the lease any more';

/** An acquisition or an extension that the nodes did not grant. */
export interface AcquireFailure {
  readonly ok: false;
  readonly reason: LossReason | 'not-installed' | 'too-slow' | 'lost' | 'aborted';
  /** Every node's own answer. */
  readonly nodes: readonly NodeAnswer[];
  /** Milliseconds after which another acquisition could win, according to the nodes. */
  readonly retryAfterMs: number;
  /** Advice, if a remedy is known. */
  readonly hint?: string;
}

/** Returns the error for a caller that asked for `resources` and was ready to wait `waitMs`. */
export function failureError(
  failure: AcquireFailure,
  resources: readonly string[],
  waitMs: number,
): LockError {
  const facts = { ...failure, resources };
  switch (failure.reason) {
    case 'held':
      return waitMs > 0
        ? new AcquireTimeoutError(
            'timeout',
            advised(`the lock did not become free waitMs=${waitMs}`, failure.hint),
            facts,
          )
        : new LockHeldError(
            'held',
            advised('somebody else holds the lock, and waitMs=0 does not wait', failure.hint),
            facts,
          );
    case 'no-quorum':
      return new NoQuorumError(
        'no-quorum',
        failure.hint ?? tooFew(failure.nodes),
        facts,
        causeOf(failure.nodes),
      );
    case 'not-installed':
      return new QuorumError('not-installed', failure.hint ?? '', facts, causeOf(failure.nodes));
    case 'too-slow':
      return new QuorumError(
        'too-slow',
        advised('the votes came after the lease was over', failure.hint),
        facts,
      );
    case 'config-mismatch':
    case 'wrong-version':
      return new QuorumError(
        failure.reason,
        failure.hint ?? describeMismatch(failure.nodes),
        facts,
      );
    case 'ttl-too-long':
      return new QuorumError(
        'ttl-too-long',
        `the nodes grant no lease that long maxTtlMs=${longest(failure.nodes)}; ask for less, which using extends while its function runs, or change the limit of the nodes: fenced readmit --max-ttl-ms`,
        facts,
      );
    case 'memory-full':
      return new QuorumError(
        'memory-full',
        'the nodes have reached maxmemory and take no new names until they may forget old ones, which is when the longest leases are over; give them more memory, or lower fenceTtlMs',
        facts,
      );
    case 'token-exhausted':
      return new QuorumError('token-exhausted', 'the tokens have reached 2^53-1', facts);
    case 'lost': {
      // Its message has every node's own answer.
      const { message } = new QuorumError('lease-lost', NOT_HELD, facts);
      return new LeaseLostError(message, causeOf(failure.nodes));
    }
    case 'aborted':
      throw new Error('the caller throws the reason of its own signal');
  }
}

function tooFew(nodes: readonly NodeAnswer[]): string {
  const needed = nodes.length === 2 ? 'two nodes do without none: take one or three' : '';
  return advised(advised('too few nodes voted', needed), describeMismatch(nodes));
}

/** The message, and advice if there is some. */
function advised(message: string, advice = ''): string {
  return advice === '' ? message : `${message}; ${advice}`;
}

/** The longest lease in milliseconds that these nodes grant, as far as their answers say. */
function longest(nodes: readonly NodeAnswer[]): number {
  return Math.min(...nodes.flatMap(({ maxTtlMs }) => (maxTtlMs === undefined ? [] : [maxTtlMs])));
}

/** The error of the node that failed, or all errors in one. */
function causeOf(nodes: readonly NodeAnswer[]): { readonly cause?: Error } {
  const errors = nodes.flatMap(({ error }) => (error ? [error] : []));
  const [only] = errors;
  if (only === undefined) return {};
  const several = new AggregateError(errors, `${errors.length} nodes failed`);
  return { cause: errors.length > 1 ? several : only };
}
