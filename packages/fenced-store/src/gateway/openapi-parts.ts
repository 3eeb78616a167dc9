import { type ProblemCode, statusOf, titleOf, typeOf } from './problem.js';

/** A part of an OpenAPI 3.1 document. */
export type Part = Readonly<Record<string, unknown>>;

const DIGITS = { type: 'string', pattern: '^(0|[1-9][0-9]{0,18})$' } as const;

/** What several operations say in the same words. */
export const components: Part = {
  securitySchemes: {
    bearer: {
      type: 'http',
      scheme: 'bearer',
      description: 'An API key or a JSON Web Token. A gateway without credentials asks for none.',
    },
  },
  schemas: {
    Token: {
      ...DIGITS,
      description:
        'A fencing token: decimal digits, since it may be larger than numbers of JSON can hold.',
    },
    PresentedToken: {
      type: 'string',
      pattern: '^[1-9][0-9]{0,18}([.][A-Za-z0-9._-]+)?$',
      description:
        'What to send as Fencing-Token, as it is. The digits before the first dot are the token; what follows is its seal.',
    },
    WriteId: {
      type: 'string',
      pattern: '^(objects|records)[.][0-9a-f-]{32,36}[.][A-Za-z0-9_-]+$',
      description: 'Names one write for ever; to be asked about at /v1/writes.',
    },
    Lease: {
      type: 'object',
      required: ['resource', 'leaseId', 'token', 'remainingMs', 'elapsedMs'],
      properties: {
        resource: { type: 'string' },
        leaseId: {
          type: 'string',
          description:
            'To extend and release the lease, at any gateway. The latest answer has the one that is good for longest.',
        },
        token: ref('schemas/PresentedToken'),
        remainingMs: {
          type: 'integer',
          minimum: 0,
          description: 'For how long the lease may be relied on, from when this was answered.',
        },
        elapsedMs: {
          type: 'integer',
          minimum: 0,
          description:
            'How long the gateway took: the lease may be relied on until remainingMs and elapsedMs after the request was sent.',
        },
      },
    },
    Problem: {
      type: 'object',
      required: ['type', 'title', 'status', 'detail'],
      properties: {
        type: { type: 'string', format: 'uri' },
        title: { type: 'string' },
        status: { type: 'integer' },
        detail: { type: 'string' },
        instance: { type: 'string' },
        retryAfterMs: { type: 'integer', minimum: 0 },
        presented: DIGITS,
        highest: DIGITS,
        writeId: ref('schemas/WriteId'),
        settle: { type: 'string' },
      },
    },
  },
  headers: {
    ETag: {
      schema: { type: 'string' },
      description: 'Of the version; every write makes another one.',
    },
    FencingToken: {
      schema: { type: 'string' },
      description: 'The token that was issued or used, or that the value was written with.',
    },
    RetryAfter: { schema: { type: 'string', pattern: '^[1-9][0-9]*$' }, description: 'Seconds.' },
  },
};

export function ref(name: string): Part {
  return { $ref: `#/components/${name}` };
}

/** What an operation answers where it fails: a response for each status, with the types that it may have. */
export function problems(codes: readonly ProblemCode[]): Part {
  const byStatus = Map.groupBy(codes, statusOf);
  return Object.fromEntries(
    [...byStatus].map(([status, some]) => [
      String(status),
      {
        description: some.map((code) => `\`${code}\`: ${titleOf(code)}.`).join(' '),
        headers:
          status === 409 || status === 429 || status === 503
            ? { 'Retry-After': ref('headers/RetryAfter') }
            : {},
        content: {
          'application/problem+json': {
            schema: {
              allOf: [ref('schemas/Problem'), { properties: { type: { enum: some.map(typeOf) } } }],
            },
          },
        },
      },
    ]),
  );
}

export function json(schema: Part): Part {
  return { 'application/json': { schema } };
}

export function header(name: string, description: string, schema: Part, required = false): Part {
  return { name, in: 'header', required, description, schema };
}

export function inPath(name: string, description: string): Part {
  return {
    name,
    in: 'path',
    required: true,
    description,
    schema: { type: 'string', minLength: 1 },
  };
}
