import { Redlock, type RedlockConfig } from '@fenced/lock';
import { type Lock, summarize } from './lock.js';

/** `Redlock` of `@fenced/lock`. */
export function fencedLock(config: RedlockConfig): Lock {
  const redlock = new Redlock(config);
  return {
    async tryAcquire(resource, ttlMs) {
      const attempt = await redlock.tryAcquire(resource, { ttlMs });
      if (attempt.ok) return attempt;
      const isLate = attempt.reason === 'too-slow';
      return { ok: false, why: isLate ? 'the grants came too late' : summarize(attempt.nodes) };
    },
  };
}
