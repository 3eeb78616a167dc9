import type { Settlement } from '@fenced/store';
import { type Exchange, type Route, reply } from '../exchange.js';
import type { ObjectStore, RecordStore } from '../parts.js';
import { Problem } from '../problem.js';
import { type NamedWrite, parseWriteName } from '../write-id.js';

export interface WriteParts {
  readonly objects?: ObjectStore | undefined;
  readonly records?: RecordStore | undefined;
}

/** What became of a write whose outcome was unknown. */
export function writeRoutes(parts: WriteParts): readonly Route[] {
  const handle = async ({ response, names, signal }: Exchange): Promise<void> => {
    const { writeId = '' } = names;
    const write = parseWriteName(writeId);
    reply(response, { writeId, outcome: await outcomeOf(parts, write, signal) });
  };
  const resource = ({ writeId = '' }): string => {
    const { kind, key } = parseWriteName(writeId);
    return `${kind}/${key}`;
  };
  return [{ path: '/v1/writes/:writeId', resource, methods: { get: { verb: 'write', handle } } }];
}

async function outcomeOf(
  { objects, records }: WriteParts,
  { kind, id, key }: NamedWrite,
  signal: AbortSignal,
): Promise<Settlement> {
  if (kind === 'objects' && objects) return objects.settle(id, { key, signal });
  if (kind === 'records' && records) {
    const [collection = '', name = ''] = key.split('/');
    return records.records(collection).settle(name, id, { signal });
  }
  throw new Problem('not-found', `this gateway has no store for ${kind}`);
}
