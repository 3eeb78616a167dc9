import type { NodeKeys } from '../../packages/lock/src/redis/node-keys.ts';
import type { RedisProcess } from './redis-process.ts';

/** A node's record of a resource. */
export interface Entry {
  readonly token: number | undefined;
  /** The holder, until its lease ends. */
  readonly owner: string | undefined;
  /** 0 if the lock was released or never held. */
  readonly endsMs: number;
  /** True if the record says that the resource may have waiters. */
  readonly isMarked: boolean;
}

const TIME_DIGITS = 15;
const TOKEN_DIGITS = 16;
const HELD = /^(\d{15})([ +])(\d{16}) (.*)$/s;

function digits(number: number, width: number): string {
  return String(number).padStart(width, '0');
}

export function tokenText(token: number): string {
  return digits(token, TOKEN_DIGITS);
}

/** @param alsoOver true if an expired lease counts as well */
export function entryOf(
  model: RedisProcess,
  [node, before]: NodeKeys,
  line: string,
  alsoOver = false,
): Entry {
  const text = model.field(node, line) ?? model.field(before, line);
  if (text === undefined) return { token: undefined, owner: undefined, endsMs: 0, isMarked: false };
  const [, ends, mark, token = text, owner] = HELD.exec(text) ?? [];
  const endsMs = Number(ends ?? 0);
  return {
    token: Number(token),
    endsMs,
    isMarked: mark === '+',
    owner: alsoOver || endsMs >= Math.floor(model.nowMs) ? owner : undefined,
  };
}

export function write(
  model: RedisProcess,
  [node]: NodeKeys,
  line: string,
  { token, owner, endsMs }: Omit<Entry, 'isMarked'>,
): void {
  const text = tokenText(token ?? 0);
  const waits = model.line(line).length > 0;
  const ends = digits(Math.floor(endsMs), TIME_DIGITS);
  const held = `${ends}${waits ? '+' : ' '}${text} ${owner ?? ''}`;
  model.setFields(node, { [line]: owner === undefined && !waits ? text : held });
}

/** Frees the lock before its lease ends. */
export function free(model: RedisProcess, keys: NodeKeys, line: string): void {
  const { token, owner } = entryOf(model, keys, line, true);
  if (owner !== undefined) write(model, keys, line, { token, owner: undefined, endsMs: 0 });
}

export function forget(model: RedisProcess, keys: NodeKeys, line: string): void {
  for (const key of keys) model.deleteFields(key, [line]);
}

/** Fields in which a node describes itself. */
const OWN = [
  'history',
  'gen',
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
  'out_since',
];

/** True if this hash is older than `fenceTtlMs` and than the longest lease, `longestMs`. */
export function mayTurn(
  model: RedisProcess,
  [node]: NodeKeys,
  fenceTtlMs: number,
  longestMs: number,
): boolean {
  const nowMs = Math.floor(model.nowMs);
  const opened = model.field(node, 'opened');
  const turnedMs = Number(model.field(node, 'turned') ?? '0');
  if (opened === undefined) return false;
  const ageMs = nowMs - Number(opened);
  if (model.has('ledger-turned-early')) return ageMs > 0;
  return ageMs > Math.max(fenceTtlMs, longestMs) && Math.abs(nowMs - turnedMs) > longestMs;
}

/** Begins a new hash if the present one is old enough, or if there is none. */
export function turnOver(
  model: RedisProcess,
  keys: NodeKeys,
  fenceTtlMs: number,
  longestMs: number,
): void {
  const [node, before] = keys;
  const nowMs = Math.floor(model.nowMs);
  const opened = model.field(node, 'opened');
  const turnedMs = Number(model.field(node, 'turned') ?? '0');
  const turns = mayTurn(model, keys, fenceTtlMs, longestMs);
  if (opened !== undefined && Number(opened) <= nowMs && !turns) return;
  if (turns) {
    model.rename(node, before);
    for (const name of OWN) {
      const value = model.field(before, name);
      if (value !== undefined) model.setFields(node, { [name]: value });
    }
  }
  const turned = turns ? nowMs : turnedMs;
  model.setFields(node, { opened: String(nowMs), turned: String(turned) });
}
