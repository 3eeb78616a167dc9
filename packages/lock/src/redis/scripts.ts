import { createHash } from 'node:crypto';
import { sources } from './scripts.generated.js';

/**
 * The commands of a node, and the files in `scripts` that each of them needs. The file of a command
 * lists its keys, arguments and replies.
 */
const needs = {
  acquire: ['lock-table', 'vote', 'queue'],
  confirm: ['lock-table', 'vote'],
  enqueue: ['lock-table', 'vote', 'queue'],
  backfill: ['lock-table', 'vote'],
  extend: ['lock-table', 'vote'],
  release: ['lock-table', 'queue'],
  inspect: ['incarnation'],
  promise: ['roster'],
  admit: ['roster'],
  retire: ['incarnation'],
  limit: [],
  status: ['lock-table', 'vote'],
  seal: [],
  prepare: ['incarnation'],
  leases: ['lock-table'],
  carry: ['lock-table'],
} as const;

export type CommandName = keyof typeof needs;

/** A Lua script. A node gets the SHA-1, and the source only if it does not know the script yet. */
export interface Script {
  readonly source: string;
  readonly sha1: string;
}

const names = Object.keys(needs) as CommandName[];
/** The fast path of a command, as straight-line code: for a single call, and for several. */
const usual: Partial<Record<CommandName, Readonly<Record<'alone' | 'calls', string>>>> = {
  acquire: { alone: 'acquire-free', calls: 'acquire-at-once' },
  release: { alone: 'release-held', calls: 'release-at-once' },
};
/** The scripts for one call of a command. */
const alone = ofEach((name) => load([name], 'alone'));
/**
 * The scripts for several calls of one command. Lua creates every function anew whenever a script
 * runs, and one command needs few of them.
 */
const alike = ofEach((name) => load([name], 'calls'));
/** The script for calls of any kind. */
const whole: Script = load(names, 'calls');

/** The script that carries out these calls. */
export function scriptFor(
  calls: readonly { readonly command: { readonly name: CommandName } }[],
): Script {
  const name = calls[0]?.command.name;
  if (name === undefined) return whole;
  if (calls.length === 1) return alone[name];
  return calls.every(({ command }) => command.name === name) ? alike[name] : whole;
}

function load(commands: readonly CommandName[], end: 'alone' | 'calls'): Script {
  const parts = new Set(commands.flatMap((command) => needs[command]));
  const straight = commands.flatMap((command) => usual[command]?.[end] ?? []);
  const rest = ['node', ...parts, ...commands];
  // The fast path of a single call comes first, because it needs none of the other files.
  const all = end === 'alone' ? [...straight, ...rest, end] : [...rest, ...straight, end];
  const source = all.map((name) => sources[name]).join('\n');
  return { source, sha1: createHash('sha1').update(source).digest('hex') };
}

function ofEach(make: (name: CommandName) => Script): Readonly<Record<CommandName, Script>> {
  return Object.fromEntries(names.map((name) => [name, make(name)])) as Record<CommandName, Script>;
}
