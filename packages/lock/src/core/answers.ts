import { withJson } from './json.js';
import type { Roster } from './quorum.js';

/** The reason why a server is no node for this client. */
export type MismatchReply =
  /** `role`: the role that the server states, such as `slave`. */
  | { readonly answer: 'not-master'; readonly role: string }
  /**
   * The node's own name and all names that it was set up with. If the node is sealed, the names are
   * those of the next set.
   */
  | {
      readonly answer: 'config-mismatch';
      readonly knownAs: string;
      readonly members: readonly string[];
      readonly nextSet?: string;
    }
  | { readonly answer: 'wrong-version'; readonly storageVersion: number };

/**
 * The reply of a node to ACQUIRE, CONFIRM, ENQUEUE or BACKFILL. Times are in milliseconds. Tokens
 * are whole numbers up to 2^53-1.
 */
export type VoteReply =
  | {
      readonly answer: 'granted';
      readonly token: bigint;
      /** Orders the incarnations of a node: a later one has a higher generation. */
      readonly generation: number;
      /** Random name of the voter's data since its last start, flush, failover or restore. */
      readonly incarnation: string;
      /** The latest incarnation of every node, as far as the voter knows. */
      readonly roster: Roster;
      /**
       * For a waiter that may hand over the lock: the number of waiters of its process directly
       * behind it.
       */
      readonly followers?: number;
    }
  | {
      readonly answer: 'held';
      readonly remainingMs: number;
      /** The node's clock, in milliseconds since 1970. */
      readonly timeMs: number;
    }
  | { readonly answer: 'ttl-too-long'; readonly maxTtlMs: number }
  | {
      readonly answer: 'not-held';
      /** Absent if another owner holds one of the locks. */
      readonly tokenBound?: TokenBound;
    }
  | { readonly answer: 'not-voting' | 'token-exhausted' | 'head' }
  | MismatchReply
  | NodeFailure;

/**
 * The failure of one node. `memory-full`: its server has reached `maxmemory` and refuses commands
 * that take memory.
 */
export type NodeFailure = { readonly answer: 'error' | 'memory-full'; readonly error: Error };

/**
 * An upper bound for the tokens that an incarnation has given for the resources. Every later token
 * of that incarnation is above it.
 */
export interface TokenBound {
  readonly number: string;
  readonly incarnation: string;
}

/**
 * A node's own answer, as attached to results and errors. Its JSON shows name, code and message of
 * `error`.
 */
export interface NodeAnswer {
  /** The name under which the node was configured. */
  readonly name: string;
  /**
   * `pending`: the acquisition was decided before this node was asked or had answered. `head`: the
   * waiter is the head of the queue on this node.
   */
  readonly answer: VoteReply['answer'] | 'pending' | 'extended' | 'released';
  /** For `held`: milliseconds until the present lease ends on this node. */
  readonly remainingMs?: number;
  /** For `held`: the time of the answer by the node's own clock, in milliseconds since 1970. */
  readonly timeMs?: number;
  /** For `ttl-too-long`: the longest lease in milliseconds that this node grants. */
  readonly maxTtlMs?: number;
  /** For `not-master`: the role that the server states, such as `slave` for a replica. */
  readonly role?: string;
  /**
   * For `config-mismatch`: the names of all nodes that this node was set up with. If the node is
   * sealed, because the locks move to another node set, the names are those of the next set.
   */
  readonly members?: readonly string[];
  /** For `config-mismatch` of a sealed node: key prefix and names of the next set, as JSON. */
  readonly nextSet?: string;
  /** For `config-mismatch`: the name under which this node was set up. */
  readonly knownAs?: string;
  /**
   * For `wrong-version`: the node's storage version; 0 for nodes from before versions were kept.
   */
  readonly storageVersion?: number;
  /**
   * For `error`: the Redis client's error, or an error that says that the node did not answer in
   * time. For `memory-full`: the server's error.
   */
  readonly error?: Error;
}

/**
 * Keeps the declared fields of a reply. The others are internal to the protocol, such as the tokens
 * of lost acquisitions.
 */
export function nodeAnswer(name: string, reply: Omit<NodeAnswer, 'name'>): NodeAnswer {
  const declared = FIELDS.filter((field) => reply[field] !== undefined);
  const fields = Object.fromEntries(declared.map((field) => [field, reply[field]]));
  return withJson({ name, answer: reply.answer, ...fields });
}

const FIELDS = [
  ...(['remainingMs', 'timeMs', 'maxTtlMs', 'role', 'members', 'knownAs'] as const),
  ...(['nextSet', 'storageVersion', 'error'] as const),
];
