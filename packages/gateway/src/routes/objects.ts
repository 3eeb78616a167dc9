import { once } from 'node:events';
import { slice } from '@fenced/store/internal';
import type { ByteRange, CurrentStream } from '@fenced/store/s3';
import * as z from 'zod';
import type { Answer } from '../answer.js';
import { bytesOf, checkBody, declaredBytes, paced } from '../bodies.js';
import { etagOf, expectedVersion, isNotModified, rangeOf } from '../conditions.js';
import { checkAllowed, type Exchange, type Route } from '../exchange.js';
import { defaultsOf, headersIn, storedHeaders } from '../object-headers.js';
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

async function putObject(services: ObjectServices, exchange: Exchange): Promise<Answer> {
  const { message, names, caller } = exchange;
  const { key = '' } = names;
  const token = presentedToken(exchange, services);
  const expected = expectedVersion(message);
  const { bodyBytesMax } = services.limits;
  checkBody(message, bodyBytesMax);
  const bodyBytes = declaredBytes(message);
  const leave = services.concurrency.uploads.enter(caller.name);
  try {
    const pieces = bytesOf(exchange, bodyBytesMax, services);
    const isSmall = bodyBytes !== undefined && bodyBytes <= SMALL_BYTES;
    const body = isSmall ? Buffer.concat(await Array.fromAsync(pieces)) : pieces;
    const options = {
      token,
      ...headersIn(message),
      ...(expected !== undefined && { expected }),
      ...(bodyBytes !== undefined && { bodyBytes }),
    };
    const outcome = await settled(exchange, 'objects', key, (call) =>
      services.objects.put(key, body, { ...options, ...call }),
    );
    const headers = outcome.version === null ? {} : { ETag: etagOf(outcome.version) };
    return answerWrite('objects', key, outcome, headers);
  } finally {
    leave();
  }
}

async function deleteObject(services: ObjectServices, exchange: Exchange): Promise<Answer> {
  const { key = '' } = exchange.names;
  const token = presentedToken(exchange, services);
  const expected = expectedVersion(exchange.message);
  const options = { token, ...(expected !== undefined && { expected }) };
  const outcome = await settled(exchange, 'objects', key, (call) =>
    services.objects.delete(key, { ...options, ...call }),
  );
  return answerWrite('objects', key, outcome);
}

async function claimObject(services: ObjectServices, exchange: Exchange): Promise<Answer> {
  const { key = '' } = exchange.names;
  const token = presentedToken(exchange, services);
  await settled(exchange, 'objects', key, (call) =>
    services.objects.claim(key, { token, ...call }),
  );
  return answerClaim(token);
}

async function claimAndGetObject(services: ObjectServices, exchange: Exchange): Promise<Answer> {
  const { caller, names, resource } = exchange;
  const { key = '' } = names;
  checkAllowed(caller, 'read', resource);
  const token = presentedToken(exchange, services);
  const current = await settled(exchange, 'objects', key, (call) =>
    services.objects.claimAndGetStream(key, { ...call, token }),
  );
  return found(services, exchange, current);
}

async function getObject(services: ObjectServices, exchange: Exchange): Promise<Answer> {
  const { names, signal } = exchange;
  refuseToken(exchange);
  return found(services, exchange, await services.objects.getStream(names.key ?? '', { signal }));
}

async function found(
  services: ObjectServices,
  exchange: Exchange,
  current: CurrentStream | null,
): Promise<Answer> {
  if (current === null) throw new Problem('not-found', 'there is no object under this key');
  const { message, names } = exchange;
  const { body, bodyBytes } = current;
  const release = (): void => void body.destroy();
  try {
    const etag = etagOf(current.version);
    const metadata = metadataOf(names.key ?? '', current, etag);
    if (isNotModified(message, etag)) return { status: 304, headers: metadata, release };
    const range = bodyBytes === undefined ? null : rangeOf(message, etag, bodyBytes);
    const length = range ? range.end + 1 - range.start : bodyBytes;
    const headers = {
      ...metadata,
      ...storedHeaders(current),
      ...(range && { 'Content-Range': `bytes ${range.start}-${range.end}/${bodyBytes}` }),
      ...(length !== undefined && { 'Content-Length': String(length) }),
      ...(bodyBytes !== undefined && { 'Accept-Ranges': 'bytes' }),
    };
    const status = range ? 206 : 200;
    if (message.method === 'HEAD') return { status, headers, release };
    return { status, headers, body: await begun(services, exchange, body, range), release };
  } catch (error) {
    release();
    throw error;
  }
}

/** The headers of every answer to a read, 304 too. */
function metadataOf(key: string, current: CurrentStream, etag: string): Record<string, string> {
  const defaults = defaultsOf(current);
  return {
    ETag: etag,
    'Fencing-Token': String(current.token),
    'Fencing-Write-Id': nameWrite({ kind: 'objects', id: current.writeId, key }),
    'Cache-Control': current.cacheControl ?? 'no-cache',
    ...(defaults.length > 0 && { 'Fencing-Defaults': defaults.join(', ') }),
  };
}

/** The body, of which the first bytes have arrived. */
async function begun(
  services: ObjectServices,
  { signal, deadline, stay, cutOff }: Exchange,
  body: CurrentStream['body'],
  range: Required<ByteRange> | null,
): Promise<AsyncIterable<Uint8Array>> {
  // Damage mostly shows in the first bytes. Before the answer begins, it can still become a problem
  // document.
  await once(body, 'readable', { signal });
  // From here on, each piece has a time limit of its own.
  deadline.stop();
  // Nothing is sent while a compressed body is read up to the range. This keeps the idle timeout
  // from closing the connection.
  return paced(range ? slice(body, range, stay) : body, services, cutOff);
}
