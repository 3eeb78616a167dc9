import { InvalidPathError } from '@fenced/client/protocol/path';
import type { ProblemCode } from '@fenced/client/protocol/problem-codes';
import {
  FencedStoreError,
  type FencedStoreErrorCode,
  OutcomeUnknownError,
  RatchetLostError,
  StaleTokenError,
  VersionMismatchError,
} from '@fenced/store';
import { Problem } from './problem.js';
import { SignatureError } from './token-signer.js';

/** When to try again, where nobody knows better. */
const RETRY_AFTER_MS = 1_000;

/** What errors of the stores mean to a client. Those with facts of their own stand below. */
const OF_STORES: Readonly<Record<FencedStoreErrorCode, ProblemCode>> = {
  'stale-token': 'stale-token',
  conflict: 'conflict',
  'version-mismatch': 'precondition-failed',
  'outcome-unknown': 'outcome-unknown',
  'unsafe-store': 'unsafe-store',
  unsupported: 'unsupported',
  'corrupt-object': 'corrupt-object',
  'ratchet-lost': 'ratchet-lost',
  'store-setup': 'store-setup',
  unavailable: 'unavailable',
  'invalid-token': 'invalid-token',
  'invalid-argument': 'invalid-request',
};

/** What errors of a lock service mean; the gateway knows them by their code only. */
const OF_LOCKS: Readonly<Record<string, ProblemCode>> = {
  held: 'held',
  timeout: 'held',
  'too-slow': 'no-quorum',
  'no-quorum': 'no-quorum',
  'memory-full': 'no-quorum',
  'config-mismatch': 'lock-setup',
  'wrong-version': 'lock-setup',
  'ttl-too-long': 'lock-setup',
  'not-installed': 'lock-setup',
  'token-exhausted': 'lock-setup',
  'lease-lost': 'lease-lost',
  closed: 'shutting-down',
  'invalid-argument': 'invalid-request',
};

/** After which a client may try the same again. */
const PASSING: readonly ProblemCode[] = [
  'held',
  'conflict',
  'no-quorum',
  'unavailable',
  'shutting-down',
];

/** What of the message only operators may read: addresses, names of buckets, what a server said. The log has the whole. */
const INTERNAL: readonly ProblemCode[] = [
  'store-setup',
  'unsafe-store',
  'unavailable',
  'lock-setup',
  'no-quorum',
  'corrupt-object',
];

/** What a failed request is answered. An error that nobody expected is a failure of the gateway itself. */
export function problemOf(error: unknown): Problem {
  if (error instanceof Problem) return error;
  if (error instanceof InvalidPathError) return new Problem('invalid-path', error.message);
  if (error instanceof FencedStoreError) return ofStore(error);
  if (error instanceof SignatureError)
    return new Problem('invalid-token', error.message, { members: { fault: error.fault } });
  // By its name: its module needs a library that only gateways with such credentials have.
  if ((error as Error | null)?.name === 'CredentialsUnavailableError')
    return new Problem('unavailable', 'who is asking cannot be checked now', {
      retryAfterMs: RETRY_AFTER_MS,
      cause: error,
    });
  const code = OF_LOCKS[(error as { code?: string } | null)?.code ?? ''];
  if (code !== undefined && error instanceof Error && 'code' in error) return ofLock(code, error);
  return new Problem('internal', 'the gateway failed; its log has the reason', { cause: error });
}

function ofStore(error: FencedStoreError): Problem {
  const code = OF_STORES[error.code];
  const members = {
    ...(error instanceof StaleTokenError && {
      presented: String(error.presented),
      highest: String(error.highest),
    }),
    ...(error instanceof VersionMismatchError && { expected: error.expected, found: error.found }),
    ...(error instanceof RatchetLostError && {
      known: String(error.known),
      found: String(error.found),
    }),
    ...(error instanceof OutcomeUnknownError && { writeId: error.writeId }),
  };
  return new Problem(code, detailOf(code, error), {
    members,
    retryAfterMs: PASSING.includes(code) ? RETRY_AFTER_MS : undefined,
    cause: error,
  });
}

function ofLock(code: ProblemCode, error: Error): Problem {
  const { retryAfterMs = 0 } = error as { retryAfterMs?: number };
  return new Problem(code, detailOf(code, error), {
    retryAfterMs: PASSING.includes(code) ? Math.max(1, retryAfterMs) : undefined,
    cause: error,
  });
}

function detailOf(code: ProblemCode, error: Error): string {
  return INTERNAL.includes(code) ? 'the log of the gateway has the reason' : error.message;
}
