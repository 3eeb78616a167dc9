import { randomUUID } from 'node:crypto';
import { type RedisService, startRedis } from '@fenced/testbed';
import fc from 'fast-check';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { inScript } from '../../packages/lock/src/redis/batch-encoding.ts';
import { Command } from '../../packages/lock/src/redis/command.ts';
import { type NodeKeys, nodeKeys } from '../../packages/lock/src/redis/node-keys.ts';
import { scriptFor } from '../../packages/lock/src/redis/scripts.ts';
import { LockTable } from '../lock/harness/lock-table.ts';
import { opening, type Step, step, UNIT_MS } from './node-commands.ts';
import { forget, free } from './node-lock-table.ts';
import { NodeModel, type Reply, repliesIn, requestIn } from './node-model.ts';
import { NodeData } from './redis-process.ts';

const SEQUENCES = Number(process.env.FENCED_RUNS ?? 400);
const STEPS_MAX = 40;

let service: RedisService;
let clients: Redis[];
let histories: string[];
beforeAll(async () => {
  service = await startRedis(2);
  clients = service.nodes.map(({ port }) => new Redis(port));
  histories = await Promise.all(clients.map(ownHistory));
});
afterAll(async () => {
  for (const client of clients ?? []) client.disconnect();
  await service?.stop();
});

async function ownHistory(client: Redis): Promise<string> {
  return /^master_replid:(\w+)/m.exec(await client.info())?.[1] ?? '';
}

/** The real servers, and the models that must behave alike, under a new key prefix. */
class Pair {
  readonly #prefix = `{${randomUUID()}}:`;
  readonly #ownKeys: NodeKeys = nodeKeys(this.#prefix);
  #nowMs = 1_763_690_000_000;
  #models: NodeModel[] = histories.map((history) => this.#model(history, new NodeData()));

