import type { Objects } from '@fenced/client';
import type { Lines } from '../history.js';
import type { FencedDocument } from './document.js';

/** The document's methods if it is an object, on S3 or behind a gateway. */
export function objectDocument(
  objects: Objects,
  key: string,
): Omit<FencedDocument, 'prepare' | typeof Symbol.asyncDispose> {
  return {
    async read() {
      return text(await objects.get(key));
    },
    async put(lines, token) {
      await objects.put(key, JSON.stringify(lines), { token });
    },
    async update(token, edit) {
      await objects.update(key, { token }, (current) => JSON.stringify(edit(text(current))));
    },
    async claim(token) {
      await objects.claim(key, { token });
    },
    highest: () => objects.highest(key),
  };
}

export function parse(body: string | undefined): Lines {
  return body ? JSON.parse(body) : [];
}

function text(object: { readonly body: Uint8Array } | null): Lines {
  return parse(object ? new TextDecoder().decode(object.body) : undefined);
}
