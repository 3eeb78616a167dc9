import { isLater } from '../../packages/lock/src/core/quorum.ts';
import { eachOf } from '../../packages/lock/src/redis/batch-encoding.ts';
import type { NodeKeys } from '../../packages/lock/src/redis/node-keys.ts';
import { type CommandName, type Script, scriptFor } from '../../packages/lock/src/redis/scripts.ts';
import {
  hasLostBefore,
  type LockRecord,
  mayRotate,
  recordOf,
  rotate,
  tokenText,
  write,
} from './node-lock-table.ts';
import { followers, headOf, joinQueues, notifyAll, renew } from './node-queue.ts';
import { MemoryFullError, RedisProcess } from './redis-process.ts';

/**
 * Reply to a command. A vote includes the voter's generation, incarnation and roster, as one text.
 */
export type Reply = (string | number)[];

/** @param own the keys of the call: the queue of each resource, and the waiters */
type Body = (
  model: RedisProcess,
  keys: NodeKeys,
  own: readonly string[],
  values: readonly string[],
  members: string,
) => Reply;

/** The end of the field `members` of a sealed node. */
const SEALED = ' sealed';
const TOKEN_MAX = Number.MAX_SAFE_INTEGER;
/** The origins of a lease whose token is the first one, and of one as far above it as possible. */
const [FIRST, LAST] = ['A'.charCodeAt(0), '~'.charCodeAt(0)] as const;

interface Voter {
  readonly vote: string;
  readonly floor: number;
  readonly max: number;
  readonly maxTtlMs: number;
  readonly longestMs: number;
}

interface Incarnation {
  readonly generation: number;
  readonly incarnation: string;
}

function beginIncarnation(model: RedisProcess, nodeKey: string, name: string): void {
  model.writeThoughFull();
  const seconds = Math.floor(model.nowMs / 1_000);
  const microseconds = Math.floor(model.nowMs * 1_000) - seconds * 1_000_000;
  model.deleteFields(nodeKey, ['recovery_since']);
  model.setFields(nodeKey, {
    seen_history: model.history,
    incarnation: `${name.slice(-8)}.${seconds}.${microseconds}`,
  });
}

function endIncarnation(
  model: RedisProcess,
  nodeKey: string,
  name: string,
  alsoRemoved: readonly string[] = [],
): void {
  model.deleteFields(nodeKey, ['history', 'generation', 'vote', ...alsoRemoved]);
  beginIncarnation(model, nodeKey, name);
}

function otherVersion(model: RedisProcess, nodeKey: string, members: string): Reply | null {
  const known = model.field(nodeKey, 'members');
  if (known === undefined) return null;
  const version = /^(\d+) /.exec(known)?.[1] ?? '0';
  return version === /^\d+/.exec(members)?.[0] ? null : ['wrong-version', version];
}

/**
 * The refusal of a client: this is a replica, or its members or storage version differ. Or null.
 */
function mismatch(model: RedisProcess, nodeKey: string, members: string): Reply | null {
  const field = (name: string): string | undefined => model.field(nodeKey, name);
  if (model.role !== 'master' && !model.has('replica-votes')) return ['not-master', model.role];
  if (model.has('members-ignored')) return null;
  if (field('members') === undefined || field('members') === members) return null;
  if (field('members') === members + SEALED && model.has('votes-though-sealed')) return null;
  const setUp = [field('name') ?? '', field('names') ?? '', field('next_set') ?? ''];
  const refusal = ['config-mismatch', ...setUp];
  return otherVersion(model, nodeKey, members) ?? refusal;
}

function voter(model: RedisProcess, nodeKey: string, members: string): Voter | Reply {
  const field = (key: string): string => model.field(nodeKey, key) ?? '';
  const refusal = mismatch(model, nodeKey, members);
  if (refusal) return refusal;
  const mayVote =
    model.field(nodeKey, 'history') === model.history ||
    (model.has('no-readmission-check') && field('history') !== '');
  if (!mayVote || hasLostBefore(model, nodeKey)) return ['not-voting'];
  return {
    vote: field('vote'),
    floor: Number(field('floor')),
    max: Number(field('max')),
    maxTtlMs: Number(field('max_ttl')),
    longestMs: Number(field('longest')),
  };
}

function incarnationsIn(roster: string): Incarnation[] {
  const entries = [...roster.matchAll(/(\d+):([^,]*)/g)];
  return entries.map(([, generation, incarnation = '']) => ({
    generation: Number(generation),
    incarnation,
  }));
}

