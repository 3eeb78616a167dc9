import type { NodeKeys } from '../../packages/lock/src/redis/node-keys.ts';
import { entryOf, write } from './node-ledger.ts';
import type { RedisProcess } from './redis-process.ts';

interface Place {
  readonly owner: string;
  readonly channel: string;
  readonly untilMs: number;
  readonly lines: readonly string[];
  readonly isCalled: boolean;
}

/** Budgets of one script, see line.lua. */
const VANISHED_MAX = 500;
const CALL_LINES_MAX = 1_000;
const LINE_TURNS = 5;
const CALLED = 'called';

function placeOf(model: RedisProcess, waiter: string): Place | null {
  const list = model.get(waiter);
  if (list === undefined) return null;
  const [owner = '', channel = '', until, ...lines]: string[] = JSON.parse(list);
  const isCalled = lines.at(-1) === CALLED;
  const untilMs = Number(until);
  return { owner, channel, untilMs, lines: isCalled ? lines.slice(0, -1) : lines, isCalled };
}

export function firstIn(model: RedisProcess, line: string): string | undefined {
  for (const waiter of model.line(line)) {
    if (placeOf(model, waiter) || model.spent.vanished === VANISHED_MAX) return waiter;
    model.leave(line, waiter);
    model.spent.vanished += 1;
  }
  return undefined;
}

/** Calls waiters. The owner in the last argument gets no message: it is notified otherwise. */
export function callAll(
  model: RedisProcess,
  keys: NodeKeys,
  waiters: readonly (string | undefined)[],
  told?: string,
): void {
  for (const waiter of new Set(waiters)) {
    if (waiter !== undefined) call(model, keys, waiter, told);
  }
}

function call(model: RedisProcess, keys: NodeKeys, waiter: string, told?: string): void {
  const place = placeOf(model, waiter);
  if (!place || place.isCalled) return;
  const { lines } = place;
  if (lines.length > 1 && model.spent.callLines >= CALL_LINES_MAX) return;
  model.spent.callLines += lines.length - 1;
  if (lines.some((line) => entryOf(model, keys, line).owner !== undefined)) return;
  if (lines.some((line) => firstIn(model, line) !== waiter)) return;
  model.writeThoughFull();
  model.push(waiter, CALLED);
  if (place.owner !== told) model.publish(place.channel, place.owner);
}

const LOOKED_AT_MAX = 64;

/**
 * Counts the waiters of one process at the head of the queue. It stops at waiters that came too
 * long after the first other one. The second number is 1 if others wait, and 0 otherwise.
 */
export function followers(
  model: RedisProcess,
  line: string,
  [most, family, togetherMs]: readonly [number, string, number],
): [number, number] {
  let count = 0;
  let firstOther: number | null = null;
  for (const waiter of model.line(line).slice(0, LOOKED_AT_MAX)) {
    const score = model.score(line, waiter);
    if (firstOther !== null && (count === most || score > firstOther + togetherMs)) break;
    if (!waiter.startsWith(family)) firstOther ??= score;
    else if (count < most) count += 1;
  }
  return [count, firstOther === null ? 0 : 1];
}

/** @param ticket score, channel and grace period, as in the arguments of ACQUIRE */
export function standInLine(
  model: RedisProcess,
  keys: NodeKeys,
  waiter: string,
  owner: string,
  ticket: readonly string[],
  lines: readonly string[],
): void {
  const [score = '', channel = '', turn = ''] = ticket;
  const lineMs = LINE_TURNS * Number(turn);
  for (const line of lines) {
    model.stand(line, waiter, Number(score), lineMs);
    const entry = entryOf(model, keys, line, true);
    if (entry.token !== undefined && !entry.isMarked) write(model, keys, line, entry);
  }
  const until = String(Math.floor(model.nowMs) + lineMs - Number(turn));
  model.set(waiter, JSON.stringify([owner, channel, until, ...lines]), Number(turn));
}

/** @returns false if the waiter must enqueue */
export function renew(model: RedisProcess, waiter: string, turn: string): boolean {
  const place = placeOf(model, waiter);
  if (!place || place.untilMs < Math.floor(model.nowMs)) return false;
  const { owner, channel, untilMs, lines } = place;
  model.writeThoughFull();
  model.set(waiter, JSON.stringify([owner, channel, String(untilMs), ...lines]), Number(turn));
  return true;
}
