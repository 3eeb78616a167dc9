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
import { CredentialsUnavailableError } from './credentials.js';
import { Problem } from './problem.js';
import { SignatureError } from './token-signer.js';

/** Time until another try, if nothing better is known. */
const RETRY_AFTER_MS = 1_000;

/** The problems for a lock service's errors, which the gateway knows by their codes only. */
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

/** After these problems, a client may send the same request again. */
const PASSING: readonly ProblemCode[] = [
  ...(['held', 'conflict', 'no-quorum', 'unavailable', 'shutting-down'] as const),
];

/**
 * Problems whose messages only operators may read, in the log. They may contain addresses, buckets
 * and servers' texts.
 */
const INTERNAL: readonly ProblemCode[] = [
  ...(['store-setup', 'unsafe-store', 'unavailable'] as const),
  ...(['lock-setup', 'no-quorum', 'corrupt-object'] as const),
];

/** The answer to a failed request. An unexpected error is a failure of the gateway itself. */
export function problemOf(error: unknown): Problem {
  if (error instanceof Problem) return error;
  if (error instanceof InvalidPathError) return new Problem('invalid-path', error.message);
  if (error instanceof FencedStoreError) return ofStore(error);
  if (error instanceof SignatureError)
    return new Problem('invalid-token', error.message, { members: { fault: error.fault } });
  if (error instanceof CredentialsUnavailableError)
    return new Problem('unavailable', 'the credentials cannot be checked now', {
      retryAfterMs: error.retryAfterMs,
      cause: error,
    });
  const code = OF_LOCKS[(error as { code?: string } | null)?.code ?? ''];
  if (code !== undefined && error instanceof Error && 'code' in error) return ofLock(code, error);
  return new Problem('internal', 'the gateway failed; its log has the reason', { cause: error });
}

function ofStore(error: FencedStoreError): Problem {
  const code = codeOf(error.code);
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

function codeOf(code: FencedStoreErrorCode): ProblemCode {
  if (code === 'version-mismatch') return 'precondition-failed';
  return code === 'invalid-argument' ? 'invalid-request' : code;
}

function ofLock(code: ProblemCode, error: Error): Problem {
  const { retryAfterMs = 0 } = error as { retryAfterMs?: number };
  return new Problem(code, detailOf(code, error), {
    retryAfterMs: PASSING.includes(code) ? Math.max(1, retryAfterMs) : undefined,
    cause: error,
  });
}

function detailOf(code: ProblemCode, error: Error): string {
  if (INTERNAL.includes(code)) return 'the log of the gateway has the reason';
  // The answers of the lock nodes may contain their addresses.
  return error.message.replace(/ \(resources=.*\)$/s, '');
}
