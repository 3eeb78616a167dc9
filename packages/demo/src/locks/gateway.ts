import { LeaseError } from '@fenced/client';
import { gatewayAt } from '../gateway-client.js';
import type { Lock } from './lock.js';

/** `@fenced/lock` behind a gateway. */
export function gatewayLock(url: string): Lock {
  const gateway = gatewayAt(url);
  return {
    async tryAcquire(resource, ttlMs) {
      try {
        return { ok: true, lease: await gateway.acquire(resource, { ttlMs }) };
      } catch (error) {
        if (error instanceof LeaseError) return { ok: false, why: error.code ?? error.message };
        throw error;
      }
    },
  };
}
