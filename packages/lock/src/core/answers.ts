import { withJson } from './json.js';
import type { Roster } from './quorum.js';

/** Why a server is no node for this client. */
export type MismatchReply =
  /** `role`: what the server calls itself, such as `slave`. */
  | { readonly answer: 'not-master'; readonly role: string }
  /** The node's own name and all names that it was set up with. */
  | {
      readonly answer: 'config-mismatch';
      readonly knownAs: string;
      readonly members: readonly string[];
    }
  | { readonly answer: 'wrong-version'; readonly storageVersion: number };

/** What a node said to ACQUIRE, CONFIRM, STAND or KEEP, as read from its reply. Milliseconds; tokens are whole numbers up to 2^53-1. */
export type VoteReply =
  | {
      readonly answer: 'granted';
      readonly token: bigint;
      /** Of the incarnation that voted. */
      readonly generation: number;
      readonly incarnation: string;
      /** The latest incarnation that the voter knows of every node. */
      readonly roster: Roster;
      /** To who waits, and may hand the lock on: how many stand directly behind it who wait in the same process. */
      readonly followers?: number;
      /** Whether others stand behind those. */
      readonly othersWait?: boolean;
    }
  | {
      readonly answer: 'held';
      readonly remainingMs: number;
      /** The node's clock, since 1970. */
      readonly timeMs: number;
    }
  | { readonly answer: 'ttl-too-long'; readonly maxTtlMs: number }
  | {
      readonly answer: 'not-held';
      /** From a node on which the locks are free. */
      readonly given?: Given;
    }
  | { readonly answer: 'not-voting' | 'token-exhausted' | 'turn' }
  | MismatchReply
  | NodeFailure;

/** The failure of one node. `memory-full`: its server has reached `maxmemory` and refuses what takes memory. */
export type NodeFailure = { readonly answer: 'error' | 'memory-full'; readonly error: Error };

/** A number that no token which an incarnation has given for the resources is above. Those that it gives later are. */
export interface Given {
  readonly number: string;
  readonly incarnation: string;
}

/** A node's own answer, as attached to results and errors. Its JSON shows name, code and message of `error`. */
export interface NodeAnswer {
  /** The name under which the node was configured. */
  readonly name: string;
  /** `pending` where the attempt was decided before this node had to be asked, or answered; `turn` where it is the turn of who waits. */
  readonly answer: VoteReply['answer'] | 'pending' | 'extended' | 'released';
  /** For `held`: milliseconds until the present lease ends on this node. */
  readonly remainingMs?: number;
  /** For `held`: when the node said so by its own clock, in milliseconds since 1970. */
  readonly timeMs?: number;
  /** For `ttl-too-long`: the longest lease in milliseconds that this node grants. */
  readonly maxTtlMs?: number;
  /** For `not-master`: the role that the server states, such as `slave` for a replica. */
  readonly role?: string;
  /** For `config-mismatch`: the names of all nodes that this node was set up with. */
  readonly members?: readonly string[];
  /** For `config-mismatch`: the name that this node has among those. */
  readonly knownAs?: string;
  /** For `wrong-version`: the node's storage version; 0 for those before versions were kept. */
  readonly storageVersion?: number;
  /** For `error`: what the client said, or that the node did not answer in time. For `memory-full`: what its server said. */
  readonly error?: Error;
}

/** The declared facts of a reply, and no others: the rest is the protocol's own, tokens of lost attempts among it. */
export function nodeAnswer(name: string, reply: Omit<NodeAnswer, 'name'>): NodeAnswer {
  const { answer, remainingMs, timeMs, maxTtlMs, error } = reply;
  const { role, members, knownAs, storageVersion } = reply;
  return withJson({
    name,
    answer,
    ...(remainingMs !== undefined && { remainingMs }),
    ...(timeMs !== undefined && { timeMs }),
    ...(maxTtlMs !== undefined && { maxTtlMs }),
    ...(role !== undefined && { role }),
    ...(members !== undefined && { members }),
    ...(knownAs !== undefined && { knownAs }),
    ...(storageVersion !== undefined && { storageVersion }),
    ...(error !== undefined && { error }),
  });
}
