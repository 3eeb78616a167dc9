import { type NodeAnswer, nodeAnswer } from '../core/answers.js';
import type { AcquireFailure } from '../core/failure.js';
import type { AcquisitionResult, LockHandle, LockTransport } from './transport.js';

/**
 * The handle of a lock that the only server of a lock service has granted.
 *
 * @param name the server's, among the `nodes` of results and errors
 * @param lock its `extend` and `release` replace those of the transport
 */
export function granted(
  name: string,
  transport: LockTransport,
  lock: Pick<LockHandle, 'resources' | 'token' | 'deadlineMs' | 'owner'> &
    Partial<Pick<LockHandle, 'extend' | 'release'>>,
): AcquisitionResult {
  const { resources, owner } = lock;
  const handle = {
    extend: (ttlMs: number) => transport.extend(resources, owner, ttlMs),
    release: () => transport.release(resources, owner),
    ...lock,
  };
  return { ok: true, handle, answers: () => [nodeAnswer(name, { answer: 'granted' })] };
}

/** The failure of such a service, with the answer of its server. */
export function failure(
  name: string,
  reason: AcquireFailure['reason'],
  answer: Omit<NodeAnswer, 'name'>,
  retryAfterMs = 0,
): AcquireFailure {
  return { ok: false, reason, nodes: [nodeAnswer(name, answer)], retryAfterMs };
}