function rosterText(list: readonly Incarnation[]): string {
  return list.map(({ generation, incarnation }) => `${generation}:${incarnation}`).join(',');
}

function highestGiven(model: RedisProcess, node: Voter, last: number | undefined): number {
  const floor = model.has('fence-before-floor') ? 0 : node.floor;
  const forgotten = model.has('forgotten-token-below-highest') ? node.floor : node.max;
  return last === undefined ? forgotten : Math.max(last, floor);
}

/** The first token that a node gave with a lease; 0 if it need not be known. */
function firstToken(token: number, origin: string): number {
  return origin === '=' || origin === ' ' ? 0 : token - origin.charCodeAt(0) + FIRST;
}

/** The origin of a lease that has a token `above` the first one that was given with it. */
function originOf(above: number): string {
  return String.fromCharCode(FIRST + above <= LAST ? FIRST + above : FIRST);
}

/** The origin of a lease that gets another token while its owner holds it. */
function keptOrigin({ token: last = 0, origin }: LockRecord, token: number): string {
  return origin === '=' || origin === ' ' ? origin : originOf(token - firstToken(last, origin));
}

/** True if the record shows that no later lease was granted before it; see `is_proven`. */
function isProven(model: RedisProcess, { token = 0, origin }: LockRecord, least: number): boolean {
  return model.has('extended-though-not-proven') || firstToken(token, origin) <= least;
}

/** @param vote generation, incarnation and roster */
function noteRoster(
  model: RedisProcess,
  nodeKey: string,
  vote: readonly [string, string, string],
  [members, name, names]: readonly [string, string, string],
): void {
  model.writeThoughFull();
  model.setFields(nodeKey, { roster: vote[2], vote: vote.join(' '), members, name, names });
}

/** @param ends the end of each lease, by the name of its queue */
function grant(
  model: RedisProcess,
  keys: NodeKeys,
  node: Voter,
  token: number,
  fenceTtl: string,
  owner: string,
  ends: ReadonlyMap<string, number>,
  originFor: (queue: string) => string,
): Reply {
  const longestMs = Number(model.field(keys[0], 'longest'));
  rotate(model, keys, Number(fenceTtl), longestMs);
  if (token > node.max) model.setFields(keys[0], { max: tokenText(token) });
  for (const [queue, endsMs] of ends) {
    write(model, keys, queue, { token, owner, endsMs, origin: originFor(queue) });
  }
  return ['granted', tokenText(token), node.vote];
}

function noteTtl(model: RedisProcess, nodeKey: string, node: Voter, ttl: string): void {
  if (Number(ttl) > node.longestMs) model.setFields(nodeKey, { longest: ttl });
}

/** The time for which another client's lease may hold up the caller; see `lease_left`. */
function leaseLeft(
  model: RedisProcess,
  keys: NodeKeys,
  { longestMs }: Voter,
  { queue, token, owner, endsMs, origin }: LockRecord & { readonly queue: string },
): number {
  const nowMs = Math.floor(model.nowMs);
  const leftMs = endsMs - nowMs;
  if (leftMs <= longestMs) return leftMs;
  model.writeThoughFull();
  write(model, keys, queue, { token, owner, endsMs: nowMs + longestMs, origin });
  return longestMs;
}

/** The time for which a waiter's position may hold up the caller; see `position_left`. */
function positionLeft(model: RedisProcess, { longestMs, maxTtlMs }: Voter, waiter: string): number {
  const staysMs = Math.max(1, model.pttl(waiter));
  if (staysMs <= maxTtlMs) return staysMs;
  const leftMs = longestMs || maxTtlMs;
  model.expire(waiter, leftMs);
  return leftMs;
}

