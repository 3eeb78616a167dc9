import type { ProblemCode } from '@fenced/client/protocol/problem-codes';
import { header, inPath, json, type Part, problems, ref, withoutBody } from './openapi-parts.js';

/** What any request that needs credentials may be answered. */
const ANY: readonly ProblemCode[] = [
  ...(['invalid-request', 'invalid-path', 'unauthenticated', 'forbidden'] as const),
  ...(['too-many-requests', 'overloaded', 'internal', 'unavailable'] as const),
];
const OF_LOCK: readonly ProblemCode[] = [
  'no-quorum',
  'lock-setup',
  'shutting-down',
  'invalid-token',
];
const OF_STORE: readonly ProblemCode[] = [
  'store-setup',
  'corrupt-object',
  'ratchet-lost',
  'unsupported',
];
const OF_WRITE: readonly ProblemCode[] = [
  ...OF_STORE,
  ...(['token-required', 'invalid-token', 'wrong-lease', 'stale-token', 'conflict'] as const),
  ...(['unsafe-store', 'outcome-unknown'] as const),
];
const OF_BODY: readonly ProblemCode[] = [
  'request-timeout',
  'body-too-large',
  'unsupported-media-type',
];

const TOKEN = header(
  'Fencing-Token',
  'The token of the lease, as the gateway issued it.',
  ref('schemas/PresentedToken'),
  true,
);
const RESOURCE = header(
  'Fencing-Resource',
  'The resource whose lease the token belongs to, percent-encoded as in a path. It must be the one that guards the key: by default the key itself, or collection/id.',
  { type: 'string' },
);
const IF_MATCH = header(
  'If-Match',
  'One strong entity tag: the only version that may be replaced.',
  { type: 'string' },
);
const IF_NONE_MATCH = header('If-None-Match', '`*`: nothing may be there.', { type: 'string' });
const WRITE_HEADERS = [TOKEN, RESOURCE, IF_MATCH, IF_NONE_MATCH];
const READ_HEADERS = [
  header('If-Match', 'Entity tags.', { type: 'string' }),
  header('If-None-Match', 'Entity tags, or `*`.', { type: 'string' }),
];

const MILLISECONDS = { type: 'integer', minimum: 0 } as const;
const TOLD = { 'Fencing-Token': ref('headers/FencingToken') };
const VERSIONED = { ...TOLD, ETag: ref('headers/ETag') };

const written = (headers: Part, version: Part): Part => ({
  description: 'Applied.',
  headers,
  content: json({
    type: 'object',
    required: ['token', 'version', 'writeId'],
    properties: { token: ref('schemas/Token'), version, writeId: ref('schemas/WriteId') },
  }),
});
const claimed: Part = {
  description: 'Lower tokens are refused from now on.',
  headers: TOLD,
  content: json({
    type: 'object',
    required: ['token'],
    properties: { token: ref('schemas/Token') },
  }),
};
const NOT_MODIFIED = { description: 'The reader has this version.', headers: VERSIONED };

const RESOURCE_NAME = inPath('resource', 'What is locked. Slashes stand as they are, or as %2F.');
const KEY = inPath('key', 'The key of the object. Slashes stand as they are, or as %2F.');
const OBJECT_VERSION = { type: ['string', 'null'] } as const;
const RECORD = [inPath('collection', 'The collection.'), inPath('id', 'The id of the document.')];
const JSON_BODY = { required: true, content: json({}) };

function lease(description: string): Part {
  return { description, headers: TOLD, content: json(ref('schemas/Lease')) };
}

function times(...required: readonly string[]): Part {
  const properties = Object.fromEntries(required.map((name) => [name, MILLISECONDS]));
  return {
    required: true,
    content: json({
      type: 'object',
      required: ['ttlMs'],
      additionalProperties: false,
      properties,
    }),
  };
}

const leases: Part = {
  '/v1/leases/{resource}': {
    parameters: [RESOURCE_NAME],
    post: {
      operationId: 'acquireLease',
      summary: 'Acquire a lease',
      requestBody: times('ttlMs', 'waitMs'),
      responses: {
        201: lease('The lease; its address is in Location.'),
        ...problems([...ANY, ...OF_LOCK, ...OF_BODY, 'held']),
      },
    },
  },
  '/v1/leases/{resource}/{leaseId}': {
    parameters: [RESOURCE_NAME, inPath('leaseId', 'From the answer that granted or extended it.')],
    patch: {
      operationId: 'extendLease',
      summary: 'Let the lease last at least ttlMs from now on',
      requestBody: times('ttlMs'),
      responses: {
        200: lease('The same lease, with the same token.'),
        ...problems([...ANY, ...OF_LOCK, ...OF_BODY, 'lease-lost']),
      },
    },
    delete: {
      operationId: 'releaseLease',
      summary: 'Release the lease',
      responses: {
        200: {
          description: '`expired`: others may have held the lock already.',
          headers: TOLD,
          content: json({
            type: 'object',
            required: ['resource', 'outcome'],
            properties: {
              resource: { type: 'string' },
              outcome: { enum: ['released', 'expired'] },
            },
          }),
        },
        ...problems([...ANY, ...OF_LOCK]),
      },
    },
  },
};

