import { FencedGateway } from '@fenced/client';
import type { AcquireOptions, RunLease, RunLock } from './run-lock.js';

/**
 * The longest wait of one request. A gateway refuses waits above its `limits.waitMsMax`, so further
 * requests continue a longer wait.
 */
const GATEWAY_WAIT_MS = 5_000;
/** Codes of failures after which a wait goes on. `FencedGateway` makes pauses between its tries. */
const PASSING: ReadonlySet<unknown> = new Set([
  ...['timeout', 'held', 'no-quorum', 'unavailable'],
  ...['overloaded', 'shutting-down', 'too-many-requests'],
]);
const GATEWAY_ANSWER_MS = 15_000;

/** The lock of a gateway. A long wait is split into several requests. */
export function gatewayLock(url: string): RunLock {
  const { FENCED_API_KEY } = process.env;
  const gateway = new FencedGateway({
    url,
    ...(FENCED_API_KEY && { key: FENCED_API_KEY }),
    fetch: (target, init = {}) => {
      const limit = AbortSignal.timeout(GATEWAY_ANSWER_MS);
      const signal = init.signal ? AbortSignal.any([init.signal, limit]) : limit;
      return fetch(target, { ...init, signal });
    },
  });
  const acquire = async (resource: string, options: AcquireOptions): Promise<RunLease> => {
    const { waitMs, ...rest } = options;
    const endMs = performance.now() + waitMs;
    for (;;) {
      const leftMs = Math.max(0, Math.round(endMs - performance.now()));
      try {
        const wait = { waitMs: Math.min(leftMs, GATEWAY_WAIT_MS) };
        return await gateway.acquire(resource, { ...rest, ...wait });
      } catch (error) {
        if (leftMs === 0 || options.signal.aborted || !PASSING.has(Object(error).code)) throw error;
      }
    }
  };
  return { acquire };
}
