import { once } from 'node:events';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { slice } from '@fenced/store/internal';
import type { CurrentStream, Written } from '@fenced/store/s3';
import type { Response } from 'express';
import * as z from 'zod';
import { bytesOf, checkBody, declaredBytes, paced } from '../bodies.js';
import { etagOf, expectedVersion, isNotModified, rangeOf } from '../conditions.js';
import { checkAllowed, type Exchange, type Route, reply } from '../exchange.js';
import { defaultsOf, headersIn, setStoredHeaders } from '../object-headers.js';
import { withHead } from '../openapi.js';
import type { ObjectStore, Parts } from '../parts.js';
import { presentedToken, refuseToken } from '../presented-token.js';
import { Problem } from '../problem.js';
import { OF_BODY, OF_CLAIM, OF_READ, OF_WRITE, problems } from '../problem-schemas.js';
import {
  CLAIMED,
  NOT_MODIFIED,
  pathName,
  READ_HEADERS,
  SLASHES,
  TOKEN_HEADERS,
  WITH_TOKEN,
  WITH_VERSION,
  WITH_WRITE_ID,
  WRITE_HEADERS,
  written,
} from '../wire-schemas.js';
import { nameWrite, settled } from '../write-id.js';

type ObjectParts = Parts & { readonly objects: ObjectStore };

/** Up to this size, a body is read before it is written: a third of a stream's cost, and it can be sent again. */
const SMALL_BYTES = 64 * 2 ** 10;

const BYTES = { schema: { type: 'string', format: 'binary' } } as const;
const HEADERS = WITH_WRITE_ID.extend({
  'Cache-Control': z.string().exactOptional(),
  'Fencing-Defaults': z
    .string()
    .describe('Names of headers of this answer that were not stored with the object.')
    .exactOptional(),
});
const FOUND = {
  description: 'The object. Content-Length is left out if it is not known beforehand.',
  ...{ headers: HEADERS, content: { 'application/octet-stream': BYTES, '*/*': BYTES } },
};

/** Objects of S3, streamed both ways. */
export function objectRoutes(parts: ObjectParts): readonly Route[] {
  const path = '/v1/objects/*key';
  const resource = ({ key = '' }) => `objects/${key}`;
  const names = z.object({ key: pathName(`The key of the object. ${SLASHES}`) });
  const read = { path: names, header: READ_HEADERS };
  const write = { path: names, header: WRITE_HEADERS };
  const claimed = { path: names, header: TOKEN_HEADERS };
  const ranged = READ_HEADERS.extend({
    Range: z.string().describe('One range of bytes.').exactOptional(),
    'If-Range': z.string().describe('The entity tag that the range is of.').exactOptional(),
  });
  const version = z.string().nullable();
  const get: Route = {
    ...{ method: 'get', path, verb: 'read', resource },
    operation: {
      operationId: 'readObject',
      summary: 'Read an object',
      requestParams: { path: names, header: ranged },
      responses: {
        ...{ 200: FOUND, 206: { ...FOUND, description: 'The range.' }, 304: NOT_MODIFIED },
        ...problems([...OF_READ, 'range-not-satisfiable']),
      },
    },
    handle: (exchange) => getObject(parts, exchange),
  };
  return [
    ...withHead(get, {
      ...{ operationId: 'headObject', summary: 'Read the headers only', requestParams: read },
    }),
    {
      ...{ method: 'put', path, verb: 'write', resource },
      operation: {
        operationId: 'writeObject',
        summary: 'Write an object',
        description:
          'Content-Type, which may be any, Cache-Control, Content-Disposition, Content-Language and `Fencing-Meta-…` are stored with it.',
        requestParams: write,
        // Some generators know no wildcard. The description says that every type may be sent.
        requestBody: { required: true, content: { 'application/octet-stream': BYTES } },
        responses: { 200: written(version, WITH_VERSION), ...problems([...OF_WRITE, ...OF_BODY]) },
      },
      handle: (exchange) => putObject(parts, exchange),
    },
    {
      ...{ method: 'delete', path, verb: 'write', resource },
      operation: {
        operationId: 'deleteObject',
        summary: 'Delete an object; its token stays',
        requestParams: write,
        responses: { 200: written(version, WITH_TOKEN), ...problems(OF_WRITE) },
      },
      handle: (exchange) => deleteObject(parts, exchange),
    },
    {
      ...{ method: 'post', path: `${path}/claim`, verb: 'claim', resource },
      operation: {
        operationId: 'claimObject',
        summary: 'Refuse lower tokens from now on',
        requestParams: claimed,
        responses: { 200: CLAIMED, ...problems(OF_CLAIM) },
      },
      handle: (exchange) => claimObject(parts, exchange),
    },
    {
      ...{ method: 'post', path: `${path}/claim-and-get`, verb: 'claim', resource },
      operation: {
        operationId: 'claimAndReadObject',
        summary: 'Refuse lower tokens from now on, and read, in one step',
        requestParams: claimed,
        responses: { 200: FOUND, ...problems([...OF_CLAIM, 'not-found']) },
      },
      handle: (exchange) => claimAndGetObject(parts, exchange),
    },
  ];
}

