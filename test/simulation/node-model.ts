import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { type CommandName, type Script, scriptFor } from '../../packages/lock/src/redis/scripts.ts';
import { callFirst, firstIn, followers, standInLine } from './node-line.ts';
import { RedisProcess, WITHOUT_TTL } from './redis-process.ts';

/** What a command answers; where that is a vote, the voter's generation, incarnation and roster stand at its end. */
export type Reply = (string | number)[];

type Body = (
  model: RedisProcess,
  keys: readonly string[],
  values: readonly string[],
  members: string,
) => Reply;

const TOKEN_MAX = Number.MAX_SAFE_INTEGER;

interface Voter {
  readonly generation: string;
  readonly incarnation: string;
  readonly roster: string;
  readonly floor: number;
  readonly max: number;
  readonly maxTtlMs: number;
  readonly longestMs: number;
}

interface Life {
  readonly generation: number;
  readonly incarnation: string;
}

function beginLife(model: RedisProcess, nodeKey: string, name: string): void {
  const seconds = Math.floor(model.nowMs / 1_000);
  const microseconds = Math.floor(model.nowMs * 1_000) - seconds * 1_000_000;
  model.setFields(nodeKey, {
    seen_history: model.history,
    incarnation: `${name.slice(-8)}.${seconds}.${microseconds}`,
    seen_at: String(Math.floor(model.nowMs)),
  });
}

function voter(model: RedisProcess, nodeKey: string, members: string): Voter | Reply {
  const field = (key: string): string => model.field(nodeKey, key) ?? '';
  const known = model.field(nodeKey, 'members');
  if (known !== undefined && known !== members && !model.has('members-ignored')) {
    return ['wrong-members'];
  }
  const mayVote =
    model.field(nodeKey, 'history') === model.history ||
    (model.has('no-admission-check') && field('history') !== '');
  if (!mayVote) return ['not-admitted'];
  return {
    generation: field('gen'),
    incarnation: field('incarnation'),
    roster: field('roster'),
    floor: Number(field('floor')),
    max: Number(field('max')),
    maxTtlMs: Number(field('max_ttl')),
    longestMs: Number(field('longest')),
  };
}

function lives(roster: string): Life[] {
  const entries = [...roster.matchAll(/(\d+):([^,]*)/g)];
  return entries.map(([, generation, incarnation = '']) => ({
    generation: Number(generation),
    incarnation,
  }));
}

function asRoster(list: readonly Life[]): string {
  return list.map(({ generation, incarnation }) => `${generation}:${incarnation}`).join(',');
}

/** Each step-th of a command's keys, from the one at this place on. */
function every(step: number, keys: readonly string[], from: number): readonly string[] {
  return keys.filter((_, at) => at >= from && (at - from) % step === 0);
}

function highestGiven(model: RedisProcess, fences: readonly string[], node: Voter): number {
  let highest = 0;
  for (const name of fences) {
    const fence = model.get(name);
    const floor = model.has('fence-before-floor') ? 0 : node.floor;
    highest = Math.max(highest, fence === undefined ? node.max : Math.max(Number(fence), floor));
  }
  return highest;
}

function grant(
  model: RedisProcess,
  keys: { readonly node: string; readonly fences: readonly string[] },
  node: Voter,
  token: number,
  fenceTtl: string,
): Reply {
  for (const fence of keys.fences) model.set(fence, String(token), Number(fenceTtl));
  if (token > node.max) model.setFields(keys.node, { max: String(token) });
  return ['granted', String(token), node.generation, node.incarnation, node.roster];
}

function take(model: RedisProcess, lock: string, owner: string, ttl: string): void {
  if (model.get(lock) !== owner || model.pttl(lock) < Number(ttl)) {
    model.set(lock, owner, Number(ttl));
  }
}

function noteTtl(model: RedisProcess, nodeKey: string, node: Voter, ttl: string): void {
  if (Number(ttl) > node.longestMs) model.setFields(nodeKey, { longest: ttl });
}

