import type { Stored } from '../../core/stored.js';
import { headersOf } from '../http/attributes.js';
import type { ObjectHead, WholeObject } from '../http/requests.js';
import type { Current, Origin, Sizes, StoredHeaders } from '../options.js';
import { bodyBytesOf, contentOf } from './content.js';

/** The object as callers see it; null for a tombstone, and if there is no object. */
export async function currentOf(
  resource: string,
  object: WholeObject | null,
): Promise<Current | null> {
  if (object === null) return null;
  // A tombstone is read, too: one with a body is damaged.
  const body = await contentOf(resource, object);
  return object.stored.state === 'deleted' ? null : { body, ...factsOf(object) };
}

/** Origin and headers of an object. */
export function factsOf({ stored, reply }: ObjectHead): Origin & StoredHeaders {
  return {
    ...originOf(stored),
    metadata: {},
    contentType: undefined,
    cacheControl: undefined,
    contentDisposition: undefined,
    contentLanguage: undefined,
    storageClass: undefined,
    ...headersOf(reply),
  };
}

export function originOf({ token, version, writeId }: Stored): Origin {
  return { token, version, writeId };
}

export function sizesOf(object: ObjectHead): Sizes {
  const { ContentLength: storedBytes, LastModified } = object.reply;
  return { bodyBytes: bodyBytesOf(object), storedBytes, lastModifiedMs: LastModified?.getTime() };
}
