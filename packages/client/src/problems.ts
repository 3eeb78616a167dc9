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

/** A problem document (RFC 9457) of a gateway; what is none counts as one without a code. */
export interface ProblemDocument {
  readonly code: ProblemCode | null;
  readonly status: number;
  readonly detail: string;
  readonly retryAfterMs: number | undefined;
  readonly members: Readonly<Record<string, unknown>>;
}

/** A lease could not be had, extended or released; `code` is that of the problem document. */
export class LeaseError extends Error {
  /** `held`, `no-quorum`, `lease-lost` and so on, as docs/gateway.md lists them; null where what answered was no gateway. */
  readonly code: ProblemCode | null;
  /** When to try again, where that helps. */
  readonly retryAfterMs: number | undefined;

  constructor(
    { code, detail, retryAfterMs }: Pick<ProblemDocument, 'code' | 'detail' | 'retryAfterMs'>,
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
      // Cut off on the way: the status still tells something.
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

/** What was asked, for the errors that name it. */
export interface Asked {
  readonly resource: string;
  readonly token?: bigint;
  /** Whether something may have been written although the answer does not say so. */
  readonly isWrite: boolean;
}

/** The error that the store itself would have thrown. */
export function errorOf(problem: ProblemDocument, asked: Asked): Error {
  const { resource, token } = asked;
  const { code, status, members } = problem;
  const said = `${problem.detail || 'an answer that is none of a gateway'} resource=${resource} status=${status}`;
  switch (code) {
    case 'stale-token':
      return new StaleTokenError({
        ...{ resource, presented: bigintOf(members.presented), highest: bigintOf(members.highest) },
      });
    case 'conflict':
      return new ConflictError({ resource, attempts: 1 });
    case 'precondition-failed':
      return new VersionMismatchError({
        ...{ resource, expected: textOf(members.expected), found: textOf(members.found) },
      });
    case 'outcome-unknown':
      return unknownWrite(resource, idOf(textOf(members.writeId) ?? ''));
    case 'ratchet-lost':
      return new RatchetLostError({
        ...{ resource, known: bigintOf(members.known), found: bigintOf(members.found) },
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
      return unsaid(asked, new Error(said));
  }
}

/** The error where nobody said what became of a request that was sent. */
export function unsaid({ resource, isWrite }: Asked, cause: unknown): Error {
  return isWrite
    ? unknownWrite(resource, '', cause)
    : new StoreUnavailableError(`the gateway did not answer resource=${resource}`, { cause });
}

/** @param writeId empty where the gateway named none */
export function unknownWrite(
  resource: string,
  writeId: string,
  cause?: unknown,
): OutcomeUnknownError {
  const facts = { resource, writeId, store: 'gateway', canSettle: writeId !== '' } as const;
  return new OutcomeUnknownError(facts, cause === undefined ? {} : { cause });
}

/** The id of a write out of the name that the gateway gives it: `objects.<id>.<key>`. */
export function idOf(name: string): string {
  return name.split('.')[1] ?? '';
}

function bigintOf(value: unknown): bigint {
  return typeof value === 'string' && /^\d{1,19}$/.test(value) ? BigInt(value) : 0n;
}

function textOf(value: unknown): string | null {
  return typeof value === 'string' ? value : null;
}
