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

/** Sets the headers that were stored with the object, and defaults for {@link defaultsOf}. */
export function setStoredHeaders(response: Response, current: CurrentStream): void {
  const { contentType = 'application/octet-stream', contentDisposition = 'attachment' } = current;
  const { contentLanguage } = current;
  // Express's own `type` would add a charset.
  response.setHeader('Content-Type', contentType);
  // Callers choose body and type, so a stored page could call this gateway as its own origin.
  // Browsers save it instead. If the stored disposition lets them show it, it may run no script.
  response.setHeader('Content-Disposition', contentDisposition);
  response.setHeader('Content-Security-Policy', "default-src 'none'; sandbox");
  if (contentLanguage !== undefined) response.setHeader('Content-Language', contentLanguage);
  for (const [name, value] of Object.entries(current.metadata))
    response.setHeader(META + name, value);
}

/**
 * Names of the answer's headers that were not stored with the object. So a client can tell them
 * from the stored headers.
 */
export function defaultsOf(current: CurrentStream): readonly string[] {
  const { contentType, cacheControl, contentDisposition } = current;
  return [
    ...(cacheControl === undefined ? ['cache-control'] : []),
    ...(contentDisposition === undefined ? ['content-disposition'] : []),
    ...(contentType === undefined ? ['content-type'] : []),
  ];
}
