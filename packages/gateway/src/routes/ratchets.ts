import * as z from 'zod';
import { jsonAnswer } from '../answer.js';
import type { Exchange, Route } from '../exchange.js';
import { Problem } from '../problem.js';
import { OF_STORE, problems } from '../problem-schemas.js';
import type { RecordStore, Services } from '../services.js';
import { json, nameOf, SLASHES, TOKEN, WITH_TOKEN } from '../wire-schemas.js';

const KIND = z
  .enum(['s3', 'records', 'postgres'])
  .describe(
    '`s3`: an object. `records`: a document, as collection/id. `postgres`: a resource that transactions name.',
  );
const RATCHET = z.object({ kind: z.string(), resource: z.string(), token: TOKEN });

/**
 * The highest token that a store has seen for an object, a record, or a resource of transactions.
 */
export function ratchetRoutes(services: Services): readonly Route[] {
  return [
    {
      method: 'get',
      path: '/v1/ratchets/:kind/*resource',
      verb: 'ratchet',
      resource: ({ kind, resource }) => `ratchets/${kind}/${resource}`,
      operation: {
        operationId: 'readRatchet',
        summary: 'The highest token that the store has seen',
        requestParams: {
          path: z.object({
            kind: KIND,
            resource: nameOf(`For \`records\`, collection and id with a slash between. ${SLASHES}`),
          }),
        },
        responses: {
          200: {
            description: 'The token is 0 if the store has seen none.',
            headers: WITH_TOKEN,
            content: json(RATCHET),
          },
          ...problems([...OF_STORE, 'not-found']),
        },
      },
      handle: async (exchange) => {
        const { kind = '', resource = '' } = exchange.names;
        const token = String(await highest(services, exchange, kind, resource));
        return jsonAnswer(200, { kind, resource, token }, { 'Fencing-Token': token });
      },
    },
  ];
}

function highest(
  { objects, records, concurrency }: Services,
  exchange: Exchange,
  kind: string,
  resource: string,
): Promise<bigint> {
  if (kind === 's3' && objects) return objects.highest(resource, { signal: exchange.signal });
  if (kind === 'postgres' && records)
    return concurrency.database.using(exchange, () => records.highest(resource));
  if (kind === 'records' && records)
    return concurrency.database.using(exchange, async () => highestOfRecord(records, resource));
  throw new Problem('not-found', `there are ratchets of s3, records and postgres kind=${kind}`);
}

function highestOfRecord(records: RecordStore, name: string): Promise<bigint> {
  const [collection = '', id, ...more] = name.split('/');
  if (id === undefined || more.length > 0)
    throw new Problem('invalid-path', 'a record is named by collection and id: two segments');
  return records.records(collection).highest(id);
}
