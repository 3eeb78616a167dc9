import {
  ConflictError,
  CorruptObjectError,
  InvalidArgumentError,
  InvalidTokenError,
  OutcomeUnknownError,
  RatchetLostError,
  StaleTokenError,
  StoreSetupError,
  StoreUnavailableError,
  UnsafeStoreError,
  UnsupportedByStoreError,
  VersionMismatchError,
} from '@fenced/store';
import { errorJson } from '@fenced/store/internal';
import { codeIn, type ProblemCode } from './protocol/problem-codes.js';

/** A problem document (RFC 9457) of a gateway. Any other answer counts as one without a code. */
export interface ProblemDocument {
  readonly code: ProblemCode | null;
  readonly status: number;
  readonly detail: string;
  readonly retryAfterMs: number | undefined;
  readonly members: Readonly<Record<string, unknown>>;
}

/** The codes of `@fenced/lock`. Failures that only a gateway has keep the code of their problem. */
export type LeaseErrorCode = ProblemCode | 'timeout' | 'invalid-argument' | 'closed';

/** A lease was not granted, extended or released. */
export class LeaseError extends Error {
  /** `held`, `timeout`, `lease-lost` …; null if the answer is not a gateway's. */
  readonly code: LeaseErrorCode | null;
  /** Time until another try makes sense; undefined if none does. */
  readonly retryAfterMs: number | undefined;

  constructor(
    {
      code,
      detail,
      retryAfterMs,
    }: Pick<ProblemDocument, 'detail' | 'retryAfterMs'> & { readonly code: LeaseErrorCode | null },
    options?: { readonly cause?: unknown },
  ) {
    super(detail, options);
    this.name = 'LeaseError';
    this.code = code;
    this.retryAfterMs = retryAfterMs;
  }

  /** For `JSON.stringify`: name, code, message and `cause`. */
  toJSON(_key?: string, depth = 0): object {
    return errorJson(this, { ...this }, depth);
  }
}

export async function readProblem(response: Response): Promise<ProblemDocument> {
  const text = await response.text().catch(() => '');
  let members: Record<string, unknown> = {};
  if (response.headers.get('content-type')?.startsWith('application/problem+json'))
    try {
      members = Object(JSON.parse(text));
    } catch {
      // The document was cut off. The status is still known.
    }
  const { type, detail, title, retryAfterMs } = members;
  return {
    code: codeIn(type),
    status: response.status,
    detail: [title, detail].filter((part) => typeof part === 'string').join(': '),
    retryAfterMs: typeof retryAfterMs === 'number' ? retryAfterMs : undefined,
    members,
  };
}

/** The subject of a request, for the errors that name it. */
export interface Subject {
  readonly resource: string;
  readonly token?: bigint;
  /** True if the request writes. If it then gets no answer, its outcome is unknown. */
  readonly isWrite: boolean;
}

/** The error that the store itself would have thrown. */
export function errorOf(problem: ProblemDocument, subject: Subject): Error {
  const { resource, token } = subject;
  const { code, status, members } = problem;
  const said = `${problem.detail || "the answer is not a gateway's"} resource=${resource} status=${status}`;
  switch (code) {
    case 'stale-token':
      return new StaleTokenError({
        resource,
        presented: bigintOf(members.presented),
        highest: bigintOf(members.highest),
      });
    case 'conflict':
      return new ConflictError({ resource, attempts: 1 });
    case 'precondition-failed':
      return new VersionMismatchError({
        resource,
        expected: textOf(members.expected),
        found: textOf(members.found),
      });
    case 'outcome-unknown':
      return unknownWrite(resource, idOf(textOf(members.writeId) ?? ''));
    case 'ratchet-lost':
      return new RatchetLostError({
        resource,
        known: bigintOf(members.known),
        found: bigintOf(members.found),
      });
    case 'corrupt-object':
      return new CorruptObjectError(resource, problem.detail);
    case 'unsafe-store':
      return new UnsafeStoreError('', said);
    case 'unsupported':
    case 'body-too-large':
      return new UnsupportedByStoreError(said);
    case 'invalid-token':
      return new InvalidTokenError(token, { cause: new Error(said) });
    case 'invalid-request':
    case 'invalid-path':
    case 'token-required':
    case 'wrong-lease':
    case 'unsupported-media-type':
    case 'headers-too-large':
      return new InvalidArgumentError(said);
    case 'unauthenticated':
    case 'forbidden':
    case 'no-such-route':
    case 'method-not-allowed':
    case 'store-setup':
      return new StoreSetupError(said);
    case 'unavailable':
    case 'overloaded':
    case 'shutting-down':
    case 'too-many-requests':
    case 'request-timeout':
      return new StoreUnavailableError(said);
    default:
      return noAnswer(subject, new Error(said));
  }
}

/** The error for a request that was sent, and whose outcome no answer reports. */
export function noAnswer({ resource, isWrite }: Subject, cause: unknown): Error {
  return isWrite
    ? unknownWrite(resource, '', cause)
    : new StoreUnavailableError(`the gateway did not answer resource=${resource}`, { cause });
}

/** @param writeId empty if the gateway named none */
export function unknownWrite(
  resource: string,
  writeId: string,
  cause?: unknown,
): OutcomeUnknownError {
  const facts = { resource, writeId, store: 'gateway', canSettle: writeId !== '' } as const;
  return new OutcomeUnknownError(facts, cause === undefined ? {} : { cause });
}

/** The id in the gateway's name of a write: `objects.<id>.<key>`. */
export function idOf(name: string): string {
  return name.split('.')[1] ?? '';
}

function bigintOf(value: unknown): bigint {
  return typeof value === 'string' && /^\d{1,19}$/.test(value) ? BigInt(value) : 0n;
}

function textOf(value: unknown): string | null {
  return typeof value === 'string' ? value : null;
}
