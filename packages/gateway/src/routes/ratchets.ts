import type { Exchange, Route } from '../exchange.js';
import { reply } from '../exchange.js';
import type { ObjectStore, RecordStore } from '../parts.js';
import { Problem } from '../problem.js';

export interface RatchetParts {
  readonly objects?: ObjectStore | undefined;
  readonly records?: RecordStore | undefined;
}

/** The highest token that a store has seen: of an object, of a record, or of a resource that transactions present. */
export function ratchetRoutes({ objects, records }: RatchetParts): readonly Route[] {
  const kinds: Record<
    string,
    ((name: string, signal: AbortSignal) => Promise<bigint>) | undefined
  > = {
    s3: objects && ((key, signal) => objects.highest(key, { signal })),
    postgres: records && ((resource) => records.highest(resource)),
    records: records && ((name) => highestOfRecord(records, name)),
  };
  const handle = async ({ response, names, signal }: Exchange): Promise<void> => {
    const { kind = '', resource = '' } = names;
    const highest = Object.hasOwn(kinds, kind) ? kinds[kind] : undefined;
    if (highest === undefined)
      throw new Problem('not-found', `there are ratchets of s3, records and postgres kind=${kind}`);
    const token = String(await highest(resource, signal));
    response.set('Fencing-Token', token);
    reply(response, { kind, resource, token });
  };
  return [
    {
      path: '/v1/ratchets/:kind/*resource',
      resource: ({ kind = '', resource = '' }) => `ratchets/${kind}/${resource}`,
      methods: { get: { verb: 'ratchet', handle } },
    },
  ];
}

function highestOfRecord(records: RecordStore, name: string): Promise<bigint> {
  const [collection = '', id, ...more] = name.split('/');
  if (id === undefined || more.length > 0)
    throw new Problem('invalid-path', 'a record is named by collection and id: two segments');
  return records.records(collection).highest(id);
}