const READ_PROBLEMS: readonly ProblemCode[] = [
  ...ANY,
  ...OF_STORE,
  'conflict',
  'not-found',
  'precondition-failed',
];
const CLAIM_AND_GET = 'Refuse lower tokens from now on, and read, in one step';
const BYTES = { schema: { type: 'string', format: 'binary' } } as const;
const OBJECT_BODY = { 'application/octet-stream': BYTES, '*/*': BYTES };
const OBJECT_HEADERS = {
  ...VERSIONED,
  'Fencing-Write-Id': { schema: ref('schemas/WriteId') },
  'Cache-Control': { schema: { type: 'string' } },
  'Fencing-Defaults': {
    schema: { type: 'string' },
    description: 'Names of headers of this answer that were not stored with the object.',
  },
};

const OBJECT = {
  description: 'The object. Content-Length is left out where it is not known beforehand.',
  headers: OBJECT_HEADERS,
  content: OBJECT_BODY,
};

const objects: Part = {
  '/v1/objects/{key}': {
    parameters: [KEY],
    get: {
      operationId: 'readObject',
      summary: 'Read an object',
      parameters: [
        ...READ_HEADERS,
        header('Range', 'One range of bytes.', { type: 'string' }),
        header('If-Range', 'The entity tag that the range is of.', { type: 'string' }),
      ],
      responses: {
        200: OBJECT,
        206: { description: 'The range.', headers: OBJECT_HEADERS, content: OBJECT_BODY },
        304: NOT_MODIFIED,
        ...problems([...READ_PROBLEMS, 'range-not-satisfiable']),
      },
    },
    head: {
      operationId: 'headObject',
      summary: 'The headers that a read would have',
      parameters: READ_HEADERS,
      responses: {
        200: { description: 'It is there.', headers: OBJECT_HEADERS },
        304: NOT_MODIFIED,
        ...withoutBody(problems(READ_PROBLEMS)),
      },
    },
    put: {
      operationId: 'writeObject',
      summary: 'Write an object',
      description:
        'Content-Type, which may be any, Cache-Control, Content-Disposition, Content-Language and `Fencing-Meta-…` are stored with it.',
      parameters: WRITE_HEADERS,
      // Of generators, some know no wildcard; the description says that every type may be sent.
      requestBody: { required: true, content: { 'application/octet-stream': BYTES } },
      responses: {
        200: written(VERSIONED, OBJECT_VERSION),
        ...problems([...ANY, ...OF_WRITE, ...OF_BODY, 'precondition-failed']),
      },
    },
    delete: {
      operationId: 'deleteObject',
      summary: 'Delete an object; its token stays',
      parameters: WRITE_HEADERS,
      responses: {
        200: written(TOLD, OBJECT_VERSION),
        ...problems([...ANY, ...OF_WRITE, 'precondition-failed']),
      },
    },
  },
  '/v1/objects/{key}/claim': {
    parameters: [KEY],
    post: {
      operationId: 'claimObject',
      summary: 'Refuse lower tokens from now on',
      parameters: [TOKEN, RESOURCE],
      responses: { 200: claimed, ...problems([...ANY, ...OF_WRITE]) },
    },
  },
  '/v1/objects/{key}/claim-and-get': {
    parameters: [KEY],
    post: {
      operationId: 'claimAndReadObject',
      summary: CLAIM_AND_GET,
      parameters: [TOKEN, RESOURCE],
      responses: {
        200: OBJECT,
        ...problems([...ANY, ...OF_WRITE, 'not-found']),
      },
    },
  },
};

const RECORD_HEADERS = { ...VERSIONED, 'Fencing-Write-Id': { schema: ref('schemas/WriteId') } };

const DOCUMENT = { description: 'The document.', headers: RECORD_HEADERS, content: json({}) };

