import type { NodeKeys } from '../../packages/lock/src/redis/node.ts';
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
const HELD = /^(\d{15}) (\d{16}) (.*)$/s;

function digits(number: number, width: number): string {
  return String(number).padStart(width, '0');
}

export function entryOf(model: RedisProcess, [, ledger, earlier]: NodeKeys, line: string): Entry {
  const text = model.field(ledger, line) ?? model.field(earlier, line);
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

/** Begins a new ledger where this one is older than `ageMs`. */
export function turnOver(
  model: RedisProcess,
  [node, ledger, earlier]: NodeKeys,
  ageMs: number,
): void {
  const nowMs = Math.floor(model.nowMs);
  const opened = model.field(node, 'opened');
  const age = opened === undefined ? 0 : nowMs - Number(opened);
  const isFull = age > (model.has('ledger-turned-early') ? 0 : ageMs);
  if (opened !== undefined && age >= 0 && !isFull) return;
  if (isFull) model.rename(ledger, earlier);
  model.setFields(node, { opened: String(nowMs) });
}
