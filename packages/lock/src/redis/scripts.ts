import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

/** What a node can be asked to do, and what it needs for that; each has a file in `scripts`, and a command's says what it takes and answers. */
const needs = {
  acquire: ['vote', 'line'],
  confirm: ['vote'],
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
const files = new Set(['node', ...Object.values(needs).flat(), ...names, 'calls']);
const texts = new Map(
  [...files].map((name) => [name, readFileSync(new URL(`${name}.lua`, folder), 'utf8')]),
);
/** One for the calls of a single command: Lua makes every function anew whenever a script runs, and most are of no use then. */
const alone = new Map(names.map((name) => [name, load([name])]));
/** And one for calls of any kind. */
const whole: Script = load(names);

/** The script that carries out calls of these commands. */
export function scriptFor(commands: Iterable<CommandName>): Script {
  const [command, ...others] = new Set(commands);
  return (command && others.length === 0 && alone.get(command)) || whole;
}

function load(commands: readonly CommandName[]): Script {
  const parts = new Set(commands.flatMap((command) => needs[command]));
  const source = ['node', ...parts, ...commands, 'calls'].map((name) => texts.get(name)).join('\n');
  return { source, sha1: createHash('sha1').update(source).digest('hex') };
}
