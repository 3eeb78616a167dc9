import {
  acquireScript,
  admitScript,
  confirmScript,
  extendScript,
  inspectScript,
  promiseScript,
  releaseScript,
} from '../../packages/lock/src/redis/scripts.ts';

import { ABSENT, RedisProcess, WITHOUT_TTL } from './redis-process.ts';

/** What a script answers: Redis has turned Lua's numbers into whole ones. */
export type Reply = (string | number)[];

type Body = (model: RedisProcess, keys: readonly string[], values: readonly string[]) => Reply;

const TOKEN_MAX = Number.MAX_SAFE_INTEGER;

interface Voter {
  readonly generation: string;
  readonly roster: string;
  readonly floor: number;
  readonly max: number;
  readonly maxTtlMs: number;
}

function stamp(model: RedisProcess, nodeKey: string, name: string): void {
  if (model.field(nodeKey, 'seen_run_id') === model.runId) return;
  model.setFields(nodeKey, {
    seen_run_id: model.runId,
    incarnation: name,
    seen_at: String(model.nowMs),
  });
}

function voter(model: RedisProcess, nodeKey: string, members: string, name: string): Voter | Reply {
  const field = (key: string): string => model.field(nodeKey, key) ?? '';
  const known = model.field(nodeKey, 'members');
  if (known !== undefined && known !== members && !model.has('members-ignored')) {
    return ['wrong-members'];
  }
  const mayVote =
    model.field(nodeKey, 'run_id') === model.runId ||
    (model.has('no-admission-check') && field('run_id') !== '');
  if (!mayVote) {
    stamp(model, nodeKey, name);
    return ['not-admitted'];
  }
  return {
    generation: field('gen'),
    roster: field('roster'),
    floor: Number(field('floor')),
    max: Number(field('max')),
    maxTtlMs: Number(field('max_ttl')),
  };
}

function numbers(roster: string): number[] {
  return (roster.match(/\d+/g) ?? []).map(Number);
}

function storeToken(
  model: RedisProcess,
  keys: readonly string[],
  max: number,
  token: number,
  fenceTtlMs: number,
): string {
  for (let at = 2; at < keys.length; at += 2) model.set(key(keys, at), String(token), fenceTtlMs);
  if (token > max) model.setFields(key(keys, 0), { max: String(token) });
  return String(token);
}

function key(keys: readonly string[], at: number): string {
  return keys[at] ?? '';
}

function acquire(model: RedisProcess, keys: readonly string[], values: readonly string[]): Reply {
  const [owner = '', ttl = '', members = '', fenceTtl = ''] = values;
  const node = voter(model, key(keys, 0), members, owner);
  if (Array.isArray(node)) return node;
  if (Number(ttl) > node.maxTtlMs) return ['ttl-too-long', node.maxTtlMs];

  let remaining = ABSENT;
  for (let at = 1; at < keys.length; at += 2) {
    const pttl = model.pttl(key(keys, at));
    remaining = Math.max(remaining, pttl === WITHOUT_TTL ? node.maxTtlMs : pttl);
  }
  if (remaining !== ABSENT) return ['held', remaining];

  let base = 0;
  for (let at = 2; at < keys.length; at += 2) {
    const fence = model.get(key(keys, at));
    const floor = model.has('fence-before-floor') ? 0 : node.floor;
    base = Math.max(base, fence === undefined ? node.max : Math.max(Number(fence), floor));
  }
  const token = base + 1;
  if (token > TOKEN_MAX) return ['token-exhausted'];

  for (let at = 1; at < keys.length; at += 2) model.set(key(keys, at), owner, Number(ttl));
  const stored = storeToken(model, keys, node.max, token, Number(fenceTtl));
  return ['granted', stored, node.generation, node.roster];
}

function confirm(model: RedisProcess, keys: readonly string[], values: readonly string[]): Reply {
  const [owner = '', token = '', members = '', fenceTtl = ''] = values;
  const node = voter(model, key(keys, 0), members, owner);
  if (Array.isArray(node)) return node;
  for (let at = 1; at < keys.length && !model.has('confirm-without-lock'); at += 2) {
    if (model.get(key(keys, at)) !== owner) return ['not-held'];
  }
  let highest = Number(token);
  for (let at = 2; at < keys.length && !model.has('confirm-may-lower'); at += 2) {
    highest = Math.max(highest, Number(model.get(key(keys, at)) ?? '0'));
  }
  const stored = storeToken(model, keys, node.max, highest, Number(fenceTtl));
  return ['granted', stored, node.generation, node.roster];
}

function extend(model: RedisProcess, keys: readonly string[], values: readonly string[]): Reply {
  const [owner = '', ttl = '', members = ''] = values;
  const node = voter(model, key(keys, 0), members, owner);
  if (Array.isArray(node)) return node;
  if (Number(ttl) > node.maxTtlMs) return ['ttl-too-long', node.maxTtlMs];
  const locks = keys.slice(1);
  if (locks.some((lock) => model.get(lock) !== owner)) return ['not-held'];
  for (const lock of locks) if (model.pttl(lock) < Number(ttl)) renew(model, lock, owner, ttl);
  return ['extended'];
}

// PEXPIRE gives a key that never expires a time to live, too: its PTTL of -1 is below any.
function renew(model: RedisProcess, lock: string, owner: string, ttl: string): void {
  model.set(lock, owner, Number(ttl));
}

function release(model: RedisProcess, keys: readonly string[], values: readonly string[]): Reply {
  let held = true;
  for (const lock of keys.slice(1)) {
    if (model.get(lock) === values[0]) model.data.strings.delete(lock);
    else held = false;
  }
  return [held ? 'released' : 'not-held'];
}

