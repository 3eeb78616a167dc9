// Uses locks in every way while connections to their nodes are lost. At each moment of each script
// command, and of each step of a subscription, all connections break or all fall silent. Every call
// must end with an outcome. The program prints the moments that were reached. Other output, or an
// unhandled rejection, is a failure.
import { writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redlock } from '@fenced/lock';
import { TcpProxy } from '@fenced/testbed';
import { Redis } from 'ioredis';
import { LockTable } from './lock-table.ts';

const { ports } = JSON.parse(process.argv[2] ?? '') as { ports: readonly number[] };

const TTL_MS = 400;
/** Plays that run at the same time. More would load the nodes so much that votes come too late. */
const AT_ONCE = 12;
const COMMANDS = [
  'inspect',
  'promise',
  'admit',
  'acquire',
  'confirm',
  'extend',
  'release',
  'status',
];
const STEPS = [...COMMANDS, 'connect', 'duplicate', 'subscribe', 'message'];
const MOMENTS = ['before', 'on its way', 'after'] as const;
const WAYS = ['break', 'fall silent'] as const;

type Reach = (step: string, moment: (typeof MOMENTS)[number]) => void;

/** Returns a client that calls `reach` before, during and after each of its steps. */
function watched(port: number, reach: Reach): Redis {
  const client = new Redis(port, { retryStrategy: () => 10, maxRetriesPerRequest: 2 });
  client.on('error', () => {});
  return instrumented(client, reach);
}

/** The client itself. Its duplicates are subscriptions, or replace its connection. */
function instrumented(client: Redis, reach: Reach): Redis {
  const evalsha = client.evalsha.bind(client);
  client.evalsha = async (...values: unknown[]): Promise<unknown> => {
    const steps = commandsIn(values.map(String));
    for (const step of steps) reach(step, 'before');
    const reply: Promise<unknown> = Reflect.apply(evalsha, client, values);
    for (const step of steps) reach(step, 'on its way');
    try {
      return await reply;
    } finally {
      for (const step of steps) reach(step, 'after');
    }
  };
  const duplicate = client.duplicate.bind(client);
  client.duplicate = (override) => {
    reach('duplicate', 'before');
    const listener = instrumented(duplicate(override), reach);
    reach('duplicate', 'on its way');
    listener.on('ready', () => reach('duplicate', 'after'));
    listener.on('message', () => {
      reach('message', 'before');
      setImmediate(() => reach('message', 'after'));
    });
    const subscribe = listener.subscribe.bind(listener);
    listener.subscribe = async (...values: unknown[]): Promise<unknown> => {
      reach('subscribe', 'before');
      const done: Promise<unknown> = Reflect.apply(subscribe, listener, values);
      reach('subscribe', 'on its way');
      try {
        return await done;
      } finally {
        reach('subscribe', 'after');
      }
    };
    return listener;
  };
  return client;
}

/** Returns the commands of a script. A single one is sent by its name, several as JSON. */
function commandsIn([, keyCount, ...values]: string[]): ReadonlySet<string> {
  const [, first = ''] = values.slice(Number(keyCount));
  const calls: [command: string][] = first.startsWith('[') ? JSON.parse(first) : [[first]];
  return new Set(calls.map(([command]) => command));
}

/** Uses locks as programs do. Every call may fail, because connections are lost. */
async function useLocks(
  one: Redlock,
  two: Redlock,
  makeAhead: () => Promise<unknown>,
): Promise<void> {
  const ttlMs = TTL_MS;
  const hold = async (): Promise<void> => {
    await using lease = await one.acquire('x', { ttlMs, waitMs: 2_000 });
    const waiting = two.acquire('x', { ttlMs, waitMs: 2_000 }).then((next) => next.release());
    await Promise.allSettled([lease.extend(ttlMs), one.status(), sleep(150)]);
    await Promise.allSettled([lease.release(), waiting]);
  };
  const using = one.using('y', { ttlMs: 40, waitMs: 2_000 }, () => sleep(60));
  await Promise.allSettled([hold(), using]);
  await makeAhead();
  await Promise.allSettled([one.tryAcquire('ahead', { ttlMs }), two.readmit()]);
}

const reached = new Map<string, number>();

/** Runs `useLocks` once, on new connections. They are lost when the moment is reached. */
async function play(
  step: string,
  moment: (typeof MOMENTS)[number],
  way: (typeof WAYS)[number],
): Promise<void> {
  const proxies = await Promise.all(
    ports.map((port) => TcpProxy.start({ host: '127.0.0.1', port })),
  );
  let areLost = false;
  const loseAll = (): void => {
    areLost = true;
    for (const proxy of proxies) {
      if (way === 'break') proxy.shut();
      else for (const direction of ['toServer', 'toClient'] as const) proxy.hold(direction);
    }
    void sleep(60).then(() => {
      for (const proxy of proxies) proxy.heal();
    });
  };
  const reach: Reach = (now, when) => {
    if (now !== step || when !== moment || areLost) return;
    const name = `${step} ${moment}`;
    reached.set(name, (reached.get(name) ?? 0) + 1);
    loseAll();
  };
  const keyPrefix = `{${process.pid} ${step} ${moment} ${way}}:`;
  const clients: Redis[] = [];
  const open = (): Redlock => {
    const own = proxies.map(({ port }) => watched(port, reach));
    clients.push(...own);
    const nodes = own.map((client, at) => ({ name: `n${at}`, client }));
    return new Redlock({ nodes, keyPrefix, maxTtlMs: TTL_MS });
  };
  const [one, two] = [open(), open()];
  reach('connect', 'before');
  // Gives each node another highest token. So the grants differ, and a confirmation is needed,
  // whichever nodes answer first.
  const makeAhead = async (): Promise<void> => {
    for (const [at, admin] of admins.entries()) {
      const max = (await admin.hget(`${keyPrefix}node`, 'max')) ?? '1';
      await new LockTable(admin, keyPrefix).setToken('ahead', BigInt(max) + 7n * BigInt(at + 1));
    }
  };
  await useLocks(one, two, makeAhead);
  await Promise.all([one.close(), two.close()]);
  for (const client of clients) client.disconnect();
  for (const proxy of proxies) await proxy.stop();
}

const admins = ports.map((port) => new Redis(port));
const plays = STEPS.flatMap((step) =>
  MOMENTS.slice(0, step === 'connect' ? 1 : MOMENTS.length).flatMap((moment) =>
    WAYS.map((way) => () => play(step, moment, way)),
  ),
);
while (plays.length > 0) await Promise.all(plays.splice(0, AT_ONCE).map((run) => run()));
for (const admin of admins) admin.disconnect();
// Waits for work in the background, which may still fail.
await sleep(300);
writeSync(1, `${JSON.stringify([...reached.keys()].toSorted())}\n`);
// Ends the process, because a socket whose other end fell silent may keep it alive.
process.exit(0);
