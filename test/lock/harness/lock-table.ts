import type { Redis } from 'ioredis';
import { type NodeKeys, nodeKeys } from '../../../packages/lock/src/redis/node-keys.ts';

/** A node's record of a resource, in the format of `lock-table.lua`. */
export interface LockRecord {
  readonly token: bigint;
  /** Null if the lock is free. */
  readonly owner: string | null;
  readonly remainingMs: number;
}

const HELD = /^(\d{15})[ +](\d{16})[ =A-~](.*)$/s;
/**
 * Returns a script that reads a record, runs the statement `change` on its parts, and writes it. A
 * resource without a record has the node's highest token as its last one.
 */
const changing = (change: string): string => `
  local NODE, BEFORE = unpack(KEYS)
  local queue, value, owner = unpack(ARGV)
  local waits = redis.call('EXISTS', queue) == 1
  local function until_ms(ms) return string.format('%015.0f', ms) .. (waits and '+' or ' ') end
  local function after(ms)
    local time = redis.call('TIME')
    return until_ms(time[1] * 1000 + math.floor(time[2] / 1000) + ms)
  end
  local record = redis.call('HGET', NODE, queue) or redis.call('HGET', BEFORE, queue)
    or string.format('%016.0f', redis.call('HGET', NODE, 'max') or 0)
  local head = #record > 16 and string.sub(record, 1, 16) or ''
  local token, tail = string.sub(record, #head + 1, #head + 16), string.sub(record, #head + 17)
  ${change}
  redis.call('HSET', NODE, queue, head .. token .. tail)`;

/** The lock table of one node, read and changed without the scripts of the lock. */
export class LockTable {
  readonly #node: Redis;
  readonly #keys: NodeKeys;
  /** Prefix of the names of all wait queues. */
  readonly #queues: string;

  constructor(node: Redis, keyPrefix: string) {
    this.#node = node;
    this.#keys = nodeKeys(keyPrefix);
    this.#queues = `${keyPrefix}queue:`;
  }

  /** All resources that the node knows. */
  async all(): Promise<ReadonlyMap<string, LockRecord>> {
    const [node, nodeBefore] = this.#keys;
    // Reads the present hash first: a rotation may make it the earlier one between the reads.
    const [latest, before, [seconds = 0, microseconds = 0]] = await Promise.all([
      this.#node.hgetall(node),
      this.#node.hgetall(nodeBefore),
      this.#node.time(),
    ]);
    const nowMs = Number(seconds) * 1_000 + Math.floor(Number(microseconds) / 1_000);
    const from = this.#queues;
    const known = { ...before, ...latest };
    const queues = Object.entries(known).filter(([queue]) => queue.startsWith(from));
    return new Map(queues.map(([queue, text]) => [queue.slice(from.length), record(text, nowMs)]));
  }

  async of(resource: string): Promise<LockRecord | null> {
    return (await this.all()).get(resource) ?? null;
  }

  async ownerOf(resource: string): Promise<string | null> {
    return (await this.of(resource))?.owner ?? null;
  }

  async tokenOf(resource: string): Promise<bigint | null> {
    return (await this.of(resource))?.token ?? null;
  }

  /** The resources whose locks are taken. */
  async taken(): Promise<readonly string[]> {
    return [...(await this.all())].flatMap(([resource, { owner }]) =>
      owner === null ? [] : [resource],
    );
  }

  /** Gives the lock to an owner for `ttlMs`. The token does not change. */
  take(resource: string, owner: string, ttlMs: number): Promise<void> {
    return this.#change(resource, "head, tail = after(value), ' ' .. owner", String(ttlMs), owner);
  }

  /** Frees the lock as if the lease had ended. */
  free(resource: string): Promise<void> {
    return this.#change(
      resource,
      "if head == '' then return end head, tail = waits and until_ms(0) or '', waits and ' ' or ''",
    );
  }

  /** Changes the last token. The lock does not change. */
  setToken(resource: string, token: bigint): Promise<void> {
    return this.#change(resource, 'token = value', String(token).padStart(16, '0'));
  }

  /** Changes `max`, the highest token that the node ever gave for any resource. */
  async setMax(token: bigint): Promise<void> {
    await this.#node.hset(this.#keys[0], 'max', String(token).padStart(16, '0'));
  }

  /** Removes the record as if the node had never known the resource. */
  async forget(resource: string): Promise<void> {
    for (const key of this.#keys.toReversed()) await this.#node.hdel(key, this.#queues + resource);
  }

  async #change(resource: string, change: string, ...values: string[]): Promise<void> {
    const keys = this.#keys;
    const queue = this.#queues + resource;
    await this.#node.eval(changing(change), keys.length, ...keys, queue, ...values);
  }
}

function record(text: string, nowMs: number): LockRecord {
  const [, ends, token, owner] = HELD.exec(text) ?? [];
  if (owner === undefined) return { token: BigInt(text), owner: null, remainingMs: 0 };
  const remainingMs = Number(ends) - nowMs;
  const isOver = remainingMs < 0;
  return {
    token: BigInt(token ?? ''),
    owner: isOver ? null : owner,
    remainingMs: isOver ? 0 : remainingMs,
  };
}
