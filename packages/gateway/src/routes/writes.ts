import type { Settlement } from '@fenced/store';
import * as z from 'zod';
import { jsonAnswer } from '../answer.js';
import type { Exchange, Route } from '../exchange.js';
import { Problem } from '../problem.js';
import { OF_STORE, problems } from '../problem-schemas.js';
import type { Services } from '../services.js';
import { json, WRITE_ID } from '../wire-schemas.js';
import { type NamedWrite, parseWriteName } from '../write-id.js';

const WRITE = z.object({
  writeId: WRITE_ID,
  outcome: z.enum(['applied', 'not-applied', 'unknown']),
});

/** The outcome of a write that ended with `outcome-unknown`. */
export function writeRoutes(services: Services): readonly Route[] {
  return [
    {
      method: 'get',
      path: '/v1/writes/:writeId',
      verb: 'write',
      resource: ({ writeId = '' }) => {
        const { kind, key } = parseWriteName(writeId);
        return `${kind}/${key}`;
      },
      operation: {
        operationId: 'readWriteOutcome',
        summary: 'The outcome of a write',
        requestParams: {
          path: z.object({ writeId: WRITE_ID }),
        },
        responses: {
          200: {
            description: '`not-applied`: the write was not applied, and never will be.',
            content: json(WRITE),
          },
          ...problems([...OF_STORE, 'conflict', 'unsafe-store', 'not-found']),
        },
      },
      handle: async (exchange) => {
        const { writeId = '' } = exchange.names;
        const outcome = await outcomeOf(services, exchange, parseWriteName(writeId));
        return jsonAnswer(200, { writeId, outcome });
      },
    },
  ];
}

async function outcomeOf(
  { objects, records, concurrency }: Services,
  exchange: Exchange,
  { kind, id, key }: NamedWrite,
): Promise<Settlement> {
  const { signal } = exchange;
  if (kind === 'objects' && objects) return objects.settle(id, { key, signal });
  if (kind === 'records' && records) {
    const [collection = '', name = ''] = key.split('/');
    return concurrency.database.using(exchange, () =>
      records.records(collection).settle(name, id, { signal }),
    );
  }
  throw new Problem('not-found', `this gateway has no store for ${kind}`);
}
