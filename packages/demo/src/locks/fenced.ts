import { Redlock, type RedlockConfig } from '@fenced/lock';
import { type Lock, summarize } from './lock.js';

const WAIT_MS = 30_000;

/** What this project is about. */
export function fencedLock(config: RedlockConfig): Lock {
  const redlock = new Redlock(config);
  return {
    async tryAcquire(resource, ttlMs) {
      const attempt = await redlock.tryAcquire(resource, { ttlMs });
      if (attempt.ok) return attempt;
      const isLate = attempt.reason === 'too-slow';
      return { ok: false, why: isLate ? 'the grants came too late' : summarize(attempt.nodes) };
    },
    acquire: (resource, ttlMs) => redlock.acquire(resource, { ttlMs, waitMs: WAIT_MS }),
  };
}