async function putObject(parts: ObjectParts, exchange: Exchange): Promise<void> {
  const { request, response, names, caller } = exchange;
  const { key = '' } = names;
  const token = presentedToken(exchange, parts);
  const expected = expectedVersion(request);
  const { bodyBytesMax } = parts.limits;
  checkBody(request, bodyBytesMax);
  if (request.get('content-range') !== undefined)
    throw new Problem('invalid-request', 'an object can only be written as a whole');
  const bodyBytes = declaredBytes(request);
  const leave = parts.rooms.uploads.enter(caller.name);
  try {
    const pieces = bytesOf(exchange, bodyBytesMax, parts);
    const isSmall = bodyBytes !== undefined && bodyBytes <= SMALL_BYTES;
    const body = isSmall ? Buffer.concat(await Array.fromAsync(pieces)) : pieces;
    const options = {
      ...{ token, ...headersIn(request) },
      ...(expected !== undefined && { expected }),
      ...(bodyBytes !== undefined && { bodyBytes }),
    };
    const outcome = await settled(exchange, 'objects', key, (call) =>
      parts.objects.put(key, body, { ...options, ...call }),
    );
    if (outcome.version !== null) response.set('ETag', etagOf(outcome.version));
    answer(response, key, outcome);
  } finally {
    leave();
  }
}

async function deleteObject(parts: ObjectParts, exchange: Exchange): Promise<void> {
  const { key = '' } = exchange.names;
  const token = presentedToken(exchange, parts);
  const expected = expectedVersion(exchange.request);
  const options = { token, ...(expected !== undefined && { expected }) };
  const outcome = await settled(exchange, 'objects', key, (call) =>
    parts.objects.delete(key, { ...options, ...call }),
  );
  answer(exchange.response, key, outcome);
}

async function claimObject(parts: ObjectParts, exchange: Exchange): Promise<void> {
  const { response, names } = exchange;
  const { key = '' } = names;
  const token = presentedToken(exchange, parts);
  await settled(exchange, 'objects', key, (call) => parts.objects.claim(key, { token, ...call }));
  response.set('Fencing-Token', String(token));
  reply(response, { token: String(token) });
}

async function claimAndGetObject(parts: ObjectParts, exchange: Exchange): Promise<void> {
  const { caller, names, resource } = exchange;
  const { key = '' } = names;
  checkAllowed(caller, 'read', resource);
  const token = presentedToken(exchange, parts);
  const current = await settled(exchange, 'objects', key, (call) =>
    parts.objects.claimAndGetStream(key, { ...call, token }),
  );
  await send(parts, exchange, current);
}

async function getObject(parts: ObjectParts, exchange: Exchange): Promise<void> {
  const { names, signal } = exchange;
  refuseToken(exchange);
  await send(parts, exchange, await parts.objects.getStream(names.key ?? '', { signal }));
}

async function send(
  parts: ObjectParts,
  { request, response, names, signal, deadline }: Exchange,
  current: CurrentStream | null,
): Promise<void> {
  const { key = '' } = names;
  if (current === null) throw new Problem('not-found', 'there is no object under this key');
  const { body, bodyBytes } = current;
  try {
    const etag = etagOf(current.version);
    response.set({
      ETag: etag,
      'Fencing-Token': String(current.token),
      'Fencing-Write-Id': nameWrite({ kind: 'objects', id: current.writeId, key }),
      'Cache-Control': current.cacheControl ?? 'no-cache',
    });
    const defaults = defaultsOf(current);
    if (defaults.length > 0) response.set('Fencing-Defaults', defaults.join(', '));
    if (isNotModified(request, etag)) return void response.status(304).end();
    setStoredHeaders(response, current);
    const range = bodyBytes === undefined ? null : rangeOf(request, etag, bodyBytes);
    if (range)
      response.status(206).set('Content-Range', `bytes ${range.start}-${range.end}/${bodyBytes}`);
    const length = range ? range.end + 1 - range.start : bodyBytes;
    if (length !== undefined) response.set('Content-Length', String(length));
    if (bodyBytes !== undefined) response.set('Accept-Ranges', 'bytes');
    if (request.method === 'HEAD') return void response.end();
    // Damage mostly shows with the first bytes. Before they are sent, a problem can be reported.
    await once(body, 'readable', { signal });
    // From here on, each piece has a time limit of its own.
    deadline.stop();
    // Reading a compressed body up to the range sends nothing. That idle time is not the client's.
    const stay = (): void => void response.socket?.setTimeout(response.socket.timeout ?? 0);
    const wanted = range ? slice(body, range, stay) : body;
    const sent = paced(wanted, parts, () => void response.destroy());
    await pipeline(Readable.from(sent, { objectMode: false }), response);
  } finally {
    body.destroy();
  }
}

function answer(
  response: Response,
  key: string,
  { token, version, writeId }: Omit<Written, 'version'> & { readonly version: string | null },
): void {
  const name = nameWrite({ kind: 'objects', id: writeId, key });
  response.set({ 'Fencing-Token': String(token), 'Fencing-Write-Id': name });
  reply(response, { token: String(token), version, writeId: name });
}
