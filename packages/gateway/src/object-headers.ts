import type { CurrentStream, Headers } from '@fenced/store/s3';
import type { Request, Response } from 'express';
import { Problem } from './problem.js';

/** Prefix of the headers with an object's metadata. The name of an entry follows. */
const META = 'fencing-meta-';

/** The headers that a request wants stored with the object. */
export function headersIn(request: Request): Headers {
  const { 'content-type': contentType, 'cache-control': cacheControl } = request.headers;
  const { 'content-disposition': contentDisposition, 'content-language': contentLanguage } =
    request.headers;
  const metadata = Object.entries(request.headersDistinct).flatMap(([name, values]) => {
    if (!name.startsWith(META) || values === undefined) return [];
    if (values.length > 1)
      throw new Problem('invalid-request', `the header ${name} may be sent only once`);
    return [[name.slice(META.length), values[0] ?? '']];
  });
  return {
    ...(contentType !== undefined && { contentType }),
    ...(cacheControl !== undefined && { cacheControl }),
    ...(contentDisposition !== undefined && { contentDisposition }),
    ...(contentLanguage !== undefined && { contentLanguage }),
    ...(metadata.length > 0 && { metadata: Object.fromEntries(metadata) }),
  };
}

/** Sets the headers that were stored with the object, and defaults for two of them. */
export function setStoredHeaders(response: Response, current: CurrentStream): void {
  const { contentType = 'application/octet-stream', contentDisposition, contentLanguage } = current;
  // Express's own `type` would add a charset.
  response.setHeader('Content-Type', contentType);
  // A browser must not guess that a stored value is a page of this origin.
  response.setHeader('X-Content-Type-Options', 'nosniff');
  if (contentDisposition !== undefined)
    response.setHeader('Content-Disposition', contentDisposition);
  if (contentLanguage !== undefined) response.setHeader('Content-Language', contentLanguage);
  for (const [name, value] of Object.entries(current.metadata))
    response.setHeader(META + name, value);
}

/**
 * Names of the answer's headers that were not stored with the object. So a client can tell them
 * from the stored headers.
 */
export function defaultsOf({ contentType, cacheControl }: CurrentStream): readonly string[] {
  return [
    ...(cacheControl === undefined ? ['cache-control'] : []),
    ...(contentType === undefined ? ['content-type'] : []),
  ];
}
