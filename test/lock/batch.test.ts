import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { inspect } from 'node:util';
import { LockArgumentError, Redlock } from '@fenced/lock';
import { type LocalRedisService, startLocalRedis, TcpProxy } from '@fenced/testbed';
import fc from 'fast-check';
import type { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Ownership } from '../../packages/lock/src/redis/nodes.js';
import { type Runtime, systemRuntime } from '../../packages/lock/src/runtime/runtime.js';
import { LockTable } from './harness/lock-table.js';
import { OneNode } from './harness/one-node.js';
import { until } from './harness/redlock-nodes.js';
import { connect } from './harness/world.js';

const seed = Number(process.env.FENCED_SEED ?? Date.now() % 2 ** 31);
/** Calls in one tick: more than the 100 that one script carries, so there are several scripts. */
const CALLS_MAX = 260;
const TICKS_MAX = 3;
/** Distance between the tokens of two resources. A repeated request raises a token by 1 only. */
const TOKENS_APART = 1_000n;
const TTL_APART_MS = 10_000;

let service: LocalRedisService;
let admin: Redis;
beforeAll(async () => {
  service = await startLocalRedis(1);
  admin = connect(service.nodes[0]?.port ?? 0);
});
afterAll(async () => {
  admin?.disconnect();
  await service?.stop();
});

/** State of a call's resource. Only the reply to that call may report this state. */
type Kind = 'free' | 'held' | 'broken' | 'not held';
const kinds = fc.constantFrom<Kind>('free', 'free', 'held', 'broken', 'not held');

/** Disturbance of the connection while the calls are on their way. */
const disturbances = fc.constantFrom(
  'none',
  'script flush',
  'cut before',
  'cut after',
  'cut in the middle',
);

