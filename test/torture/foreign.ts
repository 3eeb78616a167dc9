import type { Redis } from 'ioredis';
import { type Acquire, TTL_MS } from './held.ts';

/** A lock that was taken by a library which issues no tokens. */
interface Taken {
  /** The random text that the library stores on the nodes, in hexadecimal digits. */
  readonly value: string;
  release(): Promise<unknown>;
}

/** @param isPatient true to retry as the library's documentation shows, false to try once */
type Take = (resource: string, isPatient: boolean) => Promise<Taken>;

/** The settings in the READMEs of three of the libraries. With `retryCount: 0`, they try once. */
const DOCUMENTED = { driftFactor: 0.01, retryCount: 10, retryDelay: 200, retryJitter: 200 };
const once = (isPatient: boolean) => (isPatient ? {} : { retryCount: 0 });

const LIBRARIES: Readonly<Record<string, (clients: readonly Redis[]) => Promise<Take>>> = {
  async redlock4(clients) {
    const { default: Redlock } = await import('redlock-4');
    const redlock = new Redlock(clients, DOCUMENTED);
    redlock.on('clientError', () => {});
    return async (resource, isPatient) => {
      const lock = await redlock.lockWithOptions(resource, TTL_MS, once(isPatient));
      return { value: lock.value, release: () => lock.unlock() };
    };
  },
  async redlock5(clients) {
    const { default: Redlock } = await import('redlock-5');
    const redlock = new Redlock(clients, DOCUMENTED);
    redlock.on('error', () => {});
    return (resource, isPatient) => redlock.acquire([resource], TTL_MS, once(isPatient));
  },
  async sesamecare(clients) {
    const { Redlock } = await import('@sesamecare-oss/redlock');
    const redlock = new Redlock(clients, DOCUMENTED);
    redlock.on('error', () => {});
    return (resource, isPatient) => redlock.acquire([resource], TTL_MS, once(isPatient));
  },
  async 'redis-semaphore'(clients) {
    const { RedlockMutex } = await import('redis-semaphore');
    return async (resource, isPatient) => {
      const mutex = new RedlockMutex([...clients], resource, {
        lockTimeout: TTL_MS,
        // Does not extend the lease, because the other libraries do not either.
        refreshInterval: 0,
        ...(!isPatient && { acquireAttemptsLimit: 1 }),
      });
      await mutex.acquire();
      return { value: mutex.identifier, release: () => mutex.release() };
    };
  },
  async 'redlock-universal'(clients) {
    const { createRedlock, IoredisAdapter } = await import('redlock-universal');
    const adapters = clients.map((client) => new IoredisAdapter(client));
    return async (resource, isPatient) => {
      const tries = isPatient ? {} : { retryAttempts: 0 };
      const lock = createRedlock({ adapters, key: resource, ttl: TTL_MS, ...tries });
      const handle = await lock.acquire();
      return { value: handle.value, release: () => lock.release(handle) };
    };
  },
};

/** Returns a token for a lock that was taken. */
type NewToken = (lock: Taken, clients: readonly Redis[], counter: string) => Promise<bigint>;

/** The ways in which users of these libraries make tokens themselves. */
const TOKENS: Readonly<Record<string, NewToken>> = {
  /** A counter on the first node. */
  async incr(_, [first], counter) {
    if (!first) throw new Error('the counter needs a node');
    return BigInt(await first.incr(counter));
  },
  /** A counter on every node. The token is the highest of those that answer. */
  async 'highest-incr'(_, clients, counter) {
    const answers = await Promise.allSettled(clients.map((client) => client.incr(counter)));
    const counts = answers.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
    if (counts.length <= clients.length / 2) throw new Error('too few counters answered');
    return BigInt(Math.max(...counts));
  },
  async timestamp() {
    return BigInt(Date.now());
  },
  /** The first 60 bits of the lock's random value. */
  async 'lock-value'({ value }) {
    return BigInt(`0x${value.replaceAll('-', '').slice(0, 15)}`);
  },
};

export const LIBRARY_NAMES: readonly string[] = Object.keys(LIBRARIES);
export const TOKEN_NAMES: readonly string[] = Object.keys(TOKENS);

/** All pairs of a library and a kind of tokens, such as `redlock5+incr`. */
export const FOREIGN_SUBJECTS: readonly string[] = LIBRARY_NAMES.flatMap((library) =>
  TOKEN_NAMES.map((tokens) => `${library}+${tokens}`),
);

/** Opens a lock of another library. It takes one resource. */
export async function openForeign(subject: string, clients: readonly Redis[]): Promise<Acquire> {
  const [library = '', tokens = ''] = subject.split('+');
  const take = await LIBRARIES[library]?.(clients);
  const newToken = TOKENS[tokens];
  if (!take || !newToken) throw new Error(`there is no lock ${subject}`);
  return async ([resource = ''], waitMs) => {
    const lock = await take(resource, waitMs > 0);
    return {
      token: await newToken(lock, clients, `counter ${resource}`),
      release: async () => void (await lock.release()),
    };
  };
}