const acquire: Body = (model, keys, own, values, members) => {
  const [owner = '', ttl = '', fenceTtl = '', ...queued] = values;
  const [position, [followersMax, processId = '', togetherMs]] = [
    queued.slice(0, 3),
    queued.slice(3),
  ];
  const waiter = position.length > 0 ? own.at(-1) : undefined;
  const queues = waiter === undefined ? own : own.slice(0, -1);
  const node = voter(model, keys[0], members);
  if (Array.isArray(node)) return node;
  if (Number(ttl) > node.maxTtlMs) return ['ttl-too-long', node.maxTtlMs];

  const obstaclesMs: number[] = [];
  const [others, theirs]: [string[], string[]] = [[], []];
  const ends = new Map<string, number>();
  const taken = new Map<string, LockRecord>();
  let highest = 0;
  for (const queue of queues) {
    const record = recordOf(model, keys, queue);
    highest = Math.max(highest, highestGiven(model, node, record.token));
    const ownMs = record.owner === owner ? record.endsMs : 0;
    if (record.owner === owner) taken.set(queue, record);
    ends.set(queue, Math.max(model.nowMs + Number(ttl), ownMs));
    const first = record.owner === undefined ? headOf(model, queue) : undefined;
    if (first && first !== waiter) {
      others.push(first);
      theirs.push(queue);
      obstaclesMs.push(positionLeft(model, node, first));
    } else if (record.owner !== undefined && record.owner !== owner) {
      const takes = model.has('first-takes-held') && headOf(model, queue) === waiter;
      if (!takes) obstaclesMs.push(leaseLeft(model, keys, node, { queue, ...record }));
    }
  }
  if (obstaclesMs.length > 0) {
    notifyAll(model, keys, others, theirs);
    if (waiter !== undefined) joinQueues(model, keys, waiter, owner, position, queues);
    return held(model, obstaclesMs);
  }

  const more = model.has('followers-without-tokens') ? 0 : Number(followersMax ?? 0);
  const token = highest + 1 + more;
  if (token > TOKEN_MAX) return ['token-exhausted'];

  noteTtl(model, keys[0], node, ttl);
  const reply = grant(model, keys, node, token, fenceTtl, owner, ends, (queue) => {
    const known = taken.get(queue);
    return known ? keptOrigin(known, token) : originOf(Number(followersMax ?? 0));
  });
  if (waiter !== undefined) {
    for (const queue of queues) model.leave(queue, waiter);
    model.remove(waiter);
  }
  if (followersMax === undefined) return reply;
  const begins = (waiter ?? '').slice(0, -owner.length) + processId;
  const limits = [Number(followersMax), begins, Number(togetherMs)] as const;
  return [...reply, followers(model, queues.at(-1) ?? '', limits)];
};

const confirm: Body = (model, keys, queues, values, members) => {
  const [owner = '', token = '', fenceTtl = ''] = values;
  const node = voter(model, keys[0], members);
  if (Array.isArray(node)) return node;
  const records = new Map(queues.map((queue) => [queue, recordOf(model, keys, queue)]));
  const holds = [...records.values()].every((record) => record.owner === owner);
  if (!holds && !model.has('confirm-without-lock')) return ['not-held'];
  let raised = Number(token);
  const ends = new Map<string, number>();
  for (const [queue, record] of records) {
    const known = model.has('confirm-may-lower') ? 0 : highestGiven(model, node, record.token);
    raised = Math.max(raised, model.has('confirm-may-repeat') ? known : known + 1);
    ends.set(queue, record.endsMs);
  }
  if (raised > TOKEN_MAX) return ['token-exhausted'];
  model.writeThoughFull();
  return grant(model, keys, node, raised, fenceTtl, owner, ends, (queue) => {
    const record = records.get(queue);
    return record ? keptOrigin(record, raised) : originOf(0);
  });
};

const enqueue: Body = (model, keys, own, values, members) => {
  const [owner = '', ...position] = values;
  const node = voter(model, keys[0], members);
  if (Array.isArray(node)) return node;
  const waiter = own.at(-1) ?? '';
  const queues = own.slice(0, -1);
  const records = queues.map((queue) => ({ queue, ...recordOf(model, keys, queue) }));
  if (records.every((record) => record.owner === owner)) return ['head'];
  const isOthers = (record: LockRecord): boolean =>
    record.owner !== undefined && record.owner !== owner;
  const obstaclesMs = records.filter(isOthers).map((one) => leaseLeft(model, keys, node, one));
  const isRenewed = renew(model, waiter, position[2] ?? '');
  if (!isRenewed) joinQueues(model, keys, waiter, owner, position, queues);
  if (isRenewed && obstaclesMs.length > 0) return held(model, obstaclesMs);
  const [others, theirs]: [string[], string[]] = [[], []];
  for (const record of records) {
    const first = headOf(model, record.queue);
    if (first === undefined) joinQueues(model, keys, waiter, owner, position, queues);
    if (record.owner !== undefined || first === undefined || first === waiter) continue;
    others.push(first);
    theirs.push(record.queue);
    obstaclesMs.push(positionLeft(model, node, first));
  }
  if (obstaclesMs.length === 0) return ['head'];
  notifyAll(model, keys, others, theirs);
  return held(model, obstaclesMs);
};

