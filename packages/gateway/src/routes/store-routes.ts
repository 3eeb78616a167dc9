import { ENCODED_PATTERN } from '@fenced/client/protocol/path';
import * as z from 'zod';
import type { ZodOpenApiResponseObject } from 'zod-openapi';
import { TAG_PATTERN } from '../conditions.js';
import type { Names, Route } from '../exchange.js';
import { withHead } from '../openapi.js';
import { OF_BODY, OF_CLAIM, OF_READ, OF_WRITE, problems } from '../problem-schemas.js';
import {
  json,
  PRESENTED_TOKEN,
  TOKEN,
  WITH_TOKEN,
  WITH_VERSION,
  WRITE_ID,
} from '../wire-schemas.js';

const text = (pattern: RegExp, description: string) =>
  z.string().regex(pattern).describe(description).exactOptional();

const READ_HEADERS = z.object({
  'If-Match': z.string().describe('Entity tags.').exactOptional(),
  'If-None-Match': z.string().describe('Entity tags, or `*`.').exactOptional(),
});
const RANGE_HEADERS = READ_HEADERS.extend({
  Range: z.string().describe('One range of bytes.').exactOptional(),
  'If-Range': z.string().describe('The entity tag that the range is of.').exactOptional(),
});
const CLAIM_HEADERS = z.object({
  'Fencing-Token': PRESENTED_TOKEN,
  'Fencing-Resource': text(
    ENCODED_PATTERN,
    'The resource of the lease that the token belongs to, percent-encoded as in a path. That lease must guard the key. By default, the resource is the key, or collection/id.',
  ),
});
const WRITE_HEADERS = CLAIM_HEADERS.extend({
  'If-Match': text(
    TAG_PATTERN,
    'One strong entity tag: the only version that may be replaced. Not beside If-None-Match.',
  ),
  'If-None-Match': text(/^[*]$/, '`*`: write only if no value is stored.'),
});

const NOT_MODIFIED = { description: 'The reader has this version.', headers: WITH_VERSION };
const CLAIMED = {
  description: 'Lower tokens are refused from now on.',
  headers: WITH_TOKEN,
  content: json(z.object({ token: TOKEN })),
};

/** The parts in which the routes of objects and of records differ. */
export interface StoreDescription {
  /** The end of the operations' names: `readObject`. */
  readonly noun: 'Object' | 'Record';
  readonly path: string;
  readonly names: z.ZodObject;
  resource(names: Names): string;
  /** The answer to a read. */
  readonly found: ZodOpenApiResponseObject;
  /** The answer to a read of a range, if the store has ranges. */
  readonly range?: ZodOpenApiResponseObject;
  readonly body: NonNullable<ZodOpenApiResponseObject['content']>;
  readonly bodyNote?: string;
  readonly version: z.ZodType;
}

type Handlers = Readonly<
  Record<'read' | 'write' | 'remove' | 'claim' | 'claimAndRead', Route['handle']>
>;

const WITH_ARTICLE = { Object: 'an object', Record: 'a JSON document' };

/** The routes of the values of one store. */
export function storeRoutes(store: StoreDescription, handlers: Handlers): readonly Route[] {
  return [
    ...readRoutes(store, handlers),
    ...writeRoutes(store, handlers),
    ...claimRoutes(store, handlers),
  ];
}

function readRoutes(
  { noun, path, names, resource, found, range }: StoreDescription,
  handlers: Handlers,
): readonly Route[] {
  const read: Route = {
    method: 'get',
    path,
    verb: 'read',
    resource,
    handle: handlers.read,
    operation: {
      operationId: `read${noun}`,
      summary: `Read ${WITH_ARTICLE[noun]}`,
      requestParams: { path: names, header: range ? RANGE_HEADERS : READ_HEADERS },
      responses: {
        200: found,
        ...(range && { 206: range }),
        304: NOT_MODIFIED,
        ...problems(range ? [...OF_READ, 'range-not-satisfiable'] : OF_READ),
      },
    },
  };
  const head = { operationId: `head${noun}`, requestParams: { path: names, header: READ_HEADERS } };
  return withHead(read, head);
}

function writeRoutes(
  { noun, path, names, resource, body, bodyNote, version }: StoreDescription,
  handlers: Handlers,
): readonly Route[] {
  const written = json(z.object({ token: TOKEN, version, writeId: WRITE_ID }));
  const write: Route = {
    method: 'put',
    path,
    verb: 'write',
    resource,
    handle: handlers.write,
    operation: {
      operationId: `write${noun}`,
      summary: `Write ${WITH_ARTICLE[noun]}`,
      ...(bodyNote !== undefined && { description: bodyNote }),
      requestParams: { path: names, header: WRITE_HEADERS },
      requestBody: { required: true, content: body },
      responses: {
        200: { description: 'Applied.', headers: WITH_VERSION, content: written },
        ...problems([...OF_WRITE, ...OF_BODY]),
      },
    },
  };
  const remove: Route = {
    method: 'delete',
    path,
    verb: 'write',
    resource,
    handle: handlers.remove,
    operation: {
      operationId: `delete${noun}`,
      summary: `Delete ${WITH_ARTICLE[noun]}; its token stays`,
      requestParams: { path: names, header: WRITE_HEADERS },
      responses: {
        200: { description: 'Applied.', headers: WITH_TOKEN, content: written },
        ...problems(OF_WRITE),
      },
    },
  };
  return [write, remove];
}

function claimRoutes(
  { noun, path, names, resource, found }: StoreDescription,
  handlers: Handlers,
): readonly Route[] {
  const claim: Route = {
    method: 'post',
    path: `${path}/claim`,
    verb: 'claim',
    resource,
    handle: handlers.claim,
    operation: {
      operationId: `claim${noun}`,
      summary: 'Refuse lower tokens from now on',
      requestParams: { path: names, header: CLAIM_HEADERS },
      responses: { 200: CLAIMED, ...problems(OF_CLAIM) },
    },
  };
  const claimAndRead: Route = {
    method: 'post',
    path: `${path}/claim-and-get`,
    verb: 'claim',
    resource,
    operation: {
      operationId: `claimAndRead${noun}`,
      summary: 'Refuse lower tokens from now on, and read, in one step',
      requestParams: { path: names, header: CLAIM_HEADERS },
      responses: { 200: found, ...problems([...OF_CLAIM, 'not-found']) },
    },
    handle: handlers.claimAndRead,
  };
  return [claim, claimAndRead];
}