test(`replies never go to another caller: errors among them, several scripts, scripts forgotten, connections that drop half-way (FENCED_SEED=${seed})`, async () => {
  const plan = fc.record({
    ticks: fc.array(fc.array(kinds, { minLength: 1, maxLength: CALLS_MAX }), {
      minLength: 1,
      maxLength: TICKS_MAX,
    }),
    broken: fc.constantFrom('record', 'queue'),
    disturbance: disturbances,
  });
  const seen = new Set<string>();
  const property = fc.asyncProperty(plan, async ({ ticks, broken, disturbance }) => {
    await using door = await TcpProxy.start(service.nodes[0] ?? { host: '', port: 0 });
    const keyPrefix = `{${randomUUID()}}:`;
    await using stack = new AsyncDisposableStack();
    const client = stack.adopt(connect(door.port), (one) => one.disconnect());
    // Lets the node vote, under its only name, and know leases as long as those below.
    const nodes = [{ name: 'n', client: admin }];
    const maxTtlMs = TICKS_MAX * CALLS_MAX * TTL_APART_MS;
    const lock = new Redlock({ nodes, keyPrefix, firstToken: 1n, maxTtlMs });
    await (await lock.acquire('warm-up', { ttlMs: maxTtlMs })).release();
    const members = (await admin.hget(`${keyPrefix}node`, 'members')) ?? '';
    const node = new OneNode(client, keyPrefix, members);
    const calls = ticks.flatMap((tick, at) => tick.map((kind, place) => ({ kind, at, place })));
    const lockTable = new LockTable(admin, keyPrefix);
    const prepared = calls.map(async ({ kind }, index) => {
      const [resource, queue] = [`r${index}`, `${keyPrefix}queue:r${index}`];
      // A node looks for a wait queue only if it does not know the resource.
      if (kind === 'broken' && broken === 'queue') {
        await admin.set(queue, 'no queue');
        return;
      }
      await lockTable.setToken(resource, BigInt(index + 1) * TOKENS_APART);
      if (kind === 'held') await lockTable.take(resource, 'other', (index + 1) * TTL_APART_MS);
      if (kind === 'broken') await admin.hset(`${keyPrefix}node`, queue, 'no record');
    });
    await Promise.all(prepared);
    await until(() => client.status === 'ready');
    if (disturbance === 'script flush') await admin.script('FLUSH');
    if (disturbance === 'cut before') door.hold('toServer');
    if (disturbance.startsWith('cut') && disturbance !== 'cut before') door.hold('toClient');

    let next = 0;
    const replies: Promise<unknown>[] = [];
    for (const tick of ticks) {
      for (const kind of tick) {
        const holding = new Ownership([`r${next}`], `o${next}`, false);
        next += 1;
        replies.push(
          kind === 'not held' ? node.extend(holding, 1n, 1_000) : node.acquire(holding, 1_000),
        );
      }
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
    if (disturbance !== 'none' && disturbance !== 'script flush') {
      const direction = disturbance === 'cut before' ? 'toServer' : 'toClient';
      await door.untilHeld(direction);
      if (disturbance === 'cut in the middle') {
        door.release(direction);
        await Promise.race([...replies, sleep(20)]);
      }
      door.cut();
      door.heal();
    }
    for (const [index, promise] of replies.entries()) {
      const reply = (await promise) as { answer: string; error?: Error };
      const { kind } = calls[index] ?? {};
      seen.add(`${kind}: ${reply.answer}`);
      if (kind === 'broken') {
        expect(reply).toMatchObject({ answer: 'error' });
        expect(reply.error?.message).toMatch(
          broken === 'queue' ? /WRONGTYPE/ : /not a lock record: no record/,
        );
      } else if (kind === 'not held') {
        const { tokenBound } = reply as { tokenBound?: { number: string } };
        expect([reply.answer, BigInt(tokenBound?.number ?? 0)]).toEqual([
          'not-held',
          BigInt(index + 1) * TOKENS_APART,
        ]);
      } else if (kind === 'held') {
        const { remainingMs } = reply as unknown as { remainingMs: number };
        expect(Math.ceil(remainingMs / TTL_APART_MS)).toBe(index + 1);
      } else {
        expect(reply.answer).toBe('granted');
        const { token } = reply as unknown as { token: bigint };
        expect((token - 1n) / TOKENS_APART).toBe(BigInt(index + 1));
      }
    }
    await lock.close();
  });
  await fc.assert(property, { seed, numRuns: 40 });
  expect([...seen].toSorted()).toEqual([
    'broken: error',
    'free: granted',
    'held: held',
    'not held: not-held',
  ]);
});

test('an owner with half a surrogate pair is refused, and the calls of other callers in the same tick succeed', async () => {
  const keyPrefix = `{${randomUUID()}}:`;
  await using lock = new Redlock({ nodes: [{ name: 'n', client: admin }], keyPrefix });
  const held = { resource: 'x', owner: '\ud800', token: 1n };
  await expect(lock.extend(held, 1_000)).rejects.toThrow(LockArgumentError);
  await expect(lock.release(held)).rejects.toThrow(LockArgumentError);
  await (await lock.acquire('warm-up', { ttlMs: 1_000 })).release();
  const members = (await admin.hget(`${keyPrefix}node`, 'members')) ?? '';
  const node = new OneNode(admin, keyPrefix, members);
  const owners = ['innocent', held.owner];
  const replies = owners.map((owner) => node.acquire(new Ownership([owner], owner, false), 1_000));
  expect(await Promise.all(replies)).toMatchObject([{ answer: 'granted' }, { answer: 'granted' }]);
});

test('a malformed reply of a node is an error for the callers that wait for it, and crashes nothing', async () => {
  const deep = `[${'['.repeat(20_000)}${']'.repeat(20_000)}]`;
  const voter = '[["1","a","0:"]]';
  const broken: unknown[] = [
    '',
    '\n',
    '{}',
    'null',
    '[]',
    '[1]',
    '[["granted"]]',
    `\n${voter}`,
    deep,
    7,
    null,
  ];
  broken.push('[["error",{"toString":1,"valueOf":1}]]', '[["granted","1",1]]\n{}');
  broken.push(`[["granted","1",1]]\n${voter}x`, `[["granted","x",1]]\n${voter}`);
  broken.push(
    { toJSON: () => JSON.parse('') },
    ['x'],
    'granted',
    'granted x 1',
    'granted 1 1\n1 a',
  );
  broken.push('[["granted","1",1]]', `[["granted","1",2]]\n${voter}`);
  broken.push(`[{"like":["granted",1],"each":["1","2"]}]\n${voter}`, '[{"each":["1"]}]');
  broken.push(
    '[{"like":["granted",1,2],"each":[]}]',
    `[${'{"like":["granted"],"times":9},'.repeat(200)}1]`,
  );
  for (const times of ['-1', '1e9', '"x"', 'null', '{"valueOf":1,"toString":1}']) {
    broken.push(`[{"like":["granted","1",1],"times":${times}}]\n${voter}`);
  }
  for (const reply of broken) {
    const client = { evalsha: async () => reply, eval: async () => reply };
    const node = new OneNode(client, '{x}:', '');
    const answer = await node.acquire(new Ownership(['x'], 'o', false), 1_000);
    expect(answer, inspect(reply).slice(0, 60)).toMatchObject({ answer: 'error' });
  }
});

test('sets of resources as large as may be travel together', async () => {
  const nodes = [{ name: 'n', client: admin }];
  await using lock = new Redlock({ nodes, keyPrefix: `{${randomUUID()}}:` });
  const sets = Array.from({ length: 45 }, (_, set) =>
    Array.from({ length: 256 }, (_, at) => `${set}/${at}`),
  );
  const leases = await Promise.all(sets.map((set) => lock.acquire(set, { ttlMs: 30_000 })));
  expect(new Set(await Promise.all(leases.map((lease) => lease.release())))).toEqual(
    new Set(['released']),
  );
});

test('a runtime may be an object whose methods use `this`', async () => {
  class OwnRuntime implements Runtime {
    readonly #system = systemRuntime;
    nowMs = function (this: OwnRuntime): number {
      return this.#system.nowMs();
    };
    wallClockMs = (): number => this.#system.wallClockMs();
    random = (): number => this.#system.random();
    uniqueId = (): string => this.#system.uniqueId();
    soon = (callback: () => void): void => this.#system.soon(callback);
    after: Runtime['after'] = (...timer) => this.#system.after(...timer);
  }
  const nodes = [{ name: 'n', client: admin }];
  await using lock = new Redlock({ nodes, keyPrefix: `{${randomUUID()}}:` }, new OwnRuntime());
  expect(await (await lock.acquire('x', { ttlMs: 1_000 })).release()).toBe('released');
});

test('requests for a node that is down wait in bounded number, and are answered once they are given up', async () => {
  const client = connect(1);
  await until(() => client.status === 'reconnecting' || client.status === 'connecting');
  let aheadMs = 0;
  const runtime = { ...systemRuntime, nowMs: () => performance.now() + aheadMs };
  const node = new OneNode(client, '{x}:', '', runtime);
  let asked = 0;
  const ask = () => {
    asked += 1;
    return node.acquire(new Ownership(['x'], `o${asked}`, false), 60_000);
  };
  const waiting = Array.from({ length: 10_000 }, ask);
  expect(await ask()).toMatchObject({
    answer: 'error',
    error: { message: '10000 requests wait for this node already' },
  });
  aheadMs = 3_000;
  void ask();
  const answers = await Promise.all(waiting);
  expect(new Set(answers.map((reply) => reply.answer === 'error' && reply.error.message))).toEqual(
    new Set(['given up before it was sent']),
  );
  client.disconnect();
});