function key(keys: readonly string[], at: number): string {
  return keys[at] ?? '';
}

const acquire: Body = (model, keys, values, members) => {
  const [owner = '', ttl = '', fenceTtl = '', ...told] = values;
  const [ticket, [most, family = '', together]] = [told.slice(0, 3), told.slice(3)];
  const waiter = ticket.length > 0 ? key(keys, keys.length - 1) : '';
  const own = ticket.length > 0 ? keys.slice(0, -1) : keys;
  const [locks, fences, lines] = [every(3, own, 1), every(3, own, 2), every(3, own, 3)];
  const node = voter(model, key(keys, 0), members);
  if (Array.isArray(node)) return node;
  if (Number(ttl) > node.maxTtlMs) return ['ttl-too-long', node.maxTtlMs];

  const obstacles: string[] = [];
  for (const [at, lock] of locks.entries()) {
    const holder = model.get(lock);
    const first = holder === undefined ? firstIn(model, lines[at] ?? '') : null;
    if (first && first.waiter !== waiter) {
      callFirst(model, lines[at] ?? '');
      obstacles.push(first.waiter);
    } else if (holder !== undefined && holder !== owner) {
      const isFirst = waiter !== '' && firstIn(model, lines[at] ?? '')?.waiter === waiter;
      if (!isFirst || !model.has('first-takes-held')) obstacles.push(lock);
    }
  }
  if (obstacles.length > 0) {
    if (ticket.length > 0) standInLine(model, waiter, owner, ticket, { locks, lines });
    return held(model, obstacles, node);
  }

  const more = model.has('heirs-without-tokens') ? 0 : Number(most ?? 0);
  const token = highestGiven(model, fences, node) + 1 + more;
  if (token > TOKEN_MAX) return ['token-exhausted'];

  for (const [at, lock] of locks.entries()) {
    take(model, lock, owner, ttl);
    if (ticket.length > 0) model.leave(lines[at] ?? '', waiter);
  }
  if (ticket.length > 0) model.data.strings.delete(waiter);
  noteTtl(model, key(keys, 0), node, ttl);
  const reply = grant(model, { node: key(keys, 0), fences }, node, token, fenceTtl);
  if (most === undefined) return reply;
  const heirs = [Number(most), family, Number(together)] as const;
  return [...reply, ...followers(model, lines.at(-1) ?? '', heirs)];
};

const confirm: Body = (model, keys, values, members) => {
  const [owner = '', token = '', fenceTtl = ''] = values;
  const node = voter(model, key(keys, 0), members);
  if (Array.isArray(node)) return node;
  const [locks, fences] = [every(2, keys, 1), every(2, keys, 2)];
  const holds = locks.every((lock) => model.get(lock) === owner);
  if (!holds && !model.has('confirm-without-lock')) return ['not-held'];
  const known = model.has('confirm-may-lower') ? 0 : highestGiven(model, fences, node);
  const raised = Math.max(Number(token), model.has('confirm-may-repeat') ? known : known + 1);
  if (raised > TOKEN_MAX) return ['token-exhausted'];
  return grant(model, { node: key(keys, 0), fences }, node, raised, fenceTtl);
};

const stand: Body = (model, keys, values, members) => {
  const [owner = '', ...ticket] = values;
  const node = voter(model, key(keys, 0), members);
  if (Array.isArray(node)) return node;
  const waiter = key(keys, keys.length - 1);
  const own = keys.slice(0, -1);
  const [locks, lines] = [every(3, own, 1), every(3, own, 3)];
  if (locks.every((lock) => model.get(lock) === owner)) return ['turn'];
  standInLine(model, waiter, owner, ticket, { locks, lines });
  const obstacles = locks.flatMap((lock, at) => {
    const holder = model.get(lock);
    if (holder !== undefined) return holder === owner ? [] : [lock];
    const first = firstIn(model, lines[at] ?? '');
    return first && first.waiter !== waiter ? [first.waiter] : [];
  });
  if (obstacles.length === 0) return ['turn'];
  for (const line of lines) callFirst(model, line);
  return held(model, obstacles, node);
};