/** @param obstaclesMs the remaining time of each obstacle */
function held(model: RedisProcess, obstaclesMs: readonly number[]): Reply {
  return ['held', Math.max(...obstaclesMs), String(Math.floor(model.nowMs))];
}

/**
 * Raises the last token of these resources to one number, which is no lower than any token issued
 * for them. Their locks are free, or one owner holds them.
 */
function noteNumber(
  model: RedisProcess,
  keys: NodeKeys,
  node: Voter,
  records: ReadonlyMap<string, LockRecord>,
): Reply {
  const given = [...records.values()].map(({ token }) => highestGiven(model, node, token));
  const number = Math.max(...given);
  for (const [queue, record] of records) {
    const { owner } = record;
    const endsMs = owner === undefined ? 0 : record.endsMs;
    const origin = owner === undefined ? ' ' : keptOrigin(record, number);
    write(model, keys, queue, { token: number, owner, endsMs, origin });
  }
  return ['not-held', tokenText(number), node.vote];
}

const backfill: Body = (model, keys, queues, values, members) => {
  const [owner = '', ttl = '', token = '', fenceTtl = '', incarnation] = values;
  const node = voter(model, keys[0], members);
  if (Array.isArray(node)) return node;
  if (Number(ttl) > node.maxTtlMs) return ['ttl-too-long', node.maxTtlMs];
  const isOwn = incarnation === undefined || incarnation === node.vote.split(' ')[1];
  if (!isOwn && !model.has('backfill-by-number-of-another-incarnation')) return ['not-held'];
  const hasNoGuard = model.has('backfill-whatever-was-given');
  const isForgotten = model.has('backfill-what-was-forgotten');
  const ends = new Map<string, number>();
  const records = new Map(queues.map((queue) => [queue, recordOf(model, keys, queue)]));
  let [highest, given] = [Number(token), 0];
  for (const [queue, record] of records) {
    const highestHere = highestGiven(model, node, record.token);
    if (record.owner !== undefined && record.owner !== owner) return ['not-held'];
    if (record.owner === undefined || !isProven(model, record, Number(token))) {
      given = Math.max(given, isForgotten ? (record.token ?? 0) : highestHere);
    }
    highest = Math.max(highest, highestHere);
    const ownMs = record.owner === owner ? record.endsMs : 0;
    ends.set(queue, Math.max(model.nowMs + Number(ttl), ownMs));
  }
  if (given > Number(token) && !hasNoGuard) return noteNumber(model, keys, node, records);
  noteTtl(model, keys[0], node, ttl);
  return grant(model, keys, node, highest, fenceTtl, owner, ends, () => '=');
};

const extend: Body = (model, keys, queues, values, members) => {
  const [owner = '', ttl = '', leaseToken = ''] = values;
  const node = voter(model, keys[0], members);
  if (Array.isArray(node)) return node;
  if (Number(ttl) > node.maxTtlMs) return ['ttl-too-long', node.maxTtlMs];
  const records = new Map(queues.map((queue) => [queue, recordOf(model, keys, queue)]));
  const all = [...records.values()];
  if (all.some((record) => (record.owner ?? owner) !== owner)) return ['not-held'];
  const isLost = all.some(
    (record) => record.owner === undefined || !isProven(model, record, Number(leaseToken)),
  );
  if (isLost) return noteNumber(model, keys, node, records);
  model.writeThoughFull();
  noteTtl(model, keys[0], node, ttl);
  for (const [queue, { token, endsMs, origin }] of records) {
    write(model, keys, queue, {
      token,
      owner,
      origin,
      endsMs: Math.max(endsMs, model.nowMs + Number(ttl)),
    });
  }
  return ['extended', node.vote];
};

const release: Body = (model, keys, own, values, members) => {
  const isSealed = model.field(keys[0], 'members') === members + SEALED;
  const refusal =
    otherVersion(model, keys[0], members) ?? (isSealed ? mismatch(model, keys[0], members) : null);
  if (refusal) return refusal;
  const [owner = '', haveWaited] = values;
  const queues = own.slice(0, own.length - Number(haveWaited ?? 0));
  for (const waiter of own.slice(queues.length)) {
    model.remove(waiter);
    for (const queue of queues) model.leave(queue, waiter);
  }
  const free: string[] = [];
  let held = true;
  for (const queue of queues) {
    const { token, owner: holder } = recordOf(model, keys, queue, haveWaited === undefined);
    if (holder === owner) {
      model.writeThoughFull();
      write(model, keys, queue, { token, owner: undefined, endsMs: 0 });
    }
    held &&= holder === owner;
    if (holder === undefined || holder === owner) free.push(queue);
  }
  const heads = free.map((queue) => headOf(model, queue));
  notifyAll(model, keys, heads, free);
  return [held ? 'released' : 'not-held'];
};

