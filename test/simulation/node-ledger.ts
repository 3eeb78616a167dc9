import type { NodeKeys } from '../../packages/lock/src/redis/keys.ts';
import type { RedisProcess } from './redis-process.ts';

/** What a node knows of a resource. */
export interface Entry {
  readonly token: number | undefined;
  /** Who has the lock, while that is not over. */
  readonly owner: string | undefined;
  /** 0 where nobody had it last. */
  readonly endsMs: number;
}

const TIME_DIGITS = 15;
const TOKEN_DIGITS = 16;
/** Of a ledger that is whole, as it was begun. */
const MARK = 'opened';
const HELD = /^(\d{15}) (\d{16}) (.*)$/s;

function digits(number: number, width: number): string {
  return String(number).padStart(width, '0');
}

export function entryOf(model: RedisProcess, [, ledger, earlier]: NodeKeys, line: string): Entry {
  const isWhole = model.field(ledger, MARK) !== undefined || model.has('ledger-without-mark');
  const text = model.field(ledger, line) ?? (isWhole ? model.field(earlier, line) : undefined);
  if (text === undefined) return { token: undefined, owner: undefined, endsMs: 0 };
  const [, ends, token = text, owner] = HELD.exec(text) ?? [];
  const endsMs = Number(ends ?? 0);
  return {
    token: Number(token),
    endsMs,
    owner: endsMs < Math.floor(model.nowMs) ? undefined : owner,
  };
}

export function write(
  model: RedisProcess,
  [, ledger]: NodeKeys,
  line: string,
  { token, owner, endsMs }: Entry,
): void {
  const text = digits(token ?? 0, TOKEN_DIGITS);
  const held = `${digits(Math.floor(endsMs), TIME_DIGITS)} ${text} ${owner}`;
  model.setFields(ledger, { [line]: owner === undefined ? text : held });
}

/** The lock is free before its lease has ended. */
export function free(model: RedisProcess, keys: NodeKeys, line: string): void {
  const { token, endsMs } = entryOf(model, keys, line);
  if (endsMs > 0) write(model, keys, line, { token, owner: undefined, endsMs: 0 });
}

export function forget(model: RedisProcess, [, ledger, earlier]: NodeKeys, line: string): void {
  model.deleteFields(ledger, [line]);
  model.deleteFields(earlier, [line]);
}

/** Begins a new ledger where this one is older than any lease, which are `longestMs` at most, and than fences become. */
export function turnOver(
  model: RedisProcess,
  [node, ledger, earlier]: NodeKeys,
  fenceTtlMs: number,
  longestMs: number,
): void {
  const nowMs = Math.floor(model.nowMs);
  const opened = model.field(node, 'opened');
  const turnedMs = Number(model.field(node, 'turned') ?? '0');
  const age = opened === undefined ? 0 : nowMs - Number(opened);
  const isEarly = model.has('ledger-turned-early');
  const isFull = age > (isEarly ? 0 : Math.max(fenceTtlMs, longestMs));
  if (opened !== undefined && age >= 0 && !isFull) return;
  if (isFull && !isEarly && Math.abs(nowMs - turnedMs) <= longestMs) return;
  if (isFull) model.rename(ledger, earlier);
  const turned = isFull ? nowMs : turnedMs;
  model.setFields(node, { opened: String(nowMs), turned: String(turned) });
  if (isFull || opened === undefined) model.setFields(ledger, { [MARK]: '' });
}
