import type {
  GetObjectCommandOutput,
  PutObjectCommandInput,
  StorageClass,
} from '@aws-sdk/client-s3';
import { callersMetadata } from '../../core/stored.js';
import type { Headers } from '../arguments.js';

/** The headers of an object as the SDK names them. Tags are asked for by themselves. */
export function toInput(
  headers: Headers,
): Pick<
  PutObjectCommandInput,
  | 'ContentType'
  | 'CacheControl'
  | 'ContentDisposition'
  | 'ContentLanguage'
  | 'StorageClass'
  | 'Tagging'
  | 'ObjectLockMode'
  | 'ObjectLockRetainUntilDate'
  | 'ObjectLockLegalHoldStatus'
> {
  const { tags, storageClass, objectLock = {} } = headers;
  const { mode, retainUntilMs, legalHold } = objectLock;
  return {
    ContentType: headers.contentType,
    CacheControl: headers.cacheControl,
    ContentDisposition: headers.contentDisposition,
    ContentLanguage: headers.contentLanguage,
    StorageClass: storageClass as StorageClass | undefined,
    Tagging: tags && asQuery(tags),
    ...(mode !== undefined && { ObjectLockMode: mode }),
    ...(retainUntilMs !== undefined && {
      // biome-ignore lint/style/noRestrictedGlobals: the caller's time, not that of here
      ObjectLockRetainUntilDate: new Date(retainUntilMs),
    }),
    ...(legalHold !== undefined && { ObjectLockLegalHoldStatus: legalHold ? 'ON' : 'OFF' }),
  };
}

export function fromOutput(output: GetObjectCommandOutput): Headers {
  const { Metadata = {} } = output;
  return {
    ...(output.ContentType !== undefined && { contentType: output.ContentType }),
    ...(output.CacheControl !== undefined && { cacheControl: output.CacheControl }),
    ...(output.ContentDisposition !== undefined && {
      contentDisposition: output.ContentDisposition,
    }),
    ...(output.ContentLanguage !== undefined && { contentLanguage: output.ContentLanguage }),
    ...(output.StorageClass !== undefined && { storageClass: output.StorageClass }),
    metadata: callersMetadata(Metadata),
  };
}

/** The encodings of the value, without that of a request, which some servers keep. */
export function encodingsOf(contentEncoding: string): readonly string[] {
  const names = contentEncoding.split(',').map((name) => name.trim());
  return names.filter((name) => name !== '' && name.toLowerCase() !== 'aws-chunked');
}

/** Without "+" for a space, which Ceph 16 takes for a plus. */
function asQuery(tags: Readonly<Record<string, string>>): string {
  return Object.entries(tags)
    .map((tag) => tag.map(encodeURIComponent).join('='))
    .join('&');
}