const inspect: Body = (model, [nodeKey], _, values, members) => {
  const field = (name: string): string | undefined => model.field(nodeKey, name);
  const refusal = mismatch(model, nodeKey, members);
  if (refusal) return refusal;
  const [name = ''] = values;
  if (hasLostBefore(model, nodeKey)) endIncarnation(model, nodeKey, name, ['before']);
  else if (field('seen_history') !== model.history) beginIncarnation(model, nodeKey, name);
  const voting = field('history') === model.history ? 1 : 0;
  const facts = [field('generation') ?? '0', field('roster') ?? '', field('max') ?? '0'];
  return [
    'inspected',
    model.history,
    field('incarnation') ?? '',
    voting,
    ...facts,
    field('longest') ?? '0',
    field('awaits') ?? '',
    field('max_ttl') ?? '',
  ];
};

const promise: Body = (model, [nodeKey], _, values, members) => {
  const [incarnation = '', ownName = '', names = '', count = '', ...nominations] = values;
  const field = (name: string): string | undefined => model.field(nodeKey, name);
  const refusal = mismatch(model, nodeKey, members);
  if (refusal) return refusal;
  const seen = field('seen_history') === model.history && field('incarnation') === incarnation;
  if (!seen) return ['changed'];

  const roster = incarnationsIn(field('roster') ?? '0:,'.repeat(Number(count)));
  const before = rosterText(roster);
  for (let at = 0; at < nominations.length; at += 4) {
    const [place, nominated = '', nominatedGeneration, seenHere] = nominations.slice(at, at + 4);
    const known = roster[Number(place) - 1];
    if (!known) throw new Error('a nomination for a node that is not there');
    const generation = Number(nominatedGeneration);
    const isKnown = known.incarnation === nominated && known.generation === generation;
    const isNext = known.generation === Number(seenHere) && known.generation < generation;
    if (!isKnown && !isNext && !model.has('promise-not-strict')) return ['refused'];
    roster[Number(place) - 1] = { incarnation: nominated, generation };
  }
  const setUp = [members, ownName, names] as const;
  noteRoster(model, nodeKey, [field('generation') ?? '0', incarnation, rosterText(roster)], setUp);
  const admitted = field('history') === model.history ? 1 : 0;
  const facts = [
    field('max') ?? '0',
    field('longest') ?? '0',
    admitted,
    field('generation') ?? '0',
  ];
  return ['promised', ...facts, incarnation, before];
};

const admit: Body = (model, [nodeKey], _, values, members) => {
  const [history = '', incarnation = '', generation = '', roster = '', floor = '', longest = ''] =
    values;
  const [maxTtl = '', recoveryWait = '', ownName = '', names = ''] = values.slice(6);
  const field = (name: string): string | undefined => model.field(nodeKey, name);
  const seen = field('seen_history') === history && field('incarnation') === incarnation;
  const refusal = mismatch(model, nodeKey, members);
  if (refusal) return refusal;
  if (model.history !== history || !seen) return ['changed'];
  if (field('history') !== history) {
    const nowMs = Math.floor(model.nowMs);
    const since = Math.min(Number(field('recovery_since') ?? nowMs), nowMs);
    const left = since + Number(recoveryWait) - nowMs;
    if (left > 0) {
      model.writeThoughFull();
      model.setFields(nodeKey, { recovery_since: String(since) });
      return ['too-early', left];
    }
  } else if (Number(field('generation')) >= Number(generation)) return ['already-admitted'];

  const restored = model.has('floor-not-restored') ? 0 : Number(floor);
  const highest = tokenText(Math.max(restored, Number(field('max') ?? '0')));
  const known = incarnationsIn(roster);
  for (const [at, one] of incarnationsIn(field('roster') ?? '').entries()) {
    const given = known[at] ?? { generation: 0, incarnation: '' };
    const isFirstKept = model.has('roster-ties-by-place') && one.generation === given.generation;
    if (isLater(one, given) && !isFirstKept) known[at] = one;
  }
  const longestMs = String(Math.max(Number(longest), Number(field('longest') ?? '0')));
  noteRoster(
    model,
    nodeKey,
    [generation, incarnation, rosterText(known)],
    [members, ownName, names],
  );
  model.setFields(nodeKey, { history, generation, floor: highest, max: highest });
  model.setFields(nodeKey, { longest: longestMs, max_ttl: maxTtl });
  model.deleteFields(nodeKey, ['awaits']);
  return ['admitted'];
};

