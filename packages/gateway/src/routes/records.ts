import { encodedPath } from '@fenced/client/protocol/path';
import type { Response } from 'express';
import { jsonOf } from '../bodies.js';
import { etagOf, expectedVersion, isNotModified } from '../conditions.js';
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
import type { RecordStore, StoredRecord, Written } from '../parts.js';
import { Problem } from '../problem.js';
import type { Runtime } from '../runtime.js';
import { nameWrite, settled, settledByClaiming } from '../write-id.js';

export interface RecordParts {
  readonly records: RecordStore;
  readonly tokens: TokenParts;
  readonly limits: AllLimits;
  readonly runtime: Runtime;
}

/** JSON documents in Postgres. */
export function recordRoutes(parts: RecordParts): readonly Route[] {
  const resource = ({ collection = '', id = '' }): string => `records/${collection}/${id}`;
  const read = (exchange: Exchange): Promise<void> => get(parts, exchange);
  return [
    {
      path: '/v1/records/:collection/:id',
      resource,
      methods: {
        get: { verb: 'read', handle: read },
        head: { verb: 'read', handle: read },
        put: { verb: 'write', handle: (exchange) => put(parts, exchange) },
        delete: { verb: 'write', handle: (exchange) => remove(parts, exchange) },
      },
    },
    {
      path: '/v1/records/:collection/:id/claim',
      resource,
      methods: { post: { verb: 'claim', handle: (exchange) => claim(parts, exchange) } },
    },
    {
      path: '/v1/records/:collection/:id/claim-and-get',
      resource,
      methods: { post: { verb: 'claim', handle: (exchange) => claimAndGet(parts, exchange) } },
    },
  ];
}

async function put({ records, tokens, limits, runtime }: RecordParts, exchange: Exchange) {
  const { response } = exchange;
  const { collection, id, key } = named(exchange);
  const token = requiredToken(exchange, tokens, `records/${key}`);
  const expected = expectedRecord(exchange);
  const { recordBytesMax: bytesMax } = limits;
  const body = await jsonOf(exchange, { bytesMax, pace: limits }, runtime);
  const written = await settled(exchange, 'records', key, (call) =>
    records.records(collection).put(id, body, { token, ...expected, ...call }),
  );
  response.set('ETag', etagOf(written.version));
  answer(response, key, written);
}

async function remove({ records, tokens }: RecordParts, exchange: Exchange): Promise<void> {
  const { response } = exchange;
  const { collection, id, key } = named(exchange);
  const token = requiredToken(exchange, tokens, `records/${key}`);
  const expected = expectedRecord(exchange);
  const written = await settled(exchange, 'records', key, (call) =>
    records.records(collection).delete(id, { token, ...expected, ...call }),
  );
  answer(response, key, written);
}

async function claim({ records, tokens }: RecordParts, exchange: Exchange): Promise<void> {
  const { response, signal } = exchange;
  const { collection, id, key } = named(exchange);
  const token = requiredToken(exchange, tokens, `records/${key}`);
  await settledByClaiming(exchange, () => records.records(collection).claim(id, { token, signal }));
  response.set('Fencing-Token', String(token));
  reply(response, { token: String(token) });
}

async function claimAndGet({ records, tokens }: RecordParts, exchange: Exchange): Promise<void> {
  const { signal, caller } = exchange;
  const { collection, id, key } = named(exchange);
  checkAllowed(caller, 'read', `records/${key}`);
  const token = requiredToken(exchange, tokens, `records/${key}`);
  const current = await settledByClaiming(exchange, () =>
    records.records(collection).claimAndGet(id, { token, signal }),
  );
  send(exchange, current);
}

async function get({ records }: RecordParts, exchange: Exchange): Promise<void> {
  const { collection, id, key } = named(exchange);
  refuseToken(exchange, `/v1/records/${encodedPath(key)}/claim-and-get`);
  send(exchange, await records.records(collection).get(id, { signal: exchange.signal }));
}

function send(exchange: Exchange, current: StoredRecord | null): void {
  const { request, response } = exchange;
  const { key } = named(exchange);
  if (current === null) throw new Problem('not-found', 'there is no record of this id');
  const etag = etagOf(current.version);
  response.set({
    ETag: etag,
    'Fencing-Token': String(current.token),
    'Fencing-Write-Id': nameWrite({ kind: 'records', id: current.writeId, key }),
    'Cache-Control': 'no-cache',
  });
  if (isNotModified(request, etag)) return void response.status(304).end();
  const bytes = Buffer.from(JSON.stringify(current.body));
  response.setHeader('Content-Type', 'application/json');
  response.setHeader('Content-Length', bytes.length);
  response.end(request.method === 'HEAD' ? undefined : bytes);
}

function answer(response: Response, key: string, written: Written<bigint>): void {
  const { token, version, writeId } = written;
  const name = nameWrite({ kind: 'records', id: writeId, key });
  response.set({ 'Fencing-Token': String(token), 'Fencing-Write-Id': name });
  reply(response, { token: String(token), version: String(version), writeId: name });
}

function named({ names }: Exchange) {
  const { collection = '', id = '' } = names;
  return { collection, id, key: `${collection}/${id}` };
}

function expectedRecord({ request }: Exchange): { readonly expected?: bigint | null } {
  const expected = expectedVersion(request);
  if (expected === undefined) return {};
  if (expected === null) return { expected };
  if (/^[1-9][0-9]{0,17}$/.test(expected)) return { expected: BigInt(expected) };
  throw new Problem('precondition-failed', 'no record ever has such a version');
}
