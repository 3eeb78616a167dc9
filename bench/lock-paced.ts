import { setTimeout as sleep } from 'node:timers/promises';
import { startRedis } from '@fenced/testbed';
import { Redis } from 'ioredis';
import { named, rowsOf } from './lock-results.ts';
import type { Acquire } from './lock-subject.ts';
import { lockSubjects, RAW } from './lock-subjects.ts';
import { type BenchOptions, inTurn, measure, type Round, type Row, sum } from './measure.ts';

const BENCH = 'lock-paced';
const SETTINGS = { ttlMs: 10_000, retryDelayMs: 10 };
const EVERY_MS = 4;
const CYCLES = 25;
const ROUNDS = 40;
/** Until then, V8 goes on compiling. */
const WARM_UP_ROUNDS = 160;

interface Paced extends Round {
  readonly ownCpuMs: number;
  readonly nodesCpuMs: number;
}

interface Opened {
  readonly name: string;
  readonly clients: readonly Redis[];
  readonly acquire: Acquire;
}

/**
 * How long does a free lock take in a service that takes few of them? One acquire and release every
 * 4 ms, all libraries in turns in one process. So the processor's caches hold the code of others.
 * The first cycles have a column of their own: V8 has compiled little of each library by then.
 */
export async function benchPaced({ isQuick }: BenchOptions): Promise<Row[]> {
  await using redis = await startRedis(5);
  const ports = redis.nodes.map(({ port }) => port);
  using parts = new DisposableStack();
  const admins = connect(ports, parts);
  const opened: Opened[] = [];
  for (const { name, kind, open } of lockSubjects) {
    if (kind === 'floor') continue;
    const clients = connect(ports, parts);
    await Promise.all(clients.map((client) => client.ping()));
    opened.push({ name, clients, acquire: await open(clients, SETTINGS) });
  }
  const run = (one: Opened): Promise<Paced> => paced(one, admins);
  await inTurn(opened, 1, run);
  const rounds = isQuick ? 1 : ROUNDS;
  const first = await inTurn(opened, rounds, run);
  await inTurn(opened, isQuick ? 0 : WARM_UP_ROUNDS, run);
  const later = await inTurn(opened, rounds, run);
  const all = later.map(([{ name }, its], at) => {
    const firstP50Ms = measure(name, first[at]?.[1] ?? []).total.p50Ms;
    return measure(name, its, (some) => ({ ...cpuOfEach(some), firstP50Ms }));
  });
  return rowsOf(BENCH, all, named(all, RAW), 'p50Ms');
}

function connect(ports: readonly number[], parts: DisposableStack): readonly Redis[] {
  return ports.map((port) => parts.adopt(new Redis(port), (client) => client.disconnect()));
}

async function paced({ name, acquire }: Opened, admins: readonly Redis[]): Promise<Paced> {
  const durationsMs: number[] = [];
  const nodesBeforeMs = await cpuOfNodesMs(admins);
  const own = process.cpuUsage();
  const startedMs = performance.now();
  for (let cycle = 1; cycle <= CYCLES; cycle += 1) {
    const beginMs = performance.now();
    const release = await acquire(`paced/${name}`);
    await release();
    durationsMs.push(performance.now() - beginMs);
    await sleep(Math.max(0, startedMs + cycle * EVERY_MS - performance.now()));
  }
  const elapsedMs = performance.now() - startedMs;
  const { user, system } = process.cpuUsage(own);
  const nodesCpuMs = (await cpuOfNodesMs(admins)) - nodesBeforeMs;
  return { durationsMs, elapsedMs, ownCpuMs: (user + system) / 1_000, nodesCpuMs };
}

/** Returns the CPU time of all nodes. */
async function cpuOfNodesMs(admins: readonly Redis[]): Promise<number> {
  const infos = await Promise.all(admins.map((admin) => admin.info('cpu')));
  return sum(
    infos.flatMap((info) =>
      [...info.matchAll(/^used_cpu_(?:sys|user):([\d.]+)/gm)].map(
        ([, seconds]) => Number(seconds) * 1_000,
      ),
    ),
  );
}

function cpuOfEach(rounds: readonly Paced[]) {
  const cycles = sum(rounds.map(({ durationsMs }) => durationsMs.length));
  return {
    cpuMs: sum(rounds.map(({ ownCpuMs }) => ownCpuMs)) / cycles,
    nodesCpuMs: sum(rounds.map(({ nodesCpuMs }) => nodesCpuMs)) / cycles,
  };
}