/** @param obstacles keys, of which the last to expire tells how long it takes */
function held(model: RedisProcess, obstacles: readonly string[], node: Voter): Reply {
  const left = obstacles.map((name) => {
    const pttl = model.pttl(name);
    return pttl === WITHOUT_TTL ? node.maxTtlMs : pttl;
  });
  return ['held', Math.max(0, ...left), String(Math.floor(model.nowMs))];
}

const keep: Body = (model, keys, values, members) => {
  const [owner = '', ttl = '', token = '', fenceTtl = ''] = values;
  const node = voter(model, key(keys, 0), members);
  if (Array.isArray(node)) return node;
  if (Number(ttl) > node.maxTtlMs) return ['ttl-too-long', node.maxTtlMs];
  const [locks, fences] = [every(2, keys, 1), every(2, keys, 2)];
  const isInTheWay = (lock: string, at: number): boolean => {
    const holder = model.get(lock);
    const isOthers = holder !== undefined && holder !== owner;
    return isOthers || Number(model.get(fences[at] ?? '') ?? 0) > Number(token);
  };
  if (locks.some(isInTheWay)) return ['not-held'];
  const highest = Math.max(Number(token), highestGiven(model, fences, node));
  for (const lock of locks) take(model, lock, owner, ttl);
  noteTtl(model, key(keys, 0), node, ttl);
  return grant(model, { node: key(keys, 0), fences }, node, highest, fenceTtl);
};

const extend: Body = (model, keys, values, members) => {
  const [owner = '', ttl = ''] = values;
  const node = voter(model, key(keys, 0), members);
  if (Array.isArray(node)) return node;
  if (Number(ttl) > node.maxTtlMs) return ['ttl-too-long', node.maxTtlMs];
  const locks = keys.slice(1);
  if (locks.some((lock) => model.get(lock) !== owner)) return ['not-held'];
  for (const lock of locks) if (model.pttl(lock) < Number(ttl)) renew(model, lock, owner, ttl);
  noteTtl(model, key(keys, 0), node, ttl);
  return ['extended', node.generation, node.incarnation, node.roster];
};

// PEXPIRE gives a key that never expires a time to live, too: its PTTL of -1 is below any.
function renew(model: RedisProcess, lock: string, owner: string, ttl: string): void {
  model.set(lock, owner, Number(ttl));
}

const release: Body = (model, keys, values) => {
  const [owner = '', haveWaited = '0', told] = values;
  const own = keys.slice(0, keys.length - Number(haveWaited));
  const lines = every(2, own, 2);
  for (const waiter of keys.slice(own.length)) {
    model.data.strings.delete(waiter);
    for (const line of lines) model.leave(line, waiter);
  }
  let held = true;
  for (const lock of every(2, own, 1)) {
    const holder = model.get(lock);
    if (holder === owner) model.data.strings.delete(lock);
    held &&= holder === owner;
  }
  for (const line of lines) callFirst(model, line, told);
  return [held ? 'released' : 'not-held'];
};

const inspect: Body = (model, keys, values) => {
  const nodeKey = key(keys, 0);
  const field = (name: string): string | undefined => model.field(nodeKey, name);
  if (field('seen_history') !== model.history) beginLife(model, nodeKey, values[0] ?? '');
  else if (field('history') !== model.history && Number(field('seen_at')) > model.nowMs) {
    model.setFields(nodeKey, { seen_at: String(model.nowMs) });
  }
  const waited = Math.max(0, model.nowMs - Number(field('seen_at')));
  const life = [field('gen') ?? '0', field('roster') ?? ''];
  const facts = [field('max') ?? '0', field('longest') ?? '0', field('members') ?? ''];
  const admitted = field('history') === model.history ? 1 : 0;
  const told = [...life, ...facts, String(waited)];
  return ['inspected', model.history, field('incarnation') ?? '', admitted, ...told];
};

