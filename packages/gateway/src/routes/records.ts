import type { CurrentRecord, Json } from '@fenced/store/postgres';
import * as z from 'zod';
import type { Answer } from '../answer.js';
import { jsonBytesOf, parsedAs } from '../bodies.js';
import { etagOf, expectedVersion, isNotModified } from '../conditions.js';
import { checkAllowed, type Exchange, type Route } from '../exchange.js';
import { presentedToken, refuseToken } from '../presented-token.js';
import { Problem } from '../problem.js';
import type { RecordStore, Services } from '../services.js';
import { json, segmentOf, WITH_WRITE_ID } from '../wire-schemas.js';
import { answerClaim, answerWrite, nameWrite, settled, settledClaim } from '../write-id.js';
import { type StoreDescription, storeRoutes } from './store-routes.js';

type RecordServices = Services & { readonly records: RecordStore };

const DOCUMENT: z.ZodType<Json> = z.any();
const FOUND = { description: 'The document.', headers: WITH_WRITE_ID, content: json(DOCUMENT) };

const DESCRIPTION: StoreDescription = {
  noun: 'Record',
  path: '/v1/records/:collection/:id',
  names: z.object({
    collection: segmentOf('The collection.'),
    id: segmentOf('The id of the document.'),
  }),
  resource: ({ collection, id }) => `records/${collection}/${id}`,
  found: FOUND,
  body: json(DOCUMENT),
  version: z.string(),
};

/** JSON documents in Postgres. */
export function recordRoutes(services: RecordServices): readonly Route[] {
  return storeRoutes(DESCRIPTION, {
    read: (exchange) => getRecord(services, exchange),
    write: (exchange) => putRecord(services, exchange),
    remove: (exchange) => deleteRecord(services, exchange),
    claim: (exchange) => claimRecord(services, exchange),
    claimAndRead: (exchange) => claimAndGetRecord(services, exchange),
  });
}

async function putRecord(services: RecordServices, exchange: Exchange): Promise<Answer> {
  const { collection, id, key } = recordIn(exchange, services);
  const token = presentedToken(exchange, services);
  const expected = expectedVersion(exchange.message);
  const bytes = await jsonBytesOf(exchange, services);
  const outcome = await services.concurrency.database.using(exchange, async () => {
    const body = parsedAs(DOCUMENT, bytes);
    return settled(exchange, 'records', key, (call) =>
      collection.put(id, body, { token, ...(expected !== undefined && { expected }), ...call }),
    );
  });
  return answerWrite('records', key, outcome, { ETag: etagOf(outcome.version) });
}

async function deleteRecord(services: RecordServices, exchange: Exchange): Promise<Answer> {
  const { collection, id, key } = recordIn(exchange, services);
  const token = presentedToken(exchange, services);
  const expected = expectedVersion(exchange.message);
  const outcome = await services.concurrency.database.using(exchange, () =>
    settled(exchange, 'records', key, (call) =>
      collection.delete(id, { token, ...(expected !== undefined && { expected }), ...call }),
    ),
  );
  return answerWrite('records', key, outcome);
}

async function claimRecord(services: RecordServices, exchange: Exchange): Promise<Answer> {
  const { signal } = exchange;
  const { collection, id } = recordIn(exchange, services);
  const token = presentedToken(exchange, services);
  await services.concurrency.database.using(exchange, () =>
    settledClaim(exchange, () => collection.claim(id, { token, signal })),
  );
  return answerClaim(token);
}

async function claimAndGetRecord(services: RecordServices, exchange: Exchange): Promise<Answer> {
  const { signal, caller, resource } = exchange;
  const { collection, id, key } = recordIn(exchange, services);
  checkAllowed(caller, 'read', resource);
  const token = presentedToken(exchange, services);
  const current = await services.concurrency.database.using(exchange, () =>
    settledClaim(exchange, () => collection.claimAndGet(id, { token, signal })),
  );
  return found(exchange, key, current);
}

async function getRecord(services: RecordServices, exchange: Exchange): Promise<Answer> {
  const { collection, id, key } = recordIn(exchange, services);
  refuseToken(exchange);
  const current = await services.concurrency.database.using(exchange, () =>
    collection.get(id, { signal: exchange.signal }),
  );
  return found(exchange, key, current);
}

function found({ message }: Exchange, key: string, current: CurrentRecord | null): Answer {
  if (current === null) throw new Problem('not-found', 'there is no record of this id');
  const etag = etagOf(current.version);
  const headers = {
    ETag: etag,
    'Fencing-Token': String(current.token),
    'Fencing-Write-Id': nameWrite({ kind: 'records', id: current.writeId, key }),
    'Cache-Control': 'no-cache',
  };
  if (isNotModified(message, etag)) return { status: 304, headers };
  return {
    status: 200,
    headers: { ...headers, 'Content-Type': 'application/json' },
    body: Buffer.from(JSON.stringify(current.body)),
  };
}

function recordIn({ names }: Exchange, { records }: RecordServices) {
  const { collection = '', id = '' } = names;
  return { collection: records.records(collection), id, key: `${collection}/${id}` };
}
