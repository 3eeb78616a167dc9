import type { GetObjectCommandOutput, PutObjectCommandInput } from '@aws-sdk/client-s3';
import { callersMetadata } from '../../core/stored.js';
import { HEADER_NAMES, type Headers } from '../arguments.js';

/** The attributes of an object, as replies and writes of the SDK name them. */

/** The headers and metadata of a reply, also for an object of another program. */
export type ObjectReply = Omit<GetObjectCommandOutput, 'Body'>;

/** The fields of a write. */
export type ObjectInput = Partial<PutObjectCommandInput>;

/** The attributes that a write keeps, and that callers cannot give with a `put`. */
export interface PreservedAttributes {
  readonly input: ObjectInput;
  /** As it was stored: caches understand more than dates, such as `0`. */
  readonly expires: string | undefined;
}

/** The caller's headers as a write sends them. */
export function toInput(headers: Headers): ObjectInput {
  const { tags, objectLock: { mode, retainUntilMs, legalHold } = {} } = headers;
  return {
    ...Object.fromEntries(HEADER_NAMES.map((name) => [inSdk(name), headers[name]])),
    ...(tags !== undefined && { Tagging: asQuery(tags) }),
    ...(mode !== undefined && { ObjectLockMode: mode }),
    ...(retainUntilMs !== undefined && {
      // biome-ignore lint/style/noRestrictedGlobals: the caller's time, not the current time
      ObjectLockRetainUntilDate: new Date(retainUntilMs),
    }),
    ...(legalHold !== undefined && { ObjectLockLegalHoldStatus: legalHold ? 'ON' : 'OFF' }),
  };
}

/** The headers that a caller may have given. A reply does not contain the tags. */
export function headersOf(reply: ObjectReply): Headers {
  const texts = HEADER_NAMES.map((name) => [name, reply[inSdk(name)]]);
  return {
    ...Object.fromEntries(texts.filter(([, value]) => value !== undefined)),
    metadata: callersMetadata(reply.Metadata ?? {}),
  };
}

/** The encodings of the value. Some servers also store `aws-chunked`, the encoding of a request. */
export function encodingsOf({ ContentEncoding = '' }: ObjectReply): readonly string[] {
  const names = ContentEncoding.split(',').map((name) => name.trim());
  return names.filter((name) => name !== '' && name.toLowerCase() !== 'aws-chunked');
}

/** The SDK names headers as we do, but with a capital. */
function inSdk(name: (typeof HEADER_NAMES)[number]): Capitalize<typeof name> {
  return `${name.charAt(0).toUpperCase()}${name.slice(1)}` as Capitalize<typeof name>;
}

/** Without "+" for a space, because Ceph 16 reads it as a plus. */
function asQuery(tags: Readonly<Record<string, string>>): string {
  return Object.entries(tags)
    .map((tag) => tag.map(encodeURIComponent).join('='))
    .join('&');
}