const promise: Body = (model, keys, values, members) => {
  const [incarnation = '', count = '', ...claims] = values;
  const nodeKey = key(keys, 0);
  const field = (name: string): string | undefined => model.field(nodeKey, name);
  const seen = field('seen_history') === model.history && field('incarnation') === incarnation;
  if (!seen) return ['changed'];
  if (field('members') !== undefined && field('members') !== members) return ['wrong-members'];

  const roster = lives(field('roster') ?? '0:,'.repeat(Number(count)));
  const before = asRoster(roster);
  for (let at = 0; at < claims.length; at += 4) {
    const [place, claimed = '', claimedFor, seenHere] = claims.slice(at, at + 4);
    const known = roster[Number(place) - 1];
    if (!known) throw new Error('a claim for a node that is not there');
    const generation = Number(claimedFor);
    const isKnown = known.incarnation === claimed && known.generation === generation;
    const isNext = known.generation === Number(seenHere) && known.generation < generation;
    if (!isKnown && !isNext && !model.has('promise-not-strict')) return ['refused'];
    roster[Number(place) - 1] = { incarnation: claimed, generation };
  }
  model.setFields(nodeKey, { roster: asRoster(roster), members });
  const admitted = field('history') === model.history ? 1 : 0;
  const facts = [field('max') ?? '0', field('longest') ?? '0', admitted, field('gen') ?? '0'];
  return ['promised', ...facts, incarnation, before];
};

const admit: Body = (model, keys, values, members) => {
  const [history = '', incarnation = '', gen = '', roster = '', floor = '', longest = ''] = values;
  const [maxTtl = '', quarantine = ''] = values.slice(6);
  const nodeKey = key(keys, 0);
  const field = (name: string): string | undefined => model.field(nodeKey, name);
  const seen = field('seen_history') === history && field('incarnation') === incarnation;
  if (model.history !== history || !seen) return ['changed'];
  if (field('members') !== undefined && field('members') !== members) return ['wrong-members'];
  if (field('history') !== history) {
    const left = Math.min(
      Number(quarantine),
      Number(field('seen_at')) + Number(quarantine) - model.nowMs,
    );
    if (left > 0) return ['too-early', left];
  } else if (Number(field('gen')) >= Number(gen)) return ['already-admitted'];

  const restored = model.has('floor-not-restored') ? 0 : Number(floor);
  const highest = String(Math.max(restored, Number(field('max') ?? '0')));
  const known = lives(roster);
  for (const [at, life] of lives(field('roster') ?? '').entries()) {
    if (life.generation > (known[at]?.generation ?? 0)) known[at] = life;
  }
  const longestMs = String(Math.max(Number(longest), Number(field('longest') ?? '0')));
  model.setFields(nodeKey, { history: history, gen, roster: asRoster(known), floor: highest });
  model.setFields(nodeKey, { max: highest, longest: longestMs, members, max_ttl: maxTtl });
  return ['admitted'];
};

const retire: Body = (model, keys, values) => {
  const [incarnation = '', name = ''] = values;
  const nodeKey = key(keys, 0);
  const isVoter = model.field(nodeKey, 'history') === model.history;
  if (!isVoter || model.field(nodeKey, 'incarnation') !== incarnation) return ['changed'];
  model.deleteFields(nodeKey, ['history', 'gen']);
  beginLife(model, nodeKey, name);
  return ['retired'];
};

const bodies: Readonly<Record<Exclude<CommandName, 'status'>, Body>> = {
  acquire,
  confirm,
  stand,
  keep,
  extend,
  release,
  inspect,
  promise,
  admit,
  retire,
};

/** A command that the model knows: `status` only tells, and of a real server. */
export type ModelCommand = keyof typeof bodies;

/** One call, as a script finds it among its keys and arguments. */
export interface ModelCall {
  readonly command: ModelCommand;
  readonly keys: readonly string[];
  readonly values: readonly string[];
}

