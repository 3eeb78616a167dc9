import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

const commands = [
  'acquire',
  'confirm',
  'extend',
  'release',
  'inspect',
  'promise',
  'admit',
  'retire',
  'status',
] as const;

/** What a node can be asked to do: each has its own file in `scripts`, which says what it takes and answers. */
export type CommandName = (typeof commands)[number];

// The sources lie in `src` also for the compiled code, which stands two folders below the package as this file does.
const folder = new URL('../../src/redis/scripts/', import.meta.url);

/** The Lua script that carries out calls, as sent to a node: by its SHA-1, and whole where the node has not seen it yet. */
export const script: { readonly source: string; readonly sha1: string } = load();

function load(): { readonly source: string; readonly sha1: string } {
  const files = ['node', 'line', ...commands, 'calls'];
  const source = files
    .map((name) => readFileSync(new URL(`${name}.lua`, folder), 'utf8'))
    .join('\n');
  return { source, sha1: createHash('sha1').update(source).digest('hex') };
}
