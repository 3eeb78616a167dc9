import type { CurrentStream, Headers } from '@fenced/store/s3';
import type { Message } from './message.js';
import { Problem } from './problem.js';

/** Prefix of the headers with an object's metadata. The name of an entry follows. */
const META = 'fencing-meta-';

/** The headers that a request wants stored with the object. */
export function headersIn(message: Message): Headers {
  const contentType = message.get('content-type');
  const cacheControl = message.get('cache-control');
  const contentDisposition = message.get('content-disposition');
  const contentLanguage = message.get('content-language');
  const metadata = Object.entries(message.headersDistinct).flatMap(([name, values]) => {
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

/** The headers that were stored with the object, and defaults for {@link defaultsOf}. */
export function storedHeaders(current: CurrentStream): Record<string, string> {
  const { contentType = 'application/octet-stream', contentDisposition = 'attachment' } = current;
  const { contentLanguage } = current;
  const metadata = Object.entries(current.metadata).map(([name, value]) => [META + name, value]);
  return {
    // Express's own `type` would add a charset.
    'Content-Type': contentType,
    // Callers choose body and type, so a stored page could call this gateway as its own origin.
    // Browsers save it instead. If the stored disposition lets them show it, it may run no script.
    'Content-Disposition': contentDisposition,
    'Content-Security-Policy': "default-src 'none'; sandbox",
    ...(contentLanguage !== undefined && { 'Content-Language': contentLanguage }),
    ...Object.fromEntries(metadata),
  };
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
