import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

/** A Lua script as sent to a node: by its SHA-1, and whole where the node has not seen it yet. */
export interface Script {
  readonly source: string;
  readonly sha1: string;
}

// The sources lie in `src` also for the compiled code, which stands two folders below the package as this file does.
const folder = new URL('../../src/redis/scripts/', import.meta.url);
const prelude = readFileSync(new URL('node.lua', folder), 'utf8');

function load(name: string): Script {
  const source = `${prelude}\n${readFileSync(new URL(`${name}.lua`, folder), 'utf8')}`;
  return { source, sha1: createHash('sha1').update(source).digest('hex') };
}

export const acquireScript: Script = load('acquire');
export const confirmScript: Script = load('confirm');
export const extendScript: Script = load('extend');
export const releaseScript: Script = load('release');
export const inspectScript: Script = load('inspect');
export const admitScript: Script = load('admit');
export const promiseScript: Script = load('promise');
export const retireScript: Script = load('retire');
export const statusScript: Script = load('status');
