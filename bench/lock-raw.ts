import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import type { Acquire, LockSettings } from './lock-subject.ts';

const IF_OWNER = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`;

/** The least Redlock over ioredis: no token, no deadline, no time limit. A majority decides. */
export async function openRaw(clients: readonly Redis[], settings: LockSettings): Promise<Acquire> {
  const loaded = await Promise.all(clients.map((client) => client.script('LOAD', IF_OWNER)));
  const sha1 = String(loaded[0]);
  return async (resource) => {
    const owner = newOwner();
    const release = (): Promise<boolean> =>
      majority(clients, async (client) => (await client.evalsha(sha1, 1, resource, owner)) === 1);
    const { ttlMs, retryDelayMs } = settings;
    for (;;) {
      const isHeld = await majority(
        clients,
        async (client) => (await client.set(resource, owner, 'PX', ttlMs, 'NX')) === 'OK',
      );
      if (isHeld) return release;
      await release();
      await sleep(retryDelayMs * (0.5 + Math.random()));
    }
  };
}

export function newOwner(): string {
  return randomBytes(20).toString('hex');
}

/** Resolves to the answer of a majority as soon as it is known. A failure counts as no. */
export function majority(
  clients: readonly Redis[],
  ask: (client: Redis) => Promise<boolean>,
): Promise<boolean> {
  return new Promise((resolve) => {
    const quorum = Math.floor(clients.length / 2) + 1;
    let yes = 0;
    let no = 0;
    const count = (vote: boolean): void => {
      if (vote) yes += 1;
      else no += 1;
      if (yes === quorum) resolve(true);
      else if (no > clients.length - quorum) resolve(false);
    };
    for (const client of clients) {
      ask(client).then(count, () => count(false));
    }
  });
}
