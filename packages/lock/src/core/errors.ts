import type { NodeAnswer } from './answers.js';
import { errorJson } from './json.js';

/**
 * The kinds of failure that a caller may handle differently:
 *
 * - `held`: somebody else holds the lock. The caller may try again after `retryAfterMs`, or wait
 *   with `waitMs`.
 * - `no-quorum`: too few nodes voted. The caller must look at `nodes`, which has the reason of
 *   each.
 * - `too-slow`: the votes were won, but so late that nothing of the lease was left. The caller may
 *   try again, or ask for a longer TTL.
 * - `timeout`: the lock did not become free within `waitMs`. The caller may try again.
 * - `config-mismatch`: a majority is impossible, because nodes were set up with other node names.
 *   The message has both sides. The caller must configure all clients alike.
 * - `wrong-version`: a majority is impossible, because nodes were set up with another storage
 *   version. The caller must run versions that work together: docs/storage-versions.md.
 * - `ttl-too-long`: the nodes grant no lease that long. The caller must ask for less, or an
 *   operator must change the limit of the nodes.
 * - `memory-full`: the memory of the nodes is full. They recover by themselves when old names may
 *   be forgotten. The caller may try again; an operator must give them more memory, or lower
 *   `fenceTtlMs`.
 * - `token-exhausted`: the tokens of a node have reached 2^53-1. No higher token exists. An
 *   operator must start with a new key prefix, and with new objects or rows. The old objects and
 *   rows refuse the lower tokens of the new start.
 * - `not-installed`: the database lacks the schema of `PostgresLock`, or the role or the user
 *   lacks the rights, or the bucket of `S3Lock` is refused. An operator must mend the set-up.
 * - `lease-lost`: the lease is over. The caller must stop the work that it protects.
 * - `closed`: this lock service was closed. The caller must make another one.
 * - `invalid-argument`: the call itself is wrong. Nothing was sent.
 */
export type LockErrorCode =
  | 'held'
  | 'no-quorum'
  | 'too-slow'
  | 'timeout'
  | 'config-mismatch'
  | 'wrong-version'
  | 'ttl-too-long'
  | 'memory-full'
  | 'token-exhausted'
  | 'not-installed'
  | 'lease-lost'
  | 'closed'
  | 'invalid-argument';

/**
 * Base of all errors that this package throws itself. `cause` is the error that led to it, if any.
 */
export class LockError extends Error {
  readonly code: LockErrorCode;

  constructor(code: LockErrorCode, message: string, options?: { readonly cause?: unknown }) {
    super(message, options);
    this.name = new.target.name;
    this.code = code;
  }

  /**
   * For `JSON.stringify`: name, code, message and all fields. `cause` shows its own name, code and
   * message.
   */
  toJSON(_key?: string, depth = 0): object {
    return errorJson(this, { ...this }, depth);
  }
}

/** An argument or option of the call is wrong. The message names it and the expected value. */
export class LockArgumentError extends LockError {
  constructor(message: string) {
    super('invalid-argument', message);
  }
}

/**
 * The lease is over: its deadline has passed, a majority of the nodes no longer holds it, or it was
 * released.
 */
export class LeaseLostError extends LockError {
  constructor(message: string, options?: { readonly cause?: unknown }) {
    super('lease-lost', message, options);
  }
}

/** An acquisition or an extension did not win. `nodes` has every node's own answer. */
export class QuorumError extends LockError {
  readonly resources: readonly string[];
  readonly nodes: readonly NodeAnswer[];
  /** Milliseconds after which another acquisition could win, according to the nodes. */
  readonly retryAfterMs: number;

  constructor(
    code: LockErrorCode,
    message: string,
    facts: {
      readonly resources: readonly string[];
      readonly nodes: readonly NodeAnswer[];
      readonly retryAfterMs: number;
    },
    options?: { readonly cause?: unknown },
  ) {
    const { resources, nodes, retryAfterMs } = facts;
    super(code, `${message} (resources=${resources.join(',')}; ${describe(nodes)})`, options);
    this.resources = resources;
    this.nodes = nodes;
    this.retryAfterMs = retryAfterMs;
  }
}

/** Somebody else holds the lock, and the caller did not want to wait. */
export class LockHeldError extends QuorumError {}

/**
 * Too few nodes voted: they were unreachable, not voting, or refused. `nodes` has the reason of
 * each.
 */
export class NoQuorumError extends QuorumError {}

/** The lock did not become free within `waitMs`. `nodes` has the last acquisition's answers. */
export class AcquireTimeoutError extends QuorumError {}

function describe(nodes: readonly NodeAnswer[]): string {
  return nodes
    .map(({ name, answer, error, role }) => {
      if (role !== undefined) return `${name}: ${answer}, its server is a ${role}`;
      return `${name}: ${error ? reasonOf(error) : answer === 'pending' ? 'not waited for' : answer}`;
    })
    .join('; ');
}

/** The message, with that of the cause: `fetch failed` alone does not give the reason. */
function reasonOf({ message, cause }: Error): string {
  const { message: inner, code } = Object(cause);
  const why = inner || code;
  return why && !message.includes(why) ? `${message}: ${why}` : message;
}
