import { UnsupportedByStoreError } from '@fenced/store';
import type { Current, Headers, StoredHeaders } from '@fenced/store/s3';
import { idOf } from './problems.js';

const META = 'Fencing-Meta-';

/** @throws {UnsupportedByStoreError} for a header that needs the bucket itself */
export function requestHeaders(headers: Headers): Record<string, string> {
  const { contentType, cacheControl, contentDisposition, contentLanguage } = headers;
  for (const name of ['storageClass', 'tags', 'objectLock'] as const)
    if (headers[name] !== undefined)
      throw new UnsupportedByStoreError(`${name} cannot be given through a gateway`);
  return {
    ...(contentType !== undefined && { 'Content-Type': contentType }),
    ...(cacheControl !== undefined && { 'Cache-Control': cacheControl }),
    ...(contentDisposition !== undefined && { 'Content-Disposition': contentDisposition }),
    ...(contentLanguage !== undefined && { 'Content-Language': contentLanguage }),
    ...Object.fromEntries(
      Object.entries(headers.metadata ?? {}).map(([name, value]) => [META + name, value]),
    ),
  };
}

/** The facts that the headers of an answer state about the object, with its stored headers. */
export function originOf({ headers }: Response): StoredHeaders & Omit<Current, 'body'> {
  const prefix = META.toLowerCase();
  const metadata = [...headers].flatMap(([name, value]) =>
    name.startsWith(prefix) ? [[name.slice(prefix.length), value]] : [],
  );
  const defaults = headers.get('fencing-defaults')?.split(', ') ?? [];
  const text = (name: string): string | undefined =>
    defaults.includes(name) ? undefined : (headers.get(name) ?? undefined);
  return {
    token: BigInt(headers.get('fencing-token') ?? 0),
    version: headers.get('etag')?.slice(1, -1) ?? '',
    writeId: idOf(headers.get('fencing-write-id') ?? ''),
    metadata: Object.fromEntries(metadata),
    contentType: text('content-type'),
    cacheControl: text('cache-control'),
    contentDisposition: text('content-disposition'),
    contentLanguage: text('content-language'),
    storageClass: undefined,
  };
}

/** The stored headers, which an update keeps if it does not replace them. */
export function keptHeaders(current: Current | null): Headers {
  if (current === null) return {};
  const { body: _, token: __, version: ___, writeId: ____, metadata, ...headers } = current;
  const given = Object.entries(headers).filter(([, value]) => value !== undefined);
  return {
    ...Object.fromEntries(given),
    ...(Object.keys(metadata).length > 0 && { metadata }),
  };
}
