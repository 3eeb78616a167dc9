import type { Given, VoteReply } from '../../../packages/lock/src/core/answers.js';
import { nodeClientOf, type RedisClient } from '../../../packages/lock/src/redis/clients/detect.js';
import { RedisNode } from '../../../packages/lock/src/redis/node.js';
import { type Holding, Nodes, type Ticket } from '../../../packages/lock/src/redis/nodes.js';
import type { ExtendReply, ReleaseReply } from '../../../packages/lock/src/redis/replies.js';
import { type Runtime, systemRuntime } from '../../../packages/lock/src/runtime/runtime.js';

const LIMIT_MS = 10_000;

/** One node, asked directly. */
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

  acquire(holding: Holding, ttlMs: number, ticket: Ticket | null = null): Promise<VoteReply> {
    return answered((tell) => this.#nodes.acquire([0], holding, ttlMs, ticket, LIMIT_MS, tell));
  }

  confirm(holding: Holding, token: bigint): Promise<VoteReply> {
    return answered((tell) => this.#nodes.confirm([0], holding, token, LIMIT_MS, tell, () => {}));
  }

  /** @param given the lease's token, or what the node has told */
  keep(holding: Holding, given: bigint | Given, ttlMs: number): Promise<VoteReply> {
    const told = typeof given === 'bigint' ? { number: given.toString() } : given;
    return answered((tell) => this.#nodes.keep([0], holding, told, ttlMs, tell));
  }

  extend(holding: Holding, ttlMs: number): Promise<ExtendReply> {
    return answered((tell) => this.#nodes.extend(holding, ttlMs, tell));
  }

  release(holding: Holding): Promise<ReleaseReply> {
    holding.asked = [0];
    const options = { limitMs: LIMIT_MS, isOver: true, next: undefined };
    return answered((tell) => this.#nodes.release(holding, options, tell));
  }
}

function answered<Answer>(
  ask: (tell: (index: number, answer: Answer) => void) => void,
): Promise<Answer> {
  return new Promise((resolve) => ask((_, answer) => resolve(answer)));
}
