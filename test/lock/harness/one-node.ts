import type {
  NodeFailure,
  TokenBound,
  VoteReply,
} from '../../../packages/lock/src/core/answers.js';
import type { Broadcast } from '../../../packages/lock/src/redis/broadcast.js';
import { nodeClientOf, type RedisClient } from '../../../packages/lock/src/redis/clients/detect.js';
import { RedisNode } from '../../../packages/lock/src/redis/node.js';
import {
  Nodes,
  type Ownership,
  type QueuePosition,
} from '../../../packages/lock/src/redis/nodes.js';
import type { ExtendReply, ReleaseReply } from '../../../packages/lock/src/redis/replies.js';
import { type Runtime, systemRuntime } from '../../../packages/lock/src/runtime/runtime.js';

const LIMIT_MS = 10_000;

/** Sends single commands of the lock to one node. */
export class OneNode {
  readonly #nodes: Nodes;

  constructor(
    client: RedisClient,
    keyPrefix: string,
    members: string,
    runtime: Runtime = systemRuntime,
  ) {
    const options = { keyPrefix, fenceTtlMs: 60_000, maxTtlMs: 60_000, members, names: ['n'] };
    const named = { name: 'n', client: nodeClientOf(client), durable: false };
    const node = new RedisNode(named, options, runtime);
    this.#nodes = new Nodes([node], options, runtime);
  }

  acquire(
    ownership: Ownership,
    ttlMs: number,
    position: QueuePosition | null = null,
  ): Promise<VoteReply> {
    const broadcast = this.#nodes.broadcast<VoteReply>(LIMIT_MS);
    this.#nodes.acquire(broadcast, [0], ownership, ttlMs, position);
    return answerOf(broadcast);
  }

  confirm(ownership: Ownership, token: bigint): Promise<VoteReply> {
    const broadcast = this.#nodes.broadcast<VoteReply>(LIMIT_MS);
    this.#nodes.confirm(broadcast, [0], ownership, token);
    return answerOf(broadcast);
  }

  /** @param bound the lease's token, or the number that the node reported */
  backfill(ownership: Ownership, bound: bigint | TokenBound, ttlMs: number): Promise<VoteReply> {
    const known = typeof bound === 'bigint' ? { number: bound.toString() } : bound;
    return answerOf(this.#nodes.backfill([0], ownership, known, ttlMs));
  }

  extend(ownership: Ownership, token: bigint, ttlMs: number): Promise<ExtendReply> {
    return answerOf(this.#nodes.extend(ownership, token, ttlMs));
  }

  release(ownership: Ownership): Promise<ReleaseReply> {
    if (!ownership.asked.includes(0)) ownership.asked.push(0);
    return answerOf(this.#nodes.release(ownership, LIMIT_MS, true));
  }
}

function answerOf<Answer extends object>(
  broadcast: Broadcast<Answer>,
): Promise<Answer | NodeFailure> {
  return new Promise((resolve) => {
    broadcast.listener = { onAnswer: (_, answer) => resolve(answer) };
  });
}
