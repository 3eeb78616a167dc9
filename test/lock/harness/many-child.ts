import { Session } from 'node:inspector/promises';
import { setTimeout } from 'node:timers/promises';
import { Redis } from 'ioredis';

/**
 * Prints how often the busiest piece of the library's code runs for some short leases: first alone,
 * then while this process holds many long leases.
 */
const { ports, keyPrefix, held } = JSON.parse(process.argv[2] ?? '');
const CYCLES = 100;

const session = new Session();
session.connect();
await session.post('Profiler.enable');
// Starts before the library is compiled. Otherwise coverage counts functions as a whole, without
// their loops.
await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
const { Redlock } = await import('@fenced/lock');

/** The highest count of any piece of code since the last call. */
async function runsOfBusiest(): Promise<number> {
  const { result } = await session.post('Profiler.takePreciseCoverage');
  const pieces = result
    .filter(({ url }) => url.includes('/packages/lock/'))
    .flatMap(({ functions }) => functions.flatMap(({ ranges }) => ranges));
  return Math.max(0, ...pieces.map(({ count }) => count));
}

/** Waits until no code of the library runs by itself any more. */
async function untilQuiet(): Promise<void> {
  do await setTimeout(100);
  while ((await runsOfBusiest()) > 0);
}

const clients = ports.map((port: number) => new Redis(port));
const nodes = clients.map((client: Redis, at: number) => ({ name: `node-${at}`, client }));
const redlock = new Redlock({ nodes, keyPrefix, maxTtlMs: 600_000 });

async function runsOfShortLeases(): Promise<number> {
  for (let warmUps = 0; warmUps < CYCLES; warmUps += 1) {
    await (await redlock.acquire('short', { ttlMs: 5_000, waitMs: 5_000 })).release();
  }
  await untilQuiet();
  for (let cycles = 0; cycles < CYCLES; cycles += 1) {
    await (await redlock.acquire('short', { ttlMs: 5_000, waitMs: 5_000 })).release();
  }
  return runsOfBusiest();
}

const alone = await runsOfShortLeases();
const leases: unknown[] = [];
while (leases.length < held) {
  const names = Array.from({ length: 100 }, (_, at) => `long ${leases.length + at}`);
  const options = { ttlMs: 600_000, waitMs: 5_000 };
  leases.push(...(await Promise.all(names.map((name) => redlock.acquire(name, options)))));
}
const besideMany = await runsOfShortLeases();
process.stdout.write(JSON.stringify({ alone, besideMany, held: leases.length }));
// Does not release the leases, because the test stops their nodes.
process.exit();
