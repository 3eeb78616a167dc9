import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

/** What a node can be asked to do, and what it needs for that; each has a file in `scripts`, and a command's says what it takes and answers. */
const needs = {
  acquire: ['vote', 'line'],
  confirm: ['vote'],
  stand: ['vote', 'line'],
  keep: ['vote', 'line'],
  extend: ['vote'],
  release: ['line'],
  inspect: ['life'],
  promise: ['roster'],
  admit: ['roster'],
  retire: ['life'],
  status: [],
} as const;

export type CommandName = keyof typeof needs;

/** A Lua script as sent to a node: by its SHA-1, and whole where the node has not seen it yet. */
export interface Script {
  readonly source: string;
  readonly sha1: string;
}

// The sources lie in `src` also for the compiled code, which stands two folders below the package as this file does.
const folder = new URL('../../src/redis/scripts/', import.meta.url);

const names = Object.keys(needs) as CommandName[];
/** What some commands begin with where they are alone: their usual case, in a straight line. */
const shortcuts: Partial<Record<CommandName, string>> = {
  acquire: 'acquire-free',
  release: 'release-held',
};
const files = new Set(['node', ...Object.values(needs).flat(), ...names, 'calls']);
const texts = new Map(
  [...files, 'alone', ...Object.values(shortcuts)].map((name) => [
    name,
    readFileSync(new URL(`${name}.lua`, folder), 'utf8'),
  ]),
);
/** For one call of a command. */
const alone = ofEach((name) => load([name], 'alone', shortcuts[name]));
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

function load(
  commands: readonly CommandName[],
  end: 'alone' | 'calls',
  beginning?: string,
): Script {
  const parts = new Set(commands.flatMap((command) => needs[command]));
  const all = [...(beginning ? [beginning] : []), 'node', ...parts, ...commands, end];
  const source = all.map((name) => texts.get(name)).join('\n');
  return { source, sha1: createHash('sha1').update(source).digest('hex') };
}

function ofEach(make: (name: CommandName) => Script): Readonly<Record<CommandName, Script>> {
  return Object.fromEntries(names.map((name) => [name, make(name)])) as Record<CommandName, Script>;
}