const retire: Body = (model, [nodeKey], _, values, members) => {
  const [incarnation = '', name = ''] = values;
  const refusal = mismatch(model, nodeKey, members);
  if (refusal) return refusal;
  const isVoter = model.field(nodeKey, 'history') === model.history;
  if (!isVoter || model.field(nodeKey, 'incarnation') !== incarnation) return ['changed'];
  endIncarnation(model, nodeKey, name);
  return ['retired'];
};

const limit: Body = (model, [nodeKey], _, [maxTtl = ''], members) => {
  const refusal = mismatch(model, nodeKey, members);
  if (refusal) return refusal;
  if (model.field(nodeKey, 'members') === undefined) return ['changed'];
  model.writeThoughFull();
  model.setFields(nodeKey, { max_ttl: maxTtl });
  return ['limited'];
};

const seal: Body = (model, [nodeKey], _, values, members) => {
  const [nextSet = '', names = ''] = values;
  const field = (name: string): string | undefined => model.field(nodeKey, name);
  const isSealed = field('members') === members + SEALED;
  const refusal = unlessSealed(model, nodeKey, members);
  if (refusal) return refusal;
  if (isSealed && field('next_set') !== nextSet) return ['sealed-for', field('next_set') ?? ''];
  if (!isSealed) {
    model.writeThoughFull();
    model.setFields(nodeKey, { members: members + SEALED, next_set: nextSet, names });
  }
  const voting = isSealedVoter(model, nodeKey) ? 1 : 0;
  const others = ['incarnation', 'roster', 'max_ttl'].map((name) => field(name) ?? '');
  const facts = [field('generation') ?? '0', ...others];
  return ['sealed', field('max') ?? '0', field('longest') ?? '0', voting, ...facts];
};

/** True if the sealed node is still the incarnation that voted when it was sealed. */
function isSealedVoter(model: RedisProcess, nodeKey: string): boolean {
  const isAny =
    model.has('sealed-votes-after-restart') && model.field(nodeKey, 'roster') !== undefined;
  if (isAny) return true;
  return model.field(nodeKey, 'history') === model.history && !hasLostBefore(model, nodeKey);
}

/** As `mismatch`, but a node that is sealed in the client's own set accepts the client. */
function unlessSealed(model: RedisProcess, nodeKey: string, members: string): Reply | null {
  const known = model.field(nodeKey, 'members');
  return mismatch(model, nodeKey, known === members + SEALED ? known : members);
}

const prepare: Body = (model, [nodeKey], _, values, members) => {
  const [incarnation = '', early = '', previousSet = '', name = ''] = values;
  const field = (key: string): string | undefined => model.field(nodeKey, key);
  const refusal = mismatch(model, nodeKey, members);
  if (refusal) return refusal;
  if (!isIncarnation(model, nodeKey, incarnation)) return ['changed'];
  if (field('history') === model.history) return ['voting'];
  if (field('awaits') !== undefined) {
    return field('previous_set') === previousSet
      ? ['prepared']
      : ['awaits', field('previous_set') ?? ''];
  }
  beginIncarnation(model, nodeKey, name);
  model.setFields(nodeKey, { awaits: early, previous_set: previousSet });
  return ['prepared'];
};

const leases: Body = (model, keys, _, values, members) => {
  const [incarnation = '', hash = ''] = values;
  const [nodeKey] = keys;
  const refusal = unlessSealed(model, nodeKey, members);
  if (refusal) return refusal;
  const isSealed = model.field(nodeKey, 'members') === members + SEALED;
  const isVoter = isSealedVoter(model, nodeKey);
  if (!isSealed || !isVoter || model.field(nodeKey, 'incarnation') !== incarnation)
    return ['changed'];
  const begins = `${nodeKey.slice(0, -'node'.length)}queue:`;
  const scanned = keys[Number(hash) - 1] ?? '';
  const names = [...(model.data.hashes.get(scanned)?.keys() ?? [])];
  const found = names.flatMap((queue): Reply => {
    if (!queue.startsWith(begins)) return [];
    const { owner, endsMs, token = 0, origin } = recordOf(model, [scanned, scanned], queue);
    const isOlder = hash === '2' && model.field(nodeKey, queue) !== undefined;
    if (owner === undefined || isOlder) return [];
    const remaining = String(endsMs - Math.floor(model.nowMs));
    return [queue.slice(begins.length), owner, remaining, tokenText(firstToken(token, origin))];
  });
  return ['leases', '0', ...found];
};

