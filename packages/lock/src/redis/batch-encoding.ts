import type { ScriptArguments } from './client.js';
import type { Command } from './command.js';

/** Limits the time for which one script of one process blocks a node for all other clients. */
export const CALLS_PER_SCRIPT_MAX = 100;
/** The most parts that `like` has in a combined reply; see `calls.lua`. */
const LIKE_MAX = 2;

/** The calls of one script. */
type Calls = readonly { readonly command: Command }[];

/**
 * The arguments of EVALSHA after the SHA-1: the number of keys, the keys, and the values.
 * `alone.lua` reads the values of a single call, and `calls.lua` those of several.
 */
export function inScript(
  nodeKeys: readonly string[],
  members: string,
  calls: Calls,
): ScriptArguments {
  const keys = [...nodeKeys];
  for (const { command } of calls) for (const key of command.keys) keys.push(key);
  const [only] = calls;
  const values =
    only !== undefined && calls.length === 1
      ? [only.command.name, ...only.command.values]
      : [inRuns(calls)];
  return [keys.length, ...keys, members, ...values];
}

function inRuns(calls: Calls): string {
  const runs: unknown[][] = [];
  let run: unknown[] = [];
  let before: Command | null = null;
  for (const { command } of calls) {
    if (!before || !command.isLike(before)) {
      run = [command.name, command.keys.length, command.values.slice(1).map(wellFormed)];
      runs.push(run);
    }
    run.push(wellFormed(command.values[0] ?? ''));
    before = command;
  }
  return JSON.stringify(runs);
}

/** Half a surrogate pair is invalid JSON for Redis. It would fail all calls of the script. */
function wellFormed(value: string): string {
  return value.toWellFormed();
}

/** Like `split`, but fast if there is nothing to split, as in most cases. */
export function parted(text: string, separator: string): readonly string[] {
  return text.includes(separator) ? text.split(separator) : [text];
}

/** The replies in a text. Empty if the text is no list. */
export function repliesIn(text: string): readonly unknown[] {
  // The script of a single call may write its reply without JSON, as words, to save work.
  return text.startsWith('[') ? inList(text) : [parted(text, ' ')];
}

/** The replies to a run of calls that `calls.lua` has combined into one; or one reply. */
export function eachOf(reply: unknown): unknown[] {
  if (Array.isArray(reply) || typeof reply !== 'object' || reply === null) return [reply];
  const { like, each, times = 0 }: { like?: unknown; each?: unknown; times?: unknown } = reply;
  const count = Array.isArray(each) ? each.length : times;
  if (!Array.isArray(like) || like.length > LIKE_MAX) return [reply];
  if (typeof count !== 'number' || count > CALLS_PER_SCRIPT_MAX) return [reply];
  const [answer, ...others] = like;
  return Array.isArray(each)
    ? each.map((part) => [answer, part, ...others])
    : new Array(count).fill(like);
}

function inList(text: string): readonly unknown[] {
  try {
    const list: unknown = JSON.parse(text);
    return Array.isArray(list) && list.length <= CALLS_PER_SCRIPT_MAX ? list.flatMap(eachOf) : [];
  } catch {
    return [];
  }
}
