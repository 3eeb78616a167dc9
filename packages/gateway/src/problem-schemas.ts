import {
  codes,
  type ProblemCode,
  statusOf,
  titleOf,
  typeOf,
} from '@fenced/client/protocol/problem-codes';
import * as z from 'zod';
import type { ZodOpenApiResponsesObject } from 'zod-openapi';
import { DECIMAL } from './wire-schemas.js';

const TEXT = z.string();
const COUNT = z.int().min(0);

/** Members that a problem of this code has, besides those of every problem. */
const MEMBERS: Readonly<Partial<Record<ProblemCode, z.ZodRawShape>>> = {
  'stale-token': { presented: DECIMAL, highest: DECIMAL },
  'outcome-unknown': { writeId: TEXT.exactOptional(), settle: TEXT.exactOptional() },
  'ratchet-lost': { known: DECIMAL, found: DECIMAL },
  'wrong-lease': { resource: TEXT, lease: TEXT },
  forbidden: { verb: TEXT.exactOptional(), resource: TEXT.exactOptional() },
  'invalid-token': {
    fault: z.enum(['malformed', 'expired', 'refused']).exactOptional(),
    lease: TEXT.exactOptional(),
  },
  'range-not-satisfiable': { bodyBytes: COUNT },
  'body-too-large': { bytesMax: COUNT.exactOptional() },
};

function problem<Type extends z.ZodType>(type: Type, members: z.ZodRawShape = {}) {
  return z.object({
    type,
    title: TEXT,
    status: z.int(),
    detail: TEXT,
    instance: TEXT.exactOptional(),
    retryAfterMs: COUNT.exactOptional(),
    ...members,
  });
}

const ofCode = (code: ProblemCode) =>
  problem(z.enum([typeOf(code)]), MEMBERS[code]).meta({
    id: schemaNameOf(code),
    description: `${titleOf(code)}.`,
  });

const SCHEMAS = new Map(codes.map((code) => [code, ofCode(code)]));

/** `StaleTokenProblem` for `stale-token`. */
function schemaNameOf(code: ProblemCode): string {
  const words = code.split('-').map((word) => word.charAt(0).toUpperCase() + word.slice(1));
  return `${words.join('')}Problem`;
}

const RETRY_AFTER = z.object({
  'Retry-After': z
    .string()
    .regex(/^[1-9][0-9]*$/)
    .describe('Seconds.')
    .exactOptional(),
});
const WITH_RETRY: readonly number[] = [409, 429, 503];

/**
 * The responses of an operation that fails: one for each status, with the problems that have this
 * status.
 */
export function problems(some: readonly ProblemCode[]): ZodOpenApiResponsesObject {
  return Object.fromEntries(
    [...Map.groupBy(some, statusOf)].map(([status, group]) => {
      const schemas = group.flatMap((code) => SCHEMAS.get(code) ?? []);
      const [first = z.never(), second] = schemas;
      const schema =
        second === undefined ? first : z.discriminatedUnion('type', schemas as [typeof second]);
      return [
        String(status),
        {
          description: group.map((code) => `\`${code}\`: ${titleOf(code)}.`).join(' '),
          ...(WITH_RETRY.includes(status) && { headers: RETRY_AFTER }),
          content: { 'application/problem+json': { schema } },
        },
      ];
    }),
  );
}

/** Problems of every request. */
export const OF_REQUEST: readonly ProblemCode[] = [
  ...(['invalid-request', 'invalid-path', 'forbidden', 'internal'] as const),
  ...(['request-timeout', 'headers-too-large', 'expectation-failed'] as const),
];
/** Problems of every request that needs credentials. */
const ANY: readonly ProblemCode[] = [
  ...OF_REQUEST,
  ...(['unauthenticated', 'too-many-requests', 'overloaded', 'unavailable'] as const),
];
export const OF_LOCK: readonly ProblemCode[] = [
  ...ANY,
  ...(['no-quorum', 'lock-setup', 'shutting-down', 'invalid-token'] as const),
];
export const OF_STORE: readonly ProblemCode[] = [
  ...ANY,
  ...(['store-setup', 'corrupt-object', 'ratchet-lost', 'unsupported'] as const),
];
export const OF_READ: readonly ProblemCode[] = [
  ...OF_STORE,
  ...(['conflict', 'not-found', 'precondition-failed'] as const),
];
export const OF_CLAIM: readonly ProblemCode[] = [
  ...OF_STORE,
  ...(['token-required', 'invalid-token', 'wrong-lease', 'stale-token', 'conflict'] as const),
  ...(['unsafe-store', 'outcome-unknown'] as const),
];
export const OF_WRITE: readonly ProblemCode[] = [...OF_CLAIM, 'precondition-failed'];
export const OF_BODY: readonly ProblemCode[] = ['body-too-large', 'unsupported-media-type'];