const records: Part = {
  '/v1/records/{collection}/{id}': {
    parameters: RECORD,
    get: {
      operationId: 'readRecord',
      summary: 'Read a JSON document',
      parameters: READ_HEADERS,
      responses: {
        200: DOCUMENT,
        304: NOT_MODIFIED,
        ...problems(READ_PROBLEMS),
      },
    },
    head: {
      operationId: 'headRecord',
      summary: 'The headers that a read would have',
      parameters: READ_HEADERS,
      responses: {
        200: { description: 'It is there.', headers: RECORD_HEADERS },
        304: NOT_MODIFIED,
        ...withoutBody(problems(READ_PROBLEMS)),
      },
    },
    put: {
      operationId: 'writeRecord',
      summary: 'Write a JSON document',
      parameters: WRITE_HEADERS,
      requestBody: JSON_BODY,
      responses: {
        200: written(VERSIONED, { type: 'string' }),
        ...problems([...ANY, ...OF_WRITE, ...OF_BODY, 'precondition-failed']),
      },
    },
    delete: {
      operationId: 'deleteRecord',
      summary: 'Delete a JSON document; its token stays',
      parameters: WRITE_HEADERS,
      responses: {
        200: written(TOLD, { type: 'string' }),
        ...problems([...ANY, ...OF_WRITE, 'precondition-failed']),
      },
    },
  },
  '/v1/records/{collection}/{id}/claim': {
    parameters: RECORD,
    post: {
      operationId: 'claimRecord',
      summary: 'Refuse lower tokens from now on',
      parameters: [TOKEN, RESOURCE],
      responses: { 200: claimed, ...problems([...ANY, ...OF_WRITE]) },
    },
  },
  '/v1/records/{collection}/{id}/claim-and-get': {
    parameters: RECORD,
    post: {
      operationId: 'claimAndReadRecord',
      summary: CLAIM_AND_GET,
      parameters: [TOKEN, RESOURCE],
      responses: { 200: DOCUMENT, ...problems([...ANY, ...OF_WRITE, 'not-found']) },
    },
  },
};

const knowledge: Part = {
  '/v1/ratchets/{kind}/{resource}': {
    parameters: [
      {
        ...inPath(
          'kind',
          '`s3`: an object. `records`: a document, as collection/id. `postgres`: a resource that transactions name.',
        ),
        schema: { enum: ['s3', 'records', 'postgres'] },
      },
      inPath('resource', 'Slashes stand as they are, or as %2F.'),
    ],
    get: {
      operationId: 'readRatchet',
      summary: 'The highest token that the store has seen',
      responses: {
        200: {
          description: '0 where there was none.',
          headers: TOLD,
          content: json({
            type: 'object',
            required: ['kind', 'resource', 'token'],
            properties: {
              kind: { type: 'string' },
              resource: { type: 'string' },
              token: ref('schemas/Token'),
            },
          }),
        },
        ...problems([...ANY, ...OF_STORE, 'not-found']),
      },
    },
  },
  '/v1/writes/{writeId}': {
    parameters: [inPath('writeId', 'Of a write that ended with `outcome-unknown`.')],
    get: {
      operationId: 'readWriteOutcome',
      summary: 'What became of a write',
      responses: {
        200: {
          description: '`not-applied`: it was not, and never will be.',
          content: json({
            type: 'object',
            required: ['writeId', 'outcome'],
            properties: {
              writeId: ref('schemas/WriteId'),
              outcome: { enum: ['applied', 'not-applied', 'unknown'] },
            },
          }),
        },
        ...problems([...ANY, ...OF_STORE, 'conflict', 'unsafe-store', 'not-found']),
      },
    },
  },
};

const TEXT = { 'text/plain': { schema: { type: 'string' } } };
const PUBLIC: readonly ProblemCode[] = ['invalid-request', 'invalid-path', 'internal'];
const LIMITED: readonly ProblemCode[] = [...PUBLIC, 'too-many-requests', 'unavailable'];

function open(
  name: string,
  summary: string,
  content: Part,
  codes: readonly ProblemCode[] = PUBLIC,
  more: Part = {},
): Part {
  const operation = (method: string, responses: Part): Part => ({
    operationId: `${method}${name}`,
    ...{ summary, security: [], responses },
  });
  const responses = { 200: { description: 'Yes.', content }, ...more, ...problems(codes) };
  return { get: operation('get', responses), head: operation('head', withoutBody(responses)) };
}

/** Every path with its operations. */
export const operations: Readonly<Record<string, Part>> = {
  ...leases,
  ...objects,
  ...records,
  ...knowledge,
  '/livez': open('Livez', 'Whether the process runs', TEXT),
  '/readyz': open(
    'Readyz',
    'Whether requests can be answered, a line for each dependency',
    TEXT,
    PUBLIC,
    {
      503: { description: 'Not now.', content: TEXT },
    },
  ),
  '/metrics': open('Metrics', 'The text of Prometheus, up to 1 s old', TEXT, LIMITED),
  '/openapi.json': open('Openapi', 'This document', json({ type: 'object' }), LIMITED),
} as Readonly<Record<string, Part>>;
