import type { Records } from '@fenced/client';
import type { Lines } from '../history.js';
import type { FencedDocument } from './document.js';

/**
 * The document's methods if it is a record, in Postgres or behind a gateway.
 *
 * @param name `collection/id`
 */
export function recordDocument(
  store: { records(collection: string): Records },
  name: string,
): Omit<FencedDocument, 'prepare' | typeof Symbol.asyncDispose> {
  const [collection = '', id = ''] = name.split('/');
  const records = store.records(collection);
  return {
    read: async () => linesOf(await records.get(id)),
    async put(lines, token) {
      await records.put(id, lines, { token });
    },
    async update(token, edit) {
      await records.update(id, { token }, (current) => edit(linesOf(current)));
    },
    async claim(token) {
      await records.claim(id, { token });
    },
    highest: () => records.highest(id),
  };
}

function linesOf(current: Awaited<ReturnType<Records['get']>>): Lines {
  return (current?.body ?? []) as Lines;
}
