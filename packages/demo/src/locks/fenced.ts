import type { Redlock } from '@fenced/lock';
import { type Lock, summarize } from './lock.js';

/** A lock service of `@fenced/lock`. */
export function fencedLock(service: Pick<Redlock, 'tryAcquire'>): Lock {
  return {
    async tryAcquire(resource, ttlMs) {
      const attempt = await service.tryAcquire(resource, { ttlMs });
      if (attempt.ok) return attempt;
      const isLate = attempt.reason === 'too-slow';
      return { ok: false, why: isLate ? 'the grants came too late' : summarize(attempt.nodes) };
    },
  };
}
