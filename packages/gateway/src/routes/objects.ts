import { once } from 'node:events';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { encodedPath } from '@fenced/client/protocol/path';
import { slice } from '@fenced/store/internal';
import type { Request, Response } from 'express';
import { bytesOf, checkBody, declaredBytes, paced } from '../bodies.js';
import { etagOf, expectedVersion, isNotModified, rangeOf } from '../conditions.js';
import {
  checkAllowed,
  type Exchange,
  type Route,
  refuseToken,
  reply,
  requiredToken,
  type TokenParts,
} from '../exchange.js';
import type { AllLimits } from '../limits.js';
import type { ObjectHeaders, ObjectStore, StoredObject, Written } from '../parts.js';
import { Problem } from '../problem.js';
import type { Rooms } from '../room.js';
import type { Runtime } from '../runtime.js';
import { nameWrite, settled } from '../write-id.js';

export interface ObjectParts {
  readonly objects: ObjectStore;
  readonly tokens: TokenParts;
  readonly limits: AllLimits;
  readonly rooms: Rooms;
  readonly runtime: Runtime;
}

/** Names of metadata follow it. */
const META = 'fencing-meta-';
/** A body of no more than this is read before it is written: it costs a third of a stream, and can be sent again after a lost race. */
const SMALL_BYTES = 64 * 2 ** 10;

/** Objects of S3, streamed both ways. */
export function objectRoutes(parts: ObjectParts): readonly Route[] {
  const resource = ({ key = '' }): string => `objects/${key}`;
  const read = (exchange: Exchange): Promise<void> => get(parts, exchange);
  return [
    {
      path: '/v1/objects/*key',
      resource,
      methods: {
        get: { verb: 'read', handle: read },
        head: { verb: 'read', handle: read },
        put: { verb: 'write', handle: (exchange) => put(parts, exchange) },
        delete: { verb: 'write', handle: (exchange) => remove(parts, exchange) },
      },
    },
    {
      path: '/v1/objects/*key/claim',
      resource,
      methods: { post: { verb: 'claim', handle: (exchange) => claim(parts, exchange) } },
    },
    {
      path: '/v1/objects/*key/claim-and-get',
      resource,
      methods: { post: { verb: 'claim', handle: (exchange) => claimAndGet(parts, exchange) } },
    },
  ];
}

async function put(
  { objects, tokens, limits, rooms: { uploads }, runtime }: ObjectParts,
  exchange: Exchange,
): Promise<void> {
  const { request, response, names } = exchange;
  const { key = '' } = names;
  const token = requiredToken(exchange, tokens, `objects/${key}`);
  const expected = expectedVersion(request);
  const { bodyBytesMax: bytesMax } = limits;
  checkBody(request, bytesMax);
  if (request.get('content-range') !== undefined)
    throw new Problem('invalid-request', 'an object can only be written as a whole');
  const bodyBytes = declaredBytes(request);
  const leave = uploads.enter(exchange.caller.name);
  try {
    const pieces = bytesOf(exchange, { bytesMax, pace: limits }, runtime);
    const isSmall = bodyBytes !== undefined && bodyBytes <= SMALL_BYTES;
    const body = isSmall ? Buffer.concat(await Array.fromAsync(pieces)) : pieces;
    const options = {
      ...{ token, ...headersOf(request) },
      ...(expected !== undefined && { expected }),
      ...(bodyBytes !== undefined && { bodyBytes }),
    };
    const written = await settled(exchange, 'objects', key, (call) =>
      objects.put(key, body, { ...options, ...call }),
    );
    if (written.version !== null) response.set('ETag', etagOf(written.version));
    answer(response, key, written);
  } finally {
    leave();
  }
}

async function remove({ objects, tokens }: ObjectParts, exchange: Exchange): Promise<void> {
  const { request, response, names } = exchange;
  const { key = '' } = names;
  const token = requiredToken(exchange, tokens, `objects/${key}`);
  const expected = expectedVersion(request);
  const options = { token, ...(expected !== undefined && { expected }) };
  const written = await settled(exchange, 'objects', key, (call) =>
    objects.delete(key, { ...options, ...call }),
  );
  answer(response, key, written);
}

async function claim({ objects, tokens }: ObjectParts, exchange: Exchange): Promise<void> {
  const { response, names } = exchange;
  const { key = '' } = names;
  const token = requiredToken(exchange, tokens, `objects/${key}`);
  await settled(exchange, 'objects', key, (call) => objects.claim(key, { token, ...call }));
  response.set('Fencing-Token', String(token));
  reply(response, { token: String(token) });
}

