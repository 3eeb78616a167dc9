import {
  codes,
  type ProblemCode,
  statusOf,
  titleOf,
  typeOf,
} from '@fenced/client/protocol/problem-codes';

/** A part of an OpenAPI 3.1 document. */
export type Part = Readonly<Record<string, unknown>>;

const DIGITS = { type: 'string', pattern: '^(0|[1-9][0-9]{0,18})$' } as const;

const TEXT = { type: 'string' } as const;

/** The members of a problem beside those that every one has. */
const MEMBERS: Readonly<Partial<Record<ProblemCode, Part>>> = {
  'stale-token': { presented: DIGITS, highest: DIGITS },
  'outcome-unknown': { writeId: TEXT, settle: TEXT },
  'ratchet-lost': { known: DIGITS, found: DIGITS },
  'wrong-lease': { resource: TEXT, lease: TEXT },
  forbidden: { verb: TEXT, resource: TEXT },
  'invalid-token': {
    fault: { type: 'string', enum: ['malformed', 'expired', 'refused'] },
    lease: TEXT,
  },
  'range-not-satisfiable': { bodyBytes: { type: 'integer', minimum: 0 } },
  'body-too-large': { bytesMax: { type: 'integer', minimum: 0 } },
};
const REQUIRED_MEMBERS: Readonly<Partial<Record<ProblemCode, readonly string[]>>> = {
  'stale-token': ['presented', 'highest'],
  'outcome-unknown': ['writeId'],
  'ratchet-lost': ['known', 'found'],
  'wrong-lease': ['resource', 'lease'],
  forbidden: ['verb', 'resource'],
  'range-not-satisfiable': ['bodyBytes'],
};

function problem(properties: Part, required: readonly string[] = []): Part {
  return {
    type: 'object',
    required: ['type', 'title', 'status', 'detail', ...required],
    properties: {
      ...{ title: TEXT, status: { type: 'integer' }, detail: TEXT, instance: TEXT },
      retryAfterMs: { type: 'integer', minimum: 0 },
      ...properties,
    },
  };
}

/** `StaleTokenProblem` for `stale-token`. */
function schemaNameOf(code: ProblemCode): string {
  const words = code.split('-').map((word) => word.charAt(0).toUpperCase() + word.slice(1));
  return `${words.join('')}Problem`;
}

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
        'What to send as Fencing-Token, as it is. The digits before the first dot are the token; what follows is its signature.',
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
    Problem: problem({ type: { type: 'string', format: 'uri' } }),
    ...Object.fromEntries(
      codes.map((code) => [
        schemaNameOf(code),
        {
          ...problem(
            { type: { type: 'string', enum: [typeOf(code)] }, ...MEMBERS[code] },
            REQUIRED_MEMBERS[code],
          ),
          description: `${titleOf(code)}.`,
        },
      ]),
    ),
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
export function problems(codes: readonly ProblemCode[]): Readonly<Record<string, object>> {
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
            schema: oneOf(some.map((code) => ref(`schemas/${schemaNameOf(code)}`))),
          },
        },
      },
    ]),
  );
}

/** The responses to HEAD. */
export function withoutBody(responses: Readonly<Record<string, object>>): Part {
  return Object.fromEntries(
    Object.entries(responses).map(([status, response]) => [
      status,
      { ...response, content: undefined },
    ]),
  );
}

function oneOf(schemas: readonly Part[]): Part {
  const [only = {}, ...others] = schemas;
  return others.length === 0 ? only : { oneOf: schemas };
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
