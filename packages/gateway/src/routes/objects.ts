import { once } from 'node:events';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { slice } from '@fenced/store/internal';
import type { ByteRange, CurrentStream } from '@fenced/store/s3';
import * as z from 'zod';
import { bytesOf, checkBody, declaredBytes, paced } from '../bodies.js';
import { etagOf, expectedVersion, isNotModified, rangeOf } from '../conditions.js';
import { checkAllowed, type Exchange, type Route } from '../exchange.js';
import { defaultsOf, headersIn, setStoredHeaders } from '../object-headers.js';
import { presentedToken, refuseToken } from '../presented-token.js';
import { Problem } from '../problem.js';
import type { ObjectStore, Services } from '../services.js';
import { nameOf, SLASHES, WITH_WRITE_ID } from '../wire-schemas.js';
import { answerClaim, answerWrite, nameWrite, settled } from '../write-id.js';
import { type StoreDescription, storeRoutes } from './store-routes.js';

type ObjectServices = Services & { readonly objects: ObjectStore };

/**
 * Up to this size, a body is read whole before it is written. That costs a third of what a stream
 * costs, and the store can send the body again.
 */
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
  headers: HEADERS,
  content: { 'application/octet-stream': BYTES, '*/*': BYTES },
};

const DESCRIPTION: StoreDescription = {
  noun: 'Object',
  path: '/v1/objects/*key',
  names: z.object({ key: nameOf(`The key of the object. ${SLASHES}`) }),
  resource: ({ key }) => `objects/${key}`,
  found: FOUND,
  range: { ...FOUND, description: 'The range.' },
  // Any type may be sent, as `bodyNote` says. Some client generators do not support `*/*` here.
  body: { 'application/octet-stream': BYTES },
  bodyNote:
    'Any Content-Type may be sent. It is stored with the object, like Cache-Control, Content-Disposition, Content-Language and `Fencing-Meta-…`.',
  version: z.string().nullable(),
};

/** Objects of S3, streamed both ways. */
export function objectRoutes(services: ObjectServices): readonly Route[] {
  return storeRoutes(DESCRIPTION, {
    read: (exchange) => getObject(services, exchange),
    write: (exchange) => putObject(services, exchange),
    remove: (exchange) => deleteObject(services, exchange),
    claim: (exchange) => claimObject(services, exchange),
    claimAndRead: (exchange) => claimAndGetObject(services, exchange),
  });
}

async function putObject(services: ObjectServices, exchange: Exchange): Promise<void> {
  const { request, response, names, caller } = exchange;
  const { key = '' } = names;
  const token = presentedToken(exchange, services);
  const expected = expectedVersion(request);
  const { bodyBytesMax } = services.limits;
  checkBody(request, bodyBytesMax);
  const bodyBytes = declaredBytes(request);
  const leave = services.concurrency.uploads.enter(caller.name);
  try {
    const pieces = bytesOf(exchange, bodyBytesMax, services);
    const isSmall = bodyBytes !== undefined && bodyBytes <= SMALL_BYTES;
    const body = isSmall ? Buffer.concat(await Array.fromAsync(pieces)) : pieces;
    const options = {
      token,
      ...headersIn(request),
      ...(expected !== undefined && { expected }),
      ...(bodyBytes !== undefined && { bodyBytes }),
    };
    const outcome = await settled(exchange, 'objects', key, (call) =>
      services.objects.put(key, body, { ...options, ...call }),
    );
    if (outcome.version !== null) response.set('ETag', etagOf(outcome.version));
    answerWrite(response, 'objects', key, outcome);
  } finally {
    leave();
  }
}

async function deleteObject(services: ObjectServices, exchange: Exchange): Promise<void> {
  const { key = '' } = exchange.names;
  const token = presentedToken(exchange, services);
  const expected = expectedVersion(exchange.request);
  const options = { token, ...(expected !== undefined && { expected }) };
  const outcome = await settled(exchange, 'objects', key, (call) =>
    services.objects.delete(key, { ...options, ...call }),
  );
  answerWrite(exchange.response, 'objects', key, outcome);
}

async function claimObject(services: ObjectServices, exchange: Exchange): Promise<void> {
  const { response, names } = exchange;
  const { key = '' } = names;
  const token = presentedToken(exchange, services);
  await settled(exchange, 'objects', key, (call) =>
    services.objects.claim(key, { token, ...call }),
  );
  answerClaim(response, token);
}

async function claimAndGetObject(services: ObjectServices, exchange: Exchange): Promise<void> {
  const { caller, names, resource } = exchange;
  const { key = '' } = names;
  checkAllowed(caller, 'read', resource);
  const token = presentedToken(exchange, services);
  const current = await settled(exchange, 'objects', key, (call) =>
    services.objects.claimAndGetStream(key, { ...call, token }),
  );
  await send(services, exchange, current);
}

async function getObject(services: ObjectServices, exchange: Exchange): Promise<void> {
  const { names, signal } = exchange;
  refuseToken(exchange);
  await send(services, exchange, await services.objects.getStream(names.key ?? '', { signal }));
}

async function send(
  services: ObjectServices,
  exchange: Exchange,
  current: CurrentStream | null,
): Promise<void> {
  if (current === null) throw new Problem('not-found', 'there is no object under this key');
  const { request, response } = exchange;
  const { body, bodyBytes } = current;
  try {
    const etag = etagOf(current.version);
    setMetadata(exchange, current, etag);
    if (isNotModified(request, etag)) return void response.status(304).end();
    setStoredHeaders(response, current);
    const range = bodyBytes === undefined ? null : rangeOf(request, etag, bodyBytes);
    if (range)
      response.status(206).set('Content-Range', `bytes ${range.start}-${range.end}/${bodyBytes}`);
    const length = range ? range.end + 1 - range.start : bodyBytes;
    if (length !== undefined) response.set('Content-Length', String(length));
    if (bodyBytes !== undefined) response.set('Accept-Ranges', 'bytes');
    if (request.method === 'HEAD') return void response.end();
    await sendBody(services, exchange, body, range);
  } finally {
    body.destroy();
  }
}

/** Sets the headers of every answer to a read, 304 too. */
function setMetadata({ response, names }: Exchange, current: CurrentStream, etag: string): void {
  response.set({
    ETag: etag,
    'Fencing-Token': String(current.token),
    'Fencing-Write-Id': nameWrite({ kind: 'objects', id: current.writeId, key: names.key ?? '' }),
    'Cache-Control': current.cacheControl ?? 'no-cache',
  });
  const defaults = defaultsOf(current);
  if (defaults.length > 0) response.set('Fencing-Defaults', defaults.join(', '));
}

async function sendBody(
  services: ObjectServices,
  { response, signal, deadline }: Exchange,
  body: CurrentStream['body'],
  range: Required<ByteRange> | null,
): Promise<void> {
  // Damage mostly shows in the first bytes. Before the answer begins, it can still become a problem
  // document.
  await once(body, 'readable', { signal });
  // From here on, each piece has a time limit of its own.
  deadline.stop();
  // Nothing is sent while a compressed body is read up to the range. This keeps the idle timeout
  // from closing the connection.
  const stay = (): void => void response.socket?.setTimeout(response.socket.timeout ?? 0);
  const wanted = range ? slice(body, range, stay) : body;
  const sent = paced(wanted, services, () => void response.destroy());
  await pipeline(Readable.from(sent, { objectMode: false }), response);
}