const carry: Body = (model, keys, queues, values, members) => {
  const [incarnation = '', ...records] = values;
  const [nodeKey] = keys;
  const refusal = mismatch(model, nodeKey, members);
  if (refusal) return refusal;
  if (!isIncarnation(model, nodeKey, incarnation)) return ['changed'];
  if (model.field(nodeKey, 'history') === model.history) return ['voting'];
  if (model.field(nodeKey, 'awaits') === undefined) return ['changed'];
  for (const [at, queue] of queues.entries()) {
    const [owner = '', remaining, token] = records.slice(3 * at);
    const known = recordOf(model, keys, queue);
    write(model, keys, queue, {
      token: Math.max(Number(token), known.token ?? 0),
      origin: 'A',
      owner: known.owner === undefined || known.owner === owner ? owner : '',
      endsMs: Math.max(
        Math.floor(model.nowMs) + Number(remaining),
        known.owner === undefined ? 0 : known.endsMs,
      ),
    });
  }
  return ['carried'];
};

function isIncarnation(model: RedisProcess, nodeKey: string, incarnation: string): boolean {
  const isSeen = model.field(nodeKey, 'seen_history') === model.history;
  return isSeen && model.field(nodeKey, 'incarnation') === incarnation;
}

/** STATUS. The facts about the server (memory, durability) are constant in the model. */
const status: Body = (model, [nodeKey], _, __, members) => {
  const isKnown = otherVersion(model, nodeKey, members) === null;
  const field = (name: string): string => (isKnown ? model.field(nodeKey, name) : undefined) ?? '';
  const own = model.role === 'master' ? model.history : '';
  const isWaiting = own !== '' && field('seen_history') === own && field('recovery_since') !== '';
  const nowMs = Math.floor(model.nowMs);
  const waitedMs = isWaiting ? Math.max(0, nowMs - Number(field('recovery_since'))) : 0;
  const isVoting = own !== '' && field('history') === own && !hasLostBefore(model, nodeKey);
  const voting = isVoting ? 1 : 0;
  return [
    ...['status', own, field('incarnation'), voting, field('generation') || '0', field('roster')],
    ...[field('max') || '0', field('longest') || '0', String(waitedMs)],
    ...['Redis 7', model.role, 'noeviction', '0', String(nowMs)],
    ...[model.field(nodeKey, 'members') ?? '', field('name'), field('names'), '0', '0', 0],
    ...[field('next_set'), field('awaits'), field('previous_set'), field('max_ttl')],
  ];
};

const bodies: Readonly<Record<CommandName, Body>> = {
  acquire,
  confirm,
  enqueue,
  backfill,
  extend,
  release,
  inspect,
  promise,
  admit,
  retire,
  limit,
  seal,
  prepare,
  leases,
  carry,
  status,
};

export type ModelCommand = keyof typeof bodies;

/** One call, as a script reads it from its keys and arguments. */
export interface ModelCall {
  readonly command: ModelCommand;
  readonly keys: readonly string[];
  readonly values: readonly string[];
}

/** The facts in a request for a script. */
export interface ModelRequest {
  readonly nodeKeys: NodeKeys;
  readonly members: string;
  readonly calls: readonly ModelCall[];
  /** The script for these calls. */
  readonly script: Script;
}

/** The request for a script, as `alone.lua` or `calls.lua` reads it. */
export function requestIn(
  keyCount: number,
  keysAndArguments: readonly (string | number)[],
): ModelRequest {
  const [node = '', before = '', ...keys] = keysAndArguments.slice(0, keyCount).map(String);
  const [members = '', first = '', ...others] = keysAndArguments.slice(keyCount).map(String);
  const calls = first.startsWith('[')
    ? callsIn(JSON.parse(first), keys)
    : [{ command: known(first), keys, values: others }];
  const script = scriptFor(calls.map(({ command: name }) => ({ command: { name } })));
  return { nodeKeys: [node, before], members, calls, script };
}