async function claimAndGet(parts: ObjectParts, exchange: Exchange): Promise<void> {
  const { key = '' } = exchange.names;
  checkAllowed(exchange.caller, 'read', `objects/${key}`);
  const token = requiredToken(exchange, parts.tokens, `objects/${key}`);
  const current = await settled(exchange, 'objects', key, (call) =>
    parts.objects.claimAndGetStream(key, { ...call, token }),
  );
  await send(parts, exchange, current);
}

async function get(parts: ObjectParts, exchange: Exchange): Promise<void> {
  const { names, signal } = exchange;
  const { key = '' } = names;
  refuseToken(exchange, `/v1/objects/${encodedPath(key)}/claim-and-get`);
  await send(parts, exchange, await parts.objects.getStream(key, { signal }));
}

async function send(
  { limits, runtime }: ObjectParts,
  { request, response, names, signal, deadline }: Exchange,
  current: StoredObject | null,
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
    setHeaders(response, current);
    const range = bodyBytes === undefined ? null : rangeOf(request, etag, bodyBytes);
    if (range)
      response.status(206).set('Content-Range', `bytes ${range.start}-${range.end}/${bodyBytes}`);
    const length = range ? range.end + 1 - range.start : bodyBytes;
    if (length !== undefined) response.set('Content-Length', String(length));
    if (bodyBytes !== undefined) response.set('Accept-Ranges', 'bytes');
    if (request.method === 'HEAD') return void response.end();
    // What is wrong with a body mostly shows with its first bytes: as long as none was sent, a problem can be told.
    await once(body, 'readable', { signal });
    // From here on, each piece has a time limit of its own.
    deadline.stop();
    // Nothing comes over the connection while a compressed body is read up to the range, and it is not the client's fault.
    const stay = (): void => void response.socket?.setTimeout(response.socket.timeout ?? 0);
    const wanted = range ? slice(body, range, stay) : body;
    const stop = (): void => void response.destroy();
    const sent = paced(wanted, limits, runtime, stop);
    await pipeline(Readable.from(sent, { objectMode: false }), response);
  } finally {
    body.destroy();
  }
}

function answer(response: Response, key: string, written: Written<string | null>): void {
  const { token, version, writeId } = written;
  const name = nameWrite({ kind: 'objects', id: writeId, key });
  response.set({ 'Fencing-Token': String(token), 'Fencing-Write-Id': name });
  reply(response, { token: String(token), version, writeId: name });
}

/** What the request wants stored beside the bytes. */
function headersOf(request: Request): ObjectHeaders {
  const { 'content-type': contentType, 'cache-control': cacheControl } = request.headers;
  const { 'content-disposition': contentDisposition, 'content-language': contentLanguage } =
    request.headers;
  const metadata = Object.entries(request.headersDistinct).flatMap(([name, values]) => {
    if (!name.startsWith(META) || values === undefined) return [];
    if (values.length > 1)
      throw new Problem('invalid-request', `the header ${name} may be sent only once`);
    return [[name.slice(META.length), values[0] ?? '']];
  });
  return {
    ...(contentType !== undefined && { contentType }),
    ...(cacheControl !== undefined && { cacheControl }),
    ...(contentDisposition !== undefined && { contentDisposition }),
    ...(contentLanguage !== undefined && { contentLanguage }),
    ...(metadata.length > 0 && { metadata: Object.fromEntries(metadata) }),
  };
}

/** The headers of the answer that were not stored with the object, so that a client can tell them from those that were. */
function defaultsOf({ contentType, cacheControl }: StoredObject): readonly string[] {
  return [
    ...(cacheControl === undefined ? ['cache-control'] : []),
    ...(contentType === undefined ? ['content-type'] : []),
  ];
}

function setHeaders(response: Response, current: StoredObject): void {
  const { contentType = 'application/octet-stream', contentDisposition, contentLanguage } = current;
  // Not by Express's own `type`, which would add a charset.
  response.setHeader('Content-Type', contentType);
  // What somebody stored is not to become a page of this origin by guesswork.
  response.setHeader('X-Content-Type-Options', 'nosniff');
  if (contentDisposition !== undefined)
    response.setHeader('Content-Disposition', contentDisposition);
  if (contentLanguage !== undefined) response.setHeader('Content-Language', contentLanguage);
  for (const [name, value] of Object.entries(current.metadata))
    response.setHeader(META + name, value);
}
