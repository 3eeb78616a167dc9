import type { Stored } from '../../core/stored.js';
import type { Headers } from '../arguments.js';
import type { ObjectFacts, WholeObject } from '../http/requests.js';
import type { Current, Origin, Sizes, StoredHeaders } from '../options.js';
import { bodyBytesOf, contentOf } from './content.js';

/** What callers see of an object; null of a tombstone, and where there is none. */
export async function currentOf(
  resource: string,
  object: WholeObject | null,
): Promise<Current | null> {
  // A tombstone, too, is looked at: one with a body was damaged.
  const body = object && (await contentOf(resource, object));
  if (object === null || body === null || object.stored.state === 'deleted') return null;
  return { body, ...originOf(object.stored), ...headersOf(object.headers) };
}

export function originOf({ token, version, writeId }: Stored): Origin {
  return { token, version, writeId };
}

export function sizesOf(facts: ObjectFacts): Sizes {
  const { storedBytes, lastModifiedMs } = facts;
  return { bodyBytes: bodyBytesOf(facts), storedBytes, lastModifiedMs };
}

export function headersOf(headers: Headers): StoredHeaders {
  return {
    metadata: headers.metadata ?? {},
    contentType: headers.contentType,
    cacheControl: headers.cacheControl,
    contentDisposition: headers.contentDisposition,
    contentLanguage: headers.contentLanguage,
    storageClass: headers.storageClass,
  };
}