/** The calls in the runs that `calls.lua` reads. */
function callsIn(
  runs: readonly [string, number, string[], ...string[]][],
  keys: string[],
): readonly ModelCall[] {
  return runs.flatMap(([name, keysEach, values, ...firsts]) => {
    const command = known(name);
    return firsts.map((one) => ({
      command,
      keys: keys.splice(0, keysEach),
      values: [one, ...values],
    }));
  });
}

function known(command: string): ModelCommand {
  if (isKnown(command)) return command;
  throw new Error(`not a command of the script: ${command}`);
}

function isKnown(command: string): command is ModelCommand {
  return command in bodies;
}

/** Number of the parts of a reply before the voter. */
export const VOTES: Readonly<Record<string, number>> = { granted: 2, extended: 1, 'not-held': 2 };

/** The reply of a script, as `calls.lua` and `alone.lua` write it. */
export function written(replies: readonly Reply[]): string {
  const voters: (string | number)[] = [];
  const placeOf = (voter: string | number): number => {
    const known = voters.indexOf(voter);
    return known === -1 ? voters.push(voter) : known + 1;
  };
  const parts = replies.map((reply) => {
    const own = VOTES[reply[0] ?? ''];
    if (!own || reply.length <= own) return reply;
    return reply.with(own, placeOf(reply[own] ?? ''));
  });
  return [JSON.stringify(parts), ...voters].join('\n');
}

/** Reads the replies that a script has written. */
export function repliesIn(answer: string): readonly Reply[] {
  const [list = '', ...voters] = answer.split('\n');
  const replies: Reply[] = list.startsWith('[')
    ? JSON.parse(list).flatMap(eachOf)
    : [list.split(' ')];
  return replies.map((reply) => {
    const own = VOTES[reply[0] ?? ''];
    if (!own || reply.length <= own) return reply;
    return reply.with(own, voters[Number(reply[own]) - 1] ?? '');
  });
}

/** A Redis process that runs the lock's scripts, translated from Lua statement by statement. */
export class NodeModel extends RedisProcess {
  alive = true;
  /** Called after each call of a script, with the state that the call has left. */
  onReply: ((call: ModelCall, reply: Reply) => void) | null = null;
  readonly #scripts = new Set<string>();

  /** @throws an `Error` that begins with NOSCRIPT, like Redis' reply for an unknown script */
  evalsha(sha1: string, request: ModelRequest): Reply[] {
    if (!this.#scripts.has(sha1)) throw new Error('NOSCRIPT No matching script. Please use EVAL.');
    return this.#run(request, request.script.sha1 === sha1);
  }

  eval(source: string, request: ModelRequest): Reply[] {
    this.#scripts.add(request.script.sha1);
    return this.#run(request, request.script.source === source);
  }

  #run({ nodeKeys, members, calls }: ModelRequest, isScriptRight: boolean): Reply[] {
    if (!isScriptRight) throw new Error('the script is not the one for these commands');
    this.spent = { expired: 0, queuesExamined: 0 };
    this.hasWritten = false;
    try {
      return calls.map((call) => {
        try {
          const reply = this.#carryOut(call, nodeKeys, members);
          this.onReply?.(call, reply);
          return reply;
        } catch (error) {
          // If the script has one call only, its error is the error of the script.
          if (calls.length === 1 || !(error instanceof MemoryFullError)) throw error;
          return ['error', error.message];
        }
      });
    } finally {
      this.hasWritten = true;
    }
  }

  /** Runs a command. If memory is full, makes room if it can, and runs the command again. */
  #carryOut({ command, keys, values }: ModelCall, nodeKeys: NodeKeys, members: string): Reply {
    const run = (): Reply => bodies[command](this, nodeKeys, keys, values, members);
    try {
      return run();
    } catch (error) {
      const isFull = error instanceof MemoryFullError;
      if (!isFull || !this.#makeRoom(nodeKeys, keys, members)) throw error;
      return run();
    }
  }

  #makeRoom(nodeKeys: NodeKeys, keys: readonly string[], members: string): boolean {
    const [node] = nodeKeys;
    const voting = voter(this, node, members);
    if (Array.isArray(voting)) return false;
    const longestMs = this.has('full-lock-table-rotated-early') ? 0 : voting.longestMs;
    if (mayRotate(this, nodeKeys, 0, longestMs)) {
      rotate(this, nodeKeys, 0, longestMs);
      return true;
    }
    if (keys.some((key) => this.field(node, key) === undefined)) return false;
    this.writeThoughFull();
    return true;
  }
}
