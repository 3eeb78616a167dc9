import type { RedisProcess } from './redis-process.ts';

interface Place {
  readonly owner: string;
  readonly channel: string;
  readonly turn: string;
  /** Lock and line of each resource. */
  readonly keys: readonly string[];
}

/** Of the first in line that has not vanished. */
const VANISHED_MAX = 100;

export function turnOf(owner: string): string {
  return `turn:${owner}`;
}

export function firstIn(
  model: RedisProcess,
  line: string,
): { waiter: string; place: Place } | null {
  for (const waiter of model.line(line).slice(0, VANISHED_MAX)) {
    const list = model.get(waiter);
    if (list !== undefined) {
      const [owner, channel, turn, ...keys] = JSON.parse(list) as [string, string, string];
      return { waiter, place: { owner, channel, turn, keys } };
    }
    model.leave(line, waiter);
  }
  return null;
}

export function handOver(model: RedisProcess, line: string): void {
  const first = firstIn(model, line);
  if (!first) return;
  const { waiter, place } = first;
  const locks = place.keys.filter((_, at) => at % 2 === 0);
  const lines = place.keys.filter((_, at) => at % 2 === 1);
  const mayGo = (lock: string, at: number): boolean =>
    (model.get(lock) === undefined || model.has('held-handed-over')) &&
    firstIn(model, lines[at] ?? '')?.waiter === waiter;
  if (!locks.every(mayGo)) return;
  for (const lock of locks) model.set(lock, turnOf(place.owner), Number(place.turn));
  for (const one of lines) model.leave(one, waiter);
  model.data.strings.delete(waiter);
  model.publish(place.channel, place.owner);
}

/** @param ticket score, channel and turn, as in the arguments of ACQUIRE */
export function standInLine(
  model: RedisProcess,
  waiter: string,
  owner: string,
  ticket: readonly string[],
  keys: { readonly locks: readonly string[]; readonly lines: readonly string[] },
): void {
  const [score = '', channel = '', turn = ''] = ticket;
  for (const line of keys.lines) model.stand(line, waiter, Number(score), Number(turn));
  const places = keys.locks.flatMap((lock, at) => [lock, keys.lines[at] ?? '']);
  model.set(waiter, JSON.stringify([owner, channel, turn, ...places]), Number(turn));
}