function inspect(model: RedisProcess, keys: readonly string[], values: readonly string[]): Reply {
  const nodeKey = key(keys, 0);
  stamp(model, nodeKey, values[0] ?? '');
  const field = (name: string): string | undefined => model.field(nodeKey, name);
  const waited = Math.max(0, model.nowMs - Number(field('seen_at')));
  const facts = [field('gen') ?? '0', field('roster') ?? '', field('max') ?? '0'];
  const admitted = field('run_id') === model.runId ? 1 : 0;
  const told = [...facts, field('members') ?? '', String(waited)];
  return ['inspected', model.runId, field('incarnation') ?? '', admitted, ...told];
}

function promise(model: RedisProcess, keys: readonly string[], values: readonly string[]): Reply {
  const [place = '', incarnation = '', generation = '', members = '', name = ''] = values;
  const nodeKey = key(keys, 0);
  const node = voter(model, nodeKey, members, name);
  if (Array.isArray(node)) return node;
  const roster = numbers(node.roster);
  const at = Number(place) - 1;
  const known = roster[at] ?? 0;
  const field = `promised_to:${place}`;
  const life = model.field(nodeKey, field) ?? '';
  if (life !== incarnation || known !== Number(generation)) {
    const refuses = known >= Number(generation) && !model.has('promise-not-strict');
    if (refuses) return ['refused', known, life];
    roster[at] = Math.max(known, Number(generation));
    model.setFields(nodeKey, { roster: roster.join(','), [field]: incarnation });
  }
  return ['promised', String(node.max), node.generation, roster.join(',')];
}

function admit(model: RedisProcess, keys: readonly string[], values: readonly string[]): Reply {
  const [runId = '', incarnation = '', gen = '', roster = '', floor = ''] = values;
  const [, , , , , members = '', maxTtl = '', quarantine = ''] = values;
  const nodeKey = key(keys, 0);
  const field = (name: string): string | undefined => model.field(nodeKey, name);
  const seen = field('seen_run_id') === runId && field('incarnation') === incarnation;
  if (model.runId !== runId || !seen) return ['changed'];
  if (field('members') !== undefined && field('members') !== members) return ['wrong-members'];
  if (field('run_id') === runId) {
    if (Number(field('gen')) >= Number(gen)) return ['already-admitted'];
  } else if (model.nowMs - Number(field('seen_at')) < Number(quarantine)) {
    return ['too-early'];
  }

  const restored = model.has('floor-not-restored') ? 0 : Number(floor);
  const highest = String(Math.max(restored, Number(field('max') ?? '0')));
  const known = numbers(roster);
  for (const [at, generation] of numbers(field('roster') ?? '').entries()) {
    known[at] = Math.max(known[at] ?? 0, generation);
  }
  model.setFields(nodeKey, { run_id: runId, gen, roster: known.join(','), floor: highest });
  model.setFields(nodeKey, { max: highest, members, max_ttl: maxTtl });
  return ['admitted'];
}

const scripts = [
  [acquireScript, 'acquire', acquire],
  [confirmScript, 'confirm', confirm],
  [extendScript, 'extend', extend],
  [releaseScript, 'release', release],
  [inspectScript, 'inspect', inspect],
  [promiseScript, 'promise', promise],
  [admitScript, 'admit', admit],
] as const;

export type ScriptName = (typeof scripts)[number][1];

const bodies: ReadonlyMap<string, Body> = new Map(
  scripts.map(([{ sha1 }, , body]) => [sha1, body]),
);
const sha1Of: ReadonlyMap<string, string> = new Map(
  scripts.map(([{ source, sha1 }]) => [source, sha1]),
);
/** The source of each script. */
export const sources: ReadonlyMap<ScriptName, string> = new Map(
  scripts.map(([{ source }, name]) => [name, source]),
);

const names: ReadonlyMap<string, ScriptName> = new Map(
  scripts.flatMap(([{ sha1, source }, name]) => [
    [sha1, name],
    [source, name],
  ]),
);

/** The name of a script, by its SHA-1 or its source. */
export function scriptName(script: string): ScriptName {
  const name = names.get(script);
  if (name === undefined) throw new Error('not a lock script');
  return name;
}

/** A Redis process that runs the lock scripts: the Lua in TypeScript, statement by statement. */
export class NodeModel extends RedisProcess {
  alive = true;
  /** SHA-1 of the scripts that the process has seen. */
  readonly #seen = new Set<string>();

  /** @throws an `Error` that begins with NOSCRIPT, as Redis answers for a script that it has not seen */
  evalsha(sha1: string, keyCount: number, keysAndValues: readonly (string | number)[]): Reply {
    if (!this.#seen.has(sha1)) throw new Error('NOSCRIPT No matching script. Please use EVAL.');
    return this.#run(sha1, keyCount, keysAndValues);
  }

  eval(source: string, keyCount: number, keysAndValues: readonly (string | number)[]): Reply {
    const sha1 = sha1Of.get(source);
    if (sha1 === undefined) throw new Error('not a lock script');
    this.#seen.add(sha1);
    return this.#run(sha1, keyCount, keysAndValues);
  }

  #run(sha1: string, keyCount: number, keysAndValues: readonly (string | number)[]): Reply {
    const all = keysAndValues.map(String);
    const body = bodies.get(sha1);
    if (!body) throw new Error('not a lock script');
    return body(this, all.slice(0, keyCount), all.slice(keyCount));
  }
}
