import { createHash } from 'node:crypto';
import { sources } from './scripts.generated.js';

/** What a node can be asked to do, and what it needs for that; each has a file in `scripts`, and a command's says what it takes and answers. */
const needs = {
  acquire: ['ledger', 'vote', 'line'],
  confirm: ['ledger', 'vote'],
  stand: ['ledger', 'vote', 'line'],
  keep: ['ledger', 'vote'],
  extend: ['ledger', 'vote'],
  release: ['ledger', 'line'],
  inspect: ['life'],
  promise: ['roster'],
  admit: ['roster'],
  retire: ['life'],
  status: ['ledger', 'vote'],
} as const;

export type CommandName = keyof typeof needs;

/** A Lua script as sent to a node: by its SHA-1, and whole where the node has not seen it yet. */
export interface Script {
  readonly source: string;
  readonly sha1: string;
}

const names = Object.keys(needs) as CommandName[];
/** The usual case of some commands, in a straight line: where they are alone, and of several at once. */
const usual: Partial<Record<CommandName, Readonly<Record<'alone' | 'calls', string>>>> = {
  acquire: { alone: 'acquire-free', calls: 'acquire-at-once' },
  release: { alone: 'release-held', calls: 'release-at-once' },
};
/** For one call of a command. */
const alone = ofEach((name) => load([name], 'alone'));
/** For several of one command: Lua makes every function anew whenever a script runs, and most are of no use then. */
const alike = ofEach((name) => load([name], 'calls'));
/** For calls of any kind. */
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
  // What is done before all else needs none of it.
  const all = end === 'alone' ? [...straight, ...rest, end] : [...rest, ...straight, end];
  const source = all.map((name) => sources[name]).join('\n');
  return { source, sha1: createHash('sha1').update(source).digest('hex') };
}

function ofEach(make: (name: CommandName) => Script): Readonly<Record<CommandName, Script>> {
  return Object.fromEntries(names.map((name) => [name, make(name)])) as Record<CommandName, Script>;
}
