import type { NodeKeys } from '../../packages/lock/src/redis/node-keys.ts';
import type { RedisProcess } from './redis-process.ts';

/** A node's record of a resource. */
export interface LockRecord {
  readonly token: number | undefined;
  /** The holder, until its lease ends. */
  readonly owner: string | undefined;
  /** The end of the lease; 0 if the lock was released or never held. */
  readonly endsMs: number;
  /** The way in which the lease came to the node; see lock-table.lua. */
  readonly origin: string;
  /** True if the record says that the resource may have waiters. */
  readonly isMarked: boolean;
}

const TIME_DIGITS = 15;
const TOKEN_DIGITS = 16;
const HELD = /^(\d{15})([ +])(\d{16})([ =A-~])(.*)$/s;

function digits(number: number, width: number): string {
  return String(number).padStart(width, '0');
}

export function tokenText(token: number): string {
  return digits(token, TOKEN_DIGITS);
}

/** @param alsoOver true if the owner of an expired lease is returned, too */
export function recordOf(
  model: RedisProcess,
  [node, before]: NodeKeys,
  queue: string,
  alsoOver = false,
): LockRecord {
  const text = model.field(node, queue) ?? model.field(before, queue);
  if (text === undefined) {
    return { token: undefined, owner: undefined, endsMs: 0, origin: ' ', isMarked: false };
  }
  const [, ends, mark, token = text, origin = ' ', owner] = HELD.exec(text) ?? [];
  const endsMs = Number(ends ?? 0);
  return {
    token: Number(token),
    endsMs,
    origin,
    isMarked: mark === '+',
    owner: alsoOver || endsMs >= Math.floor(model.nowMs) ? owner : undefined,
  };
}

export function write(
  model: RedisProcess,
  [node]: NodeKeys,
  queue: string,
  {
    token,
    owner,
    endsMs,
    origin = ' ',
  }: Omit<LockRecord, 'isMarked' | 'origin'> & {
    readonly origin?: string;
  },
): void {
  const text = tokenText(token ?? 0);
  const waits = model.queue(queue).length > 0;
  const ends = digits(Math.floor(endsMs), TIME_DIGITS);
  const held = `${ends}${waits ? '+' : ' '}${text}${origin}${owner ?? ''}`;
  model.setFields(node, { [queue]: owner === undefined && !waits ? text : held });
}

/** Frees the lock before its lease ends. */
export function free(model: RedisProcess, keys: NodeKeys, queue: string): void {
  const { token, owner } = recordOf(model, keys, queue, true);
  if (owner !== undefined) write(model, keys, queue, { token, owner: undefined, endsMs: 0 });
}

export function forget(model: RedisProcess, keys: NodeKeys, queue: string): void {
  for (const key of keys) model.deleteFields(key, [queue]);
}

/** Fields in which a node describes itself. */
const OWN = [
  'history',
  'generation',
  'roster',
  'vote',
  'floor',
  'max',
  'longest',
  'members',
  'name',
  'names',
  'max_ttl',
  'incarnation',
  'seen_history',
  'recovery_since',
  'next_set',
  'awaits',
  'previous_set',
];

/** True if this hash is older than `fenceTtlMs` and than the longest lease, `longestMs`. */
export function mayRotate(
  model: RedisProcess,
  [node]: NodeKeys,
  fenceTtlMs: number,
  longestMs: number,
): boolean {
  const nowMs = Math.floor(model.nowMs);
  const opened = model.field(node, 'opened');
  const rotatedMs = Number(model.field(node, 'rotated') ?? '0');
  if (opened === undefined) return false;
  const ageMs = nowMs - Number(opened);
  if (model.has('lock-table-rotated-early')) return ageMs > 0;
  return ageMs > Math.max(fenceTtlMs, longestMs) && Math.abs(nowMs - rotatedMs) > longestMs;
}

/** True if the node has lost only the hash that its present one replaced. */
export function hasLostBefore(model: RedisProcess, node: string): boolean {
  if (model.has('lost-lock-table-unnoticed')) return false;
  return model.field(node, 'before') === '1' && !model.data.hashes.has(`${node}-before`);
}

/** Begins a new hash if the present one is old enough, or if there is none. */
export function rotate(
  model: RedisProcess,
  keys: NodeKeys,
  fenceTtlMs: number,
  longestMs: number,
): void {
  const [node, before] = keys;
  const nowMs = Math.floor(model.nowMs);
  const opened = model.field(node, 'opened');
  const rotatedMs = Number(model.field(node, 'rotated') ?? '0');
  const rotates = mayRotate(model, keys, fenceTtlMs, longestMs);
  if (opened !== undefined && Number(opened) <= nowMs && !rotates) return;
  if (rotates) {
    model.rename(node, before);
    for (const name of OWN) {
      const value = model.field(before, name);
      if (value !== undefined) model.setFields(node, { [name]: value });
    }
  }
  const rotated = rotates ? nowMs : rotatedMs;
  const hasBefore = model.data.hashes.has(before) ? '1' : '0';
  model.setFields(node, { opened: String(nowMs), rotated: String(rotated), before: hasBefore });
}
