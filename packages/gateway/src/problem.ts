import type { ServerResponse } from 'node:http';
import { type ProblemCode, statusOf, titleOf, typeOf } from '@fenced/client/protocol/problem-codes';

/**
 * Facts of a problem besides its code. Tokens are strings, because JSON numbers could not hold
 * them.
 */
export interface ProblemMembers {
  readonly [name: string]: string | number | null;
}

/**
 * Ends a request with a problem document (RFC 9457). There is one code for each case in which a
 * caller would act differently. `detail` is for people, and contains only facts that the caller may
 * know.
 */
export class Problem extends Error {
  readonly code: ProblemCode;
  readonly members: ProblemMembers;
  /** Time until another try makes sense; undefined if none does. */
  readonly retryAfterMs: number | undefined;

  constructor(
    code: ProblemCode,
    detail: string,
    options: {
      readonly members?: ProblemMembers;
      readonly retryAfterMs?: number | undefined;
      readonly cause?: unknown;
    } = {},
  ) {
    super(detail, { cause: options.cause });
    this.name = new.target.name;
    this.code = code;
    this.members = options.members ?? {};
    this.retryAfterMs = options.retryAfterMs;
  }

  get status(): number {
    return statusOf(this.code);
  }

  get headers(): Record<string, string> {
    const seconds = Math.max(1, Math.ceil((this.retryAfterMs ?? 0) / 1_000));
    return {
      'Content-Type': 'application/problem+json',
      'Cache-Control': 'no-store',
      ...(this.retryAfterMs !== undefined && { 'Retry-After': `${seconds}` }),
      ...(this.code === 'range-not-satisfiable' && {
        'Content-Range': `bytes */${this.members.bodyBytes}`,
      }),
      ...(this.code === 'unauthenticated' && { 'WWW-Authenticate': 'Bearer realm="fenced"' }),
    };
  }

  /** @param instance the request's id, as the log has it */
  document(instance?: string): Record<string, string | number | null> {
    return {
      type: typeOf(this.code),
      title: titleOf(this.code),
      status: this.status,
      detail: this.message,
      ...(instance !== undefined && { instance }),
      ...this.members,
      ...(this.retryAfterMs !== undefined && { retryAfterMs: Math.ceil(this.retryAfterMs) }),
    };
  }
}

/** Writes the document. The caller ends the response. */
export function writeProblem(response: ServerResponse, problem: Problem, instance?: string): void {
  const body = Buffer.from(JSON.stringify(problem.document(instance)));
  response.statusCode = problem.status;
  for (const [name, value] of Object.entries(problem.headers)) response.setHeader(name, value);
  response.setHeader('Content-Length', body.length);
  if (response.req.method === 'HEAD') response.flushHeaders();
  else response.write(body);
}