  async step(one: Step): Promise<void> {
    switch (one.do) {
      case 'script':
        return this.#run(one);
      case 'wait':
        // 1 ms more, because the clock of the real server moves a little by itself.
        this.#nowMs += one.units * UNIT_MS + 1;
        this.#models.forEach(dropExpired);
        await Promise.all(clients.map((client) => this.#age(client, one.units * UNIT_MS)));
        return;
      case 'lose':
        return this.#lose(one);
      case 'flush':
        this.#modelAt(one.at).data.clear();
        await this.#flush(clientAt(one.at));
        return;
      case 'move':
        return this.#move(one.from, 1 - one.from);
      case 'role':
        return this.#changeRole(one.at);
    }
  }

  /** Compares every key, with its value and its remaining time. */
  async agree(): Promise<void> {
    for (const [where, client] of clients.entries()) {
      expect(this.#modelKeys(where)).toEqual(await this.#realKeys(client));
    }
  }

  async clean(): Promise<void> {
    for (const [at, client] of clients.entries()) {
      if (this.#modelAt(at).role === 'slave') await this.#changeRole(at);
      await this.#flush(client);
    }
  }

  /** A replica without a reachable master keeps its data. A promotion begins a new history. */
  async #changeRole(at: number): Promise<void> {
    const { role, data } = this.#modelAt(at);
    if (role === 'master') {
      await clientAt(at).config('SET', 'replica-read-only', 'no');
      await clientAt(at).replicaof('127.0.0.1', 1);
      this.#modelAt(at).role = 'slave';
    } else {
      await clientAt(at).replicaof('NO', 'ONE');
      histories[at] = await ownHistory(clientAt(at));
      this.#models[at] = this.#model(histories[at] ?? '', data);
    }
  }

  async #lose({ at, what, resource }: Step & { do: 'lose' }): Promise<void> {
    const model = this.#modelAt(at);
    const queue = `${this.#prefix}queue:${resource}`;
    const lockTable = new LockTable(clientAt(at), this.#prefix);
    if (what === 'queue') {
      model.data.queues.delete(queue);
      await clientAt(at).del(queue);
    } else if (what === 'node' || what === 'before') {
      const key = this.#ownKeys[what === 'node' ? 0 : 1];
      model.data.hashes.delete(key);
      await clientAt(at).del(key);
    } else if (what === 'version') {
      const [key] = this.#ownKeys;
      model.setFields(key, { members: 'before versions were kept' });
      await clientAt(at).hset(key, { members: 'before versions were kept' });
    } else if (what === 'lock') {
      free(model, this.#ownKeys, queue);
      await lockTable.free(resource);
    } else {
      forget(model, this.#ownKeys, queue);
      await lockTable.forget(resource);
    }
  }

  async #run({ at: where, members, calls, isFull }: Step & { do: 'script' }): Promise<void> {
    // Moves the clock, so that incarnations with the same name differ in their start times.
    this.#nowMs += 0.001;
    const client = clientAt(where);
    const [nodeKey] = this.#ownKeys;
    const own = {
      model: this.#modelAt(where).field(nodeKey, 'incarnation') ?? '',
      real: (await client.hget(nodeKey, 'incarnation')) ?? '',
    };
    const known = (value: string | number, side: keyof typeof own): string | number => {
      const [, what, which = ''] = /^(history|incarnation)-(\w+)$/.exec(String(value)) ?? [];
      if (what === 'history') return histories[Number(which)] ?? '';
      if (what === 'incarnation') return own[side].startsWith(`${which}.`) ? own[side] : which;
      return value;
    };
    const encoded = (side: keyof typeof own) => {
      const commands = calls.map(({ command, keys, values }) => {
        const ownKeys = keys.map((name) => this.#prefix + name);
        const knownValues = values.map((value) => known(value, side));
        return { command: new Command(command, ownKeys, knownValues) };
      });
      const [keyCount, ...rest] = inScript(this.#ownKeys, members, commands);
      return [keyCount, rest] as const;
    };
    const { source } = scriptFor(calls.map(({ command: name }) => ({ command: { name } })));
    const node = this.#modelAt(where);
    node.isFull = isFull;
    const model = repliesOf(() => node.eval(source, requestIn(...encoded('model'))));
    const [keyCount, rest] = encoded('real');
    if (isFull) await client.config('SET', 'maxmemory', '1');
    const real = await client.eval(source, keyCount, ...rest).catch((error: Error) => error);
    if (isFull) await client.config('SET', 'maxmemory', '0');
    const comparable = (replies: readonly Reply[]) =>
      replies.map((reply) => inUnits(withoutTimes(withoutPlace(reply))));
    expect(comparable(model)).toEqual(
      comparable(repliesOf(() => (real instanceof Error ? raise(real) : repliesIn(String(real))))),
    );
  }

  async #age(client: Redis, ms: number): Promise<void> {
    for (const name of await client.keys(`${this.#prefix}*`)) {
      const left = await client.pttl(name);
      if (name.includes('}:waiter:')) await agePlace(client, name, ms);
      if (left >= 0) await client.pexpire(name, left - ms);
      else if (!this.#expires(name)) {
        const fields = Object.entries(await client.hgetall(name));
        const older = fields.map(([field, value]) => [field, aged(field, value, ms)]);
        await client.hset(name, Object.fromEntries(older));
      }
    }
  }

  async #flush(client: Redis): Promise<void> {
    const names = await client.keys(`${this.#prefix}*`);
    if (names.length > 0) await client.del(...names);
  }

  async #move(from: number, to: number): Promise<void> {
    await this.#flush(clientAt(to));
    for (const name of await clientAt(from).keys(`${this.#prefix}*`)) {
      const dump = await clientAt(from).dumpBuffer(name);
      const left = await clientAt(from).pttl(name);
      await clientAt(to).restore(name, Math.max(0, left), dump);
    }
    const { role } = this.#modelAt(to);
    const moved = this.#model(histories[to] ?? '', this.#modelAt(from).data.clone());
    moved.role = role;
    this.#models[to] = moved;
  }

  #modelKeys(where: number): Record<string, unknown> {
    const model = this.#modelAt(where);
    const hashes = [...model.data.hashes].map(([name, fields]) => [
      name,
      withTimesInUnits(Object.fromEntries(fields), this.#nowMs),
    ]);
    const lists = [...model.data.lists.keys()].flatMap((name) => {
      const value = model.get(name);
      if (value === undefined) return [];
      const place: string[] = JSON.parse(value);
      return [[name, [placeInUnits(place, this.#nowMs), units(model.pttl(name))]]];
    });
    const queues = [...model.data.queues.keys()].flatMap((name) => {
      const members = model.queue(name);
      return members.length === 0 ? [] : [[name, [members, units(model.pttl(name))]]];
    });
    return Object.fromEntries([...hashes, ...lists, ...queues]);
  }

  async #realKeys(client: Redis): Promise<Record<string, unknown>> {
    const found: Record<string, unknown> = {};
    for (const name of await client.keys(`${this.#prefix}*`)) {
      if (this.#expires(name)) {
        found[name] = [await contentsOf(client, name), units(await client.pttl(name))];
        continue;
      }
      const nowMs = await timeMs(client);
      found[name] = withTimesInUnits(await client.hgetall(name), nowMs);
    }
    return found;
  }

  /** True for a wait queue or a waiter: these keys expire. */
  #expires(name: string): boolean {
    return !this.#ownKeys.includes(name);
  }

  #modelAt(where: number): NodeModel {
    const model = this.#models[where];
    if (!model) throw new Error(`there is no node ${where}`);
    return model;
  }

  #model(history: string, data: NodeData): NodeModel {
    return new NodeModel(history, data, () => this.#nowMs);
  }
}

/** Reads all keys that expire. If the clock is set back then, those that were over stay away. */
function dropExpired(model: NodeModel): void {
  for (const name of [...model.data.lists.keys()]) model.get(name);
  for (const name of [...model.data.queues.keys()]) model.queue(name);
}

async function contentsOf(client: Redis, name: string): Promise<readonly unknown[]> {
  if (name.includes('}:queue:')) return client.zrange(name, '0', '-1');
  return placeInUnits(await client.lrange(name, 0, -1), await timeMs(client));
}

async function timeMs(client: Redis): Promise<number> {
  const [seconds = 0, microseconds = 0] = await client.time();
  return Number(seconds) * 1_000 + Number(microseconds) / 1_000;
}

/** Index of the time in a waiter's list until which the waiter need not enqueue again. */
const UNTIL_AT = 2;

function placeInUnits(place: readonly string[], nowMs: number): readonly unknown[] {
  return place.with(UNTIL_AT, String(wholeUnits(Number(place[UNTIL_AT]) - nowMs)));
}

async function agePlace(client: Redis, waiter: string, ms: number): Promise<void> {
  const until = Number(await client.lindex(waiter, UNTIL_AT));
  await client.lset(waiter, UNTIL_AT, until - ms - 1);
}

const TIMES: ReadonlySet<string> = new Set(['recovery_since', 'opened', 'rotated']);
/** The end of the lease in a record whose lock was taken. */
const HELD = /^(\d{15})(?=[ +]\d{16}[ =A-~])/;

/** False for 0, which means that the event never happened, or that the lock is free. */
const isTime = (value: string): boolean => Number(value) > 0;

/** Returns a field of a hash as if it were written `ms + 1` earlier: the model adds 1 ms, too. */
function aged(field: string, value: string, ms: number): string {
  if (field === 'recovery_since') return String(Number(value) - ms);
  if (TIMES.has(field) && isTime(value)) return String(Number(value) - ms - 1);
  return value.replace(HELD, (ends) =>
    isTime(ends) ? String(Number(ends) - ms - 1).padStart(15, '0') : ends,
  );
}

function clientAt(where: number): Redis {
  const client = clients[where];
  if (!client) throw new Error(`there is no node ${where}`);
  return client;
}

/** Keeps negative numbers: Redis' reply for keys that do not expire or do not exist. */
function units(remainingMs: number): number {
  return remainingMs < 0 ? remainingMs : wholeUnits(remainingMs);
}

/** Adds 0, because `toEqual` distinguishes negative zero from zero. */
function wholeUnits(ms: number): number {
  return Math.round(ms / UNIT_MS) + 0;
}

function withTimesInUnits(fields: Record<string, string>, nowMs: number): Record<string, unknown> {
  const compared = Object.entries(fields).map(([field, value]) => {
    if (field === 'incarnation' || field === 'vote') return [field, ...withoutTimes([value])];
    if (TIMES.has(field) && isTime(value)) return [field, wholeUnits(nowMs - Number(value))];
    const left = (ends: string): string =>
      isTime(ends) ? String(wholeUnits(Number(ends) - nowMs)) : ends;
    return [field, value.replace(HELD, left)];
  });
  return Object.fromEntries(compared);
}

/** Removes the start times from incarnations: model and server have different clocks. */
function withoutTimes(reply: Reply): Reply {
  return reply.map((part) =>
    typeof part === 'string' ? part.replace(/\.\d{10}\.\d+/g, '') : part,
  );
}

/** The replies of a script. If the script failed, the error is the only reply. */
function repliesOf(run: () => readonly Reply[]): readonly Reply[] {
  try {
    return run();
  } catch (error) {
    return [['error', error instanceof Error ? error.message : '']];
  }
}

function raise(error: Error): never {
  throw error;
}

/** Removes the position in the script, which a server adds to the error of a full memory. */
function withoutPlace(reply: Reply): Reply {
  const [answer, message] = reply;
  const isFull = answer === 'error' && String(message).includes('OOM command not allowed');
  return isFull ? ['error', 'OOM'] : reply;
}

/** The parts of a lease in a reply to LEASES, and the place of its remaining time. */
const LEASE_PARTS = 4;
const REMAINING_AT = 2;

/** A server may return leases in any order. */
function sortedLeases([answer, cursor, ...parts]: Reply): Reply {
  const found = Array.from({ length: parts.length / LEASE_PARTS }, (_, at) => {
    const lease = parts.slice(LEASE_PARTS * at, LEASE_PARTS * (at + 1));
    return JSON.stringify(lease.with(REMAINING_AT, units(Number(lease[REMAINING_AT]))));
  });
  return [answer ?? '', cursor ?? '', ...found.sort()];
}

/** The reply to STATUS without the facts about the server, and without the number of records. */
function aboutNode(reply: Reply): Reply {
  const waited = units(Number(reply[8]));
  return [
    ...reply.slice(0, 8),
    waited,
    reply[10] ?? '',
    ...reply.slice(14, 17),
    ...reply.slice(20),
  ];
}

function inUnits(reply: Reply): Reply {
  const [answer] = reply;
  if (answer === 'leases') return sortedLeases(reply);
  if (answer === 'status') return aboutNode(reply);
  return answer === 'too-early' || answer === 'held' ? [answer, units(Number(reply[1]))] : reply;
}

test('the model of a node answers and keeps what a real Redis does', {
  timeout: 60_000 + SEQUENCES * 60,
}, async () => {
  const sequences = fc.tuple(opening, fc.array(step, { maxLength: STEPS_MAX, size: 'max' }));
  await fc.assert(
    fc.asyncProperty(sequences, async ([first, then]) => {
      const pair = new Pair();
      try {
        for (const one of [...first, ...then]) await pair.step(one);
        await pair.agree();
      } finally {
        await pair.clean();
      }
    }),
    { numRuns: SEQUENCES },
  );
});
