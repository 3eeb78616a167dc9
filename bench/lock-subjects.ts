import type { NodeConfig } from '@fenced/lock';
import type { Redis } from 'ioredis';
import { openRaw, openRawNodeRedis } from './lock-raw.ts';
import { openSocket } from './lock-socket.ts';
import type { Acquire, LockSettings, LockSubject } from './lock-subject.ts';
import { openTokens, openTokensSocket } from './lock-tokens.ts';
import manifest from './package.json' with { type: 'json' };

export const OURS = '@fenced/lock';
export const RAW = 'raw ioredis, quorum';
export const FLOOR = 'raw socket';

/** Longer than any bench waits. */
const WAIT_MAX_MS = 600_000;
const RETRIES_MAX = 1_000_000;

/**
 * The locks to compare. Only the process that measures a library loads it. A peer gets settings
 * that make it faster than its defaults. For example, no keep-alive runs.
 */
export const lockSubjects: readonly LockSubject[] = [
  { name: FLOOR, kind: 'floor', open: openSocket },
  { name: RAW, kind: 'raw', open: openRaw },
  { name: 'tokens over a raw socket', kind: 'floor', open: openTokensSocket },
  { name: 'tokens over raw ioredis', kind: 'floor', open: openTokens },
  {
    name: OURS,
    kind: 'ours',
    open: (clients, { ttlMs }) => openOurs(clients, ttlMs),
  },
  {
    name: `redlock ${versionOf('redlock-4')}`,
    kind: 'peer',
    open: async (clients, settings) => {
      const { default: Redlock4 } = await import('redlock-4');
      const redlock = new Redlock4(clients, retries(settings));
      redlock.on('clientError', () => {});
      return async (resource) => {
        const lock = await redlock.lock(resource, settings.ttlMs);
        return () => lock.unlock();
      };
    },
  },
  {
    name: `redlock ${versionOf('redlock-5')}`,
    kind: 'peer',
    open: async (clients, settings) => {
      const { default: Redlock5 } = await import('redlock-5');
      const redlock = new Redlock5(clients, retries(settings));
      redlock.on('error', () => {});
      return async (resource) => {
        const lock = await redlock.acquire([resource], settings.ttlMs);
        return () => lock.release();
      };
    },
  },
  {
    name: `@sesamecare-oss/redlock ${versionOf('@sesamecare-oss/redlock')}`,
    kind: 'peer',
    open: async (clients, settings) => {
      const { Redlock: Sesame } = await import('@sesamecare-oss/redlock');
      const redlock = new Sesame(clients, retries(settings));
      redlock.on('error', () => {});
      return async (resource) => {
        const lock = await redlock.acquire([resource], settings.ttlMs);
        return () => lock.release();
      };
    },
  },
  {
    name: `redis-semaphore ${versionOf('redis-semaphore')}`,
    kind: 'peer',
    open: async (clients, { ttlMs, retryDelayMs }) => {
      const { RedlockMutex } = await import('redis-semaphore');
      const options = {
        lockTimeout: ttlMs,
        acquireTimeout: WAIT_MAX_MS,
        retryInterval: retryDelayMs,
        refreshInterval: 0,
      };
      return async (resource) => {
        const mutex = new RedlockMutex([...clients], resource, options);
        await mutex.acquire();
        return () => mutex.release();
      };
    },
  },
  {
    name: `redlock-universal ${versionOf('redlock-universal')}`,
    kind: 'peer',
    open: async (clients, { ttlMs, retryDelayMs }) => {
      const { createRedlock, IoredisAdapter } = await import('redlock-universal');
      const options = {
        adapters: clients.map((client) => new IoredisAdapter(client)),
        ttl: ttlMs,
        retryAttempts: RETRIES_MAX,
        retryDelay: retryDelayMs,
      };
      return async (resource) => {
        const lock = createRedlock({ ...options, key: resource });
        const handle = await lock.acquire();
        return () => lock.release(handle);
      };
    },
  },
];

const NODE_REDIS = `node-redis ${manifest.dependencies.redis}`;

/**
 * The raw lock over node-redis. Only the sequential bench runs it, because the choice of the Redis
 * client matters most there.
 */
export const rawNodeRedis: LockSubject = {
  name: `raw ${NODE_REDIS}, quorum`,
  kind: 'raw',
  open: async (clients, settings) => openRawNodeRedis(await nodeRedisOf(clients), settings),
};
export const overNodeRedis: LockSubject = {
  name: `${OURS} over ${NODE_REDIS}`,
  kind: 'ours',
  open: async (clients, { ttlMs }) => openOurs(await nodeRedisOf(clients), ttlMs),
};

async function nodeRedisOf(clients: readonly Redis[]) {
  const { createClient } = await import('redis');
  const opened = clients.map(async ({ options: { host, port } }) => {
    const client = createClient({ socket: { host: host ?? 'localhost', port: port ?? 6379 } });
    client.on('error', () => {});
    return client.connect();
  });
  return Promise.all(opened);
}

async function openOurs(nodes: readonly NodeConfig[], ttlMs: number): Promise<Acquire> {
  const { Redlock } = await import('@fenced/lock');
  const redlock = new Redlock({ nodes });
  return async (resource) => {
    const lease = await redlock.acquire(resource, { ttlMs, waitMs: WAIT_MAX_MS });
    return () => lease.release();
  };
}

export function subjectNamed(name: string): LockSubject {
  const subject = [...lockSubjects, rawNodeRedis, overNodeRedis].find((one) => one.name === name);
  if (subject === undefined) throw new Error(`no such lock: ${name}`);
  return subject;
}

function retries({ retryDelayMs }: LockSettings) {
  return { retryCount: RETRIES_MAX, retryDelay: retryDelayMs, retryJitter: retryDelayMs / 2 };
}

/** Returns `4.2.0`, also for `npm:redlock@4.2.0`. */
function versionOf(name: keyof typeof manifest.devDependencies): string {
  return manifest.devDependencies[name].replace(/^.*@/, '');
}
