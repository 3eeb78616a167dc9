import type { GetObjectCommandOutput, PutObjectCommandInput } from '@aws-sdk/client-s3';
import { encodingsOf } from './headers.js';

/** The attributes of an object that callers cannot give with a `put`, as a write sends them again. */
export interface Kept {
  readonly input: Partial<PutObjectCommandInput>;
  /** As it was stored. Caches understand more than dates, `0` for one. */
  readonly expires: string | undefined;
}

const ENCRYPTION = ['ServerSideEncryption', 'SSEKMSKeyId', 'BucketKeyEnabled'] as const;
const LOCK = [
  ...(['ObjectLockMode', 'ObjectLockRetainUntilDate', 'ObjectLockLegalHoldStatus'] as const),
  ...(['ObjectLockEventHold', 'ObjectLockEventHoldDurationDays'] as const),
  'ObjectLockEventHoldDurationYears',
] as const;

/** The attributes that every write keeps which keeps headers. */
export function keptOf(output: GetObjectCommandOutput): Kept {
  const { ServerSideEncryption: encryption, BucketKeyEnabled = false } = output;
  return {
    input: {
      ...pick(output, ['WebsiteRedirectLocation', ...ENCRYPTION]),
      // Without, the bucket's default would count.
      ...(encryption === 'aws:kms' && { BucketKeyEnabled }),
    },
    expires: output.ExpiresString ?? output.Expires?.toUTCString(),
  };
}

/** The attributes that belong to the value, and stay as long as it does. */
export function keptWithValue(output: GetObjectCommandOutput): Kept['input'] {
  const encoding = encodingsOf(output.ContentEncoding ?? '').join(', ');
  return { ...pick(output, LOCK), ...(encoding !== '' && { ContentEncoding: encoding }) };
}

/** The attribute that no request could send again. */
export function unkeepableOf(output: GetObjectCommandOutput): string | undefined {
  if (output.SSECustomerAlgorithm !== undefined)
    return 'its encryption with a key of the customer (SSE-C)';
  // Of these, a reply has only the number.
  return output.MissingMeta ? `${output.MissingMeta} metadata that no header can carry` : undefined;
}

function pick<From extends object, Name extends keyof From>(
  from: From,
  names: readonly Name[],
): Partial<Pick<From, Name>> {
  const entries = names.flatMap((name) => (from[name] === undefined ? [] : [[name, from[name]]]));
  return Object.fromEntries(entries) as Partial<Pick<From, Name>>;
}
