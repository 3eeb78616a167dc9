import type { NodeKeys } from '../../packages/lock/src/redis/node-keys.ts';
import { recordOf, write } from './node-lock-table.ts';
import type { RedisProcess } from './redis-process.ts';

interface Position {
  readonly owner: string;
  readonly channel: string;
  readonly untilMs: number;
  readonly queues: readonly string[];
  readonly isNotified: boolean;
}

/** Budgets of one script, see queue.lua. */
const EXPIRED_MAX = 500;
const QUEUES_EXAMINED_MAX = 1_000;
const QUEUE_GRACES = 5;
const NOTIFIED = 'notified';

function positionOf(model: RedisProcess, waiter: string): Position | null {
  const list = model.get(waiter);
  if (list === undefined) return null;
  const [owner = '', channel = '', until, ...queues]: string[] = JSON.parse(list);
  const isNotified = queues.at(-1) === NOTIFIED;
  const untilMs = Number(until);
  return { owner, channel, untilMs, queues: isNotified ? queues.slice(0, -1) : queues, isNotified };
}

export function headOf(model: RedisProcess, queue: string): string | undefined {
  for (const waiter of model.queue(queue)) {
    if (positionOf(model, waiter) || model.spent.expired === EXPIRED_MAX) return waiter;
    model.leave(queue, waiter);
    model.spent.expired += 1;
  }
  return undefined;
}

/** Notifies waiters, each once. Each is known to be first in the queue at its place in `queues`. */
export function notifyAll(
  model: RedisProcess,
  keys: NodeKeys,
  waiters: readonly (string | undefined)[],
  queues: readonly string[],
): void {
  for (const waiter of new Set(waiters)) {
    if (waiter === undefined) continue;
    notify(model, keys, waiter, queues[waiters.indexOf(waiter)] ?? '');
  }
}

function notify(model: RedisProcess, keys: NodeKeys, waiter: string, known: string): void {
  const position = positionOf(model, waiter);
  if (!position || position.isNotified) return;
  const { queues } = position;
  if (queues.length > 1 && model.spent.queuesExamined >= QUEUES_EXAMINED_MAX) return;
  model.spent.queuesExamined += queues.length - 1;
  if (queues.length > 1 || queues[0] !== known) {
    if (queues.some((queue) => recordOf(model, keys, queue).owner !== undefined)) return;
    if (queues.some((queue) => queue !== known && headOf(model, queue) !== waiter)) return;
  }
  model.writeThoughFull();
  model.push(waiter, NOTIFIED);
  model.publish(position.channel, position.owner);
}

const LOOKED_AT_MAX = 64;

/**
 * Counts the waiters of one process at the head of the queue. It also counts waiters behind those
 * of other processes, if they came at most `togetherMs` after the first of these.
 */
export function followers(
  model: RedisProcess,
  queue: string,
  [followersMax, processId, togetherMs]: readonly [number, string, number],
): number {
  let count = 0;
  let firstOther: number | null = null;
  for (const waiter of model.queue(queue).slice(0, LOOKED_AT_MAX)) {
    const enqueuedMs = model.score(queue, waiter);
    if (firstOther !== null && (count === followersMax || enqueuedMs > firstOther + togetherMs))
      break;
    if (!waiter.startsWith(processId)) firstOther ??= enqueuedMs;
    else if (count < followersMax) count += 1;
  }
  return count;
}

/** @param position enqueuedMs, channel and grace period, as in the arguments of ACQUIRE */
export function joinQueues(
  model: RedisProcess,
  keys: NodeKeys,
  waiter: string,
  owner: string,
  position: readonly string[],
  queues: readonly string[],
): void {
  const [enqueuedMs = '', channel = '', graceMs = ''] = position;
  const queueMs = QUEUE_GRACES * Number(graceMs);
  for (const queue of queues) {
    model.enqueue(queue, waiter, Number(enqueuedMs), queueMs);
    const record = recordOf(model, keys, queue, true);
    if (record.token !== undefined && !record.isMarked) write(model, keys, queue, record);
  }
  const until = String(Math.floor(model.nowMs) + queueMs - Number(graceMs));
  model.set(waiter, JSON.stringify([owner, channel, until, ...queues]), Number(graceMs));
}

/** @returns false if the waiter must enqueue */
export function renew(model: RedisProcess, waiter: string, graceMs: string): boolean {
  const position = positionOf(model, waiter);
  if (!position || position.untilMs < Math.floor(model.nowMs)) return false;
  const { owner, channel, untilMs, queues } = position;
  model.writeThoughFull();
  model.set(waiter, JSON.stringify([owner, channel, String(untilMs), ...queues]), Number(graceMs));
  return true;
}
