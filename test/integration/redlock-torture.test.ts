import { randomUUID } from 'node:crypto';
import { setTimeout } from 'node:timers/promises';
import { type RedisNode, startRedis, WorkerProcess } from '@fenced/testbed';
import { Redis } from 'ioredis';
import { expect, test } from 'vitest';

interface Acquisition {
  readonly askedMs: number;
  readonly heldMs: number;
  readonly token: bigint;
}

const MAX_TTL_MS = 400;
const CLIENTS = 4;
const ROUNDS = Number(process.env.FENCED_ROUNDS ?? 16);
const seed = Number(process.env.FENCED_SEED ?? 20_261_121);

test(`tokens grow while nodes are killed, wiped, rolled back, flushed and stopped (seed ${seed})`, async () => {
  const random = generator(seed);
  await using service = await startRedis(5);
  const keyPrefix = `{${randomUUID()}}:`;
  const nodes = service.nodes.map(({ name, port }) => ({ name, port }));
  const admins = service.nodes.map(({ port }) => {
    const client = new Redis(port, { retryStrategy: () => 20 });
    client.on('error', () => {});
    return client;
  });
  const admitted = async (at: number): Promise<boolean> =>
    (await admins[at]?.hget(`${keyPrefix}node`, 'run_id').catch(() => null)) ===
    (await runId(admins[at]));

  const faults: Record<string, (node: RedisNode, admin: Redis) => Promise<unknown>> = {
    'kill -9, back without data': async (node, admin) => {
      // Whatever was saved before is overwritten by nothing.
      await admin.flushall();
      await admin.save();
      await restart(node);
    },
    'kill -9, back with an older snapshot': async (node, admin) => {
      await admin.save();
      await setTimeout(200);
      await restart(node);
    },
    FLUSHALL: (_, admin) => admin.flushall(),
    'SIGSTOP for longer than a lease': async (node) => {
      await node.pause();
      await setTimeout(MAX_TTL_MS * 2);
      await node.wake();
    },
  };

  const acquisitions: Acquisition[] = [];
  await using workers = new AsyncDisposableStack();
  const clients = await Promise.all(
    Array.from({ length: CLIENTS }, () =>
      WorkerProcess.start(new URL('./acquirer.ts', import.meta.url), {
        args: [JSON.stringify({ nodes, keyPrefix, maxTtlMs: MAX_TTL_MS })],
        onLine: (line) => {
          const { askedMs, heldMs, token } = JSON.parse(line);
          acquisitions.push({ askedMs, heldMs, token: BigInt(token) });
        },
      }),
    ),
  );
  for (const client of clients) workers.use(client);
  await until(() => acquisitions.length > 20);

  const story: string[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    // Two of five may be without memory at once: a majority keeps its own.
    const places = shuffled([0, 1, 2, 3, 4], random).slice(0, 1 + Math.floor(random() * 2));
    await Promise.all(
      places.map(async (place) => {
        const [name, fault] = pick(Object.entries(faults), random);
        story.push(`${name} on ${nodes[place]?.name}`);
        const [node, admin] = [service.nodes[place], admins[place]];
        if (node && admin) await fault(node, admin);
      }),
    );
    const client = pick(clients, random);
    if (random() < 0.5) {
      story.push('a client stopped');
      await client.pause();
      await setTimeout(MAX_TTL_MS * 1.5);
      await client.wake();
    }
    const before = acquisitions.length;
    await until(() => acquisitions.length > before + 5);
    // Nobody helps: the nodes come back by themselves.
    for (const place of places) await until(() => admitted(place));
  }
  await workers.disposeAsync();
  for (const admin of admins) admin.disconnect();

  expect(acquisitions.length).toBeGreaterThan(ROUNDS * 5);
  expect(firstDisorder(acquisitions), story.join('\n')).toBeNull();
  expect(new Set(acquisitions.map(({ token }) => token)).size).toBe(acquisitions.length);
}, 240_000);

/** Two acquisitions of which the first was over before the second was asked for, with tokens that do not grow. */
function firstDisorder(acquisitions: readonly Acquisition[]): [Acquisition, Acquisition] | null {
  const byAsked = acquisitions.toSorted((a, b) => a.askedMs - b.askedMs);
  const byHeld = acquisitions.toSorted((a, b) => a.heldMs - b.heldMs);
  let highest: Acquisition | undefined;
  let at = 0;
  for (const later of byAsked) {
    for (; (byHeld[at]?.heldMs ?? Number.POSITIVE_INFINITY) < later.askedMs; at += 1) {
      const earlier = byHeld[at];
      if (earlier && (!highest || earlier.token > highest.token)) highest = earlier;
    }
    if (highest && later.token <= highest.token) return [highest, later];
  }
  return null;
}

async function restart(node: RedisNode): Promise<void> {
  await node.kill();
  await node.start();
}

async function runId(admin: Redis | undefined): Promise<string> {
  const server = (await admin?.info('server')) ?? '';
  const replication = (await admin?.info('replication')) ?? '';
  return `${/run_id:(\w+)/.exec(server)?.[1]}:${/master_replid:(\w+)/.exec(replication)?.[1]}`;
}

async function until(condition: () => Promise<boolean> | boolean): Promise<void> {
  while (!(await condition())) await setTimeout(10);
}

function pick<T>(from: readonly T[], random: () => number): T {
  return from[Math.floor(random() * from.length)] as T;
}

function shuffled<T>(from: readonly T[], random: () => number): T[] {
  return from
    .map((value) => ({ value, key: random() }))
    .sort((a, b) => a.key - b.key)
    .map(({ value }) => value);
}

/** Mulberry32: the same faults for the same seed. */
function generator(state: number): () => number {
  let a = state;
  return () => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
}
