import type { NodeKeys } from '../../packages/lock/src/redis/keys.ts';
import { entryOf, write } from './node-ledger.ts';
import type { RedisProcess } from './redis-process.ts';

interface Place {
  readonly owner: string;
  readonly channel: string;
  readonly lines: readonly string[];
  readonly isCalled: boolean;
}

/** Of the first in line that has not vanished. */
const VANISHED_MAX = 100;
const CALLED = 'called';

function placeOf(model: RedisProcess, waiter: string): Place | null {
  const list = model.get(waiter);
  if (list === undefined) return null;
  const [owner = '', channel = '', , ...lines]: string[] = JSON.parse(list);
  const isCalled = lines.at(-1) === CALLED;
  return { owner, channel, lines: isCalled ? lines.slice(0, -1) : lines, isCalled };
}

export function firstIn(
  model: RedisProcess,
  line: string,
): { waiter: string; place: Place } | null {
  for (const waiter of model.line(line).slice(0, VANISHED_MAX)) {
    const place = placeOf(model, waiter);
    if (place) return { waiter, place };
    model.leave(line, waiter);
  }
  return null;
}

/** @param told the owner who hears of it otherwise */
export function callFirst(model: RedisProcess, keys: NodeKeys, line: string, told?: string): void {
  const first = firstIn(model, line);
  if (!first || first.place.isCalled) return;
  const { waiter, place } = first;
  const mayGo = (other: string): boolean =>
    entryOf(model, keys, other).owner === undefined && firstIn(model, other)?.waiter === waiter;
  if (!place.lines.every(mayGo)) return;
  model.writeThoughFull();
  model.push(waiter, CALLED);
  if (place.owner !== told) model.publish(place.channel, place.owner);
}

const LOOKED_AT_MAX = 64;

/** How many at the head of the line are of this family, and did not come too long after others; and whether others wait: 1 or 0. */
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

/** @param ticket score, channel and turn, as in the arguments of ACQUIRE */
export function standInLine(
  model: RedisProcess,
  keys: NodeKeys,
  waiter: string,
  owner: string,
  ticket: readonly string[],
  lines: readonly string[],
): void {
  const [score = '', channel = '', turn = ''] = ticket;
  for (const line of lines) {
    model.stand(line, waiter, Number(score), Number(turn));
    const entry = entryOf(model, keys, line, true);
    if (entry.token !== undefined) write(model, keys, line, entry);
  }
  model.set(waiter, JSON.stringify([owner, channel, turn, ...lines]), Number(turn));
}