/** The calls that a request to run a script carries, as `alone.lua` or `calls.lua` finds them. */
export function callsIn(
  keyCount: number,
  keysAndArguments: readonly (string | number)[],
): readonly ModelCall[] {
  const keys = keysAndArguments.slice(1, keyCount).map(String);
  const [first = '', ...others] = keysAndArguments.slice(keyCount + 1).map(String);
  const runs: [string, number, number, number, ...string[]][] = first.startsWith('[')
    ? JSON.parse(first)
    : [[first, keys.length, others.length, 1, ...others]];
  return runs.flatMap(([command, keysEach, valuesEach, count, ...values]) => {
    if (!isKnown(command)) throw new Error(`not a command of the script: ${command}`);
    return Array.from({ length: count }, () => ({
      command,
      keys: keys.splice(0, keysEach),
      values: values.splice(0, valuesEach),
    }));
  });
}

function isKnown(command: string): command is ModelCommand {
  return command in bodies;
}

/** How many parts of a reply come before the voter. */
const VOTES: Readonly<Record<string, number>> = { granted: 2, extended: 1 };
/** Of how many parts that is. */
const VOTER = 3;

/** What a script answers, as `calls.lua` and `alone.lua` write it. */
export function written(replies: readonly Reply[]): string {
  const voters: Reply[] = [];
  const placeOf = (voter: Reply): number => {
    const known = voters.findIndex((one) => one.join() === voter.join());
    return known === -1 ? voters.push(voter) : known + 1;
  };
  const parts = replies.map((reply) => {
    const own = VOTES[reply[0] ?? ''];
    if (!own) return reply;
    const place = placeOf(reply.slice(own, own + VOTER));
    return [...reply.slice(0, own), place, ...reply.slice(own + VOTER)];
  });
  return [parts, ...(voters.length > 0 ? [voters] : [])]
    .map((line) => JSON.stringify(line))
    .join('\n');
}

/** The replies that a script has written. */
export function repliesIn(answer: string): readonly Reply[] {
  const [replies = [], voters = []]: Reply[][] = answer
    .split('\n')
    .map((line) => (line.startsWith('[') ? JSON.parse(line) : [line.split(' ')]));
  return replies.map((reply) => {
    const own = VOTES[reply[0] ?? ''];
    if (!own) return reply;
    const voter = voters[Number(reply[own]) - 1] ?? [];
    return [...reply.slice(0, own), ...voter, ...reply.slice(own + 1)];
  });
}

/** A Redis process that runs the lock's scripts: the Lua in TypeScript, statement by statement. */
export class NodeModel extends RedisProcess {
  alive = true;
  readonly #scripts = new Set<string>();

  /** @throws an `Error` that begins with NOSCRIPT, as Redis answers for a script that it has not seen */
  evalsha(sha1: string, keyCount: number, keysAndArguments: readonly (string | number)[]): Reply[] {
    if (!this.#scripts.has(sha1)) throw new Error('NOSCRIPT No matching script. Please use EVAL.');
    return this.#run({ sha1 }, keyCount, keysAndArguments);
  }

  eval(source: string, keyCount: number, keysAndArguments: readonly (string | number)[]): Reply[] {
    this.#scripts.add(createHash('sha1').update(source).digest('hex'));
    return this.#run({ source }, keyCount, keysAndArguments);
  }

  #run(
    script: Partial<Script>,
    keyCount: number,
    keysAndArguments: readonly (string | number)[],
  ): Reply[] {
    const nodeKey = String(keysAndArguments[0]);
    const calls = callsIn(keyCount, keysAndArguments);
    assert.partialDeepStrictEqual(
      scriptFor(calls.map(({ command: name }) => ({ command: { name } }))),
      script,
    );
    return calls.map(({ command, keys, values }) =>
      bodies[command](this, [nodeKey, ...keys], values, String(keysAndArguments[keyCount])),
    );
  }
}
