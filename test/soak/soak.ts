import { randomUUID } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { startRedis } from '@fenced/testbed';
import { Redis } from 'ioredis';
import { figure, heapBytesNow, nodesCpuMs, sum } from './figures.ts';
import { growthIn, type Sample } from './growth.ts';
import { Load, type LoadOptions } from './load.ts';

export interface SoakOptions extends Omit<LoadOptions, 'ports' | 'keyPrefix'> {
  readonly durationMs: number;
  readonly samples: number;
}

export interface SoakReport {
  readonly samples: readonly Sample[];
  readonly acquired: number;
  /** Leases that were lost, and acquisitions that failed. */
  readonly failed: number;
  /** Processor time of the client's process, and of all nodes. */
  readonly cpuMs: number;
  /** A sentence for each figure that grew. */
  readonly growth: readonly string[];
}

/** Runs the load on three nodes, and measures. @throws the first error of the load */
export async function soak(
  options: SoakOptions,
  onSample: (sample: Sample) => void = () => {},
): Promise<SoakReport> {
  await using parts = new AsyncDisposableStack();
  const redis = parts.use(await startRedis(3));
  const admins = redis.nodes.map(({ port }) => new Redis(port));
  for (const admin of admins) parts.defer(() => admin.disconnect());
  const cpu = process.cpuUsage();
  const keyPrefix = `{${randomUUID()}}:`;
  const ports = redis.nodes.map(({ port }) => port);
  const samples: Sample[] = [];
  let counts = { acquired: 0, failed: 0 };
  {
    await using load = new Load({ ...options, ports, keyPrefix });
    const startedMs = performance.now();
    while (samples.length < options.samples) {
      const dueMs = startedMs + ((samples.length + 1) * options.durationMs) / options.samples;
      await sleep(Math.max(0, dueMs - performance.now()));
      const sample = await measure(admins, keyPrefix, load, performance.now() - startedMs);
      samples.push(sample);
      onSample(sample);
    }
    counts = { acquired: load.acquired, failed: load.failed };
  }
  const { user, system } = process.cpuUsage(cpu);
  const cpuMs = (user + system) / 1_000 + sum(await nodesCpuMs(admins));
  return { samples, ...counts, cpuMs, growth: growthIn(samples) };
}

async function measure(
  admins: readonly Redis[],
  keyPrefix: string,
  { runtime }: Load,
  atMs: number,
): Promise<Sample> {
  const nodes = await Promise.all(
    admins.map(async (admin) => ({
      bytes: await figure(admin, 'memory', 'used_memory'),
      keys: await admin.dbsize(),
      names: (await admin.hlen(`${keyPrefix}node`)) + (await admin.hlen(`${keyPrefix}node-before`)),
      connections: await figure(admin, 'clients', 'connected_clients'),
    })),
  );
  const descriptors = await readdir('/proc/self/fd').then(
    ({ length }) => length,
    () => 0,
  );
  return {
    atMs,
    heapBytes: heapBytesNow(),
    residentBytes: process.memoryUsage.rss(),
    descriptors,
    timers: runtime.timers,
    nodeBytes: Math.max(...nodes.map(({ bytes }) => bytes)),
    keys: sum(nodes.map(({ keys }) => keys)),
    names: sum(nodes.map(({ names }) => names)),
    connections: sum(nodes.map(({ connections }) => connections)),
  };
}
