import type { GetObjectAclCommandOutput, Grant } from '@aws-sdk/client-s3';
import { UnsupportedByStoreError } from '../../core/errors.js';
import { METADATA_BYTES_MAX, metadataBytes } from '../../core/stored.js';
import { type Headers, isHeaderValue } from '../arguments.js';
import {
  encodingsOf,
  headersOf,
  type ObjectInput,
  type ObjectReply,
  type PreservedAttributes,
} from '../http/attributes.js';
import type { ObjectHead, Requests } from '../http/requests.js';

const ENCRYPTION = ['ServerSideEncryption', 'SSEKMSKeyId', 'BucketKeyEnabled'] as const;
const OBJECT_LOCK = [
  ...(['ObjectLockMode', 'ObjectLockRetainUntilDate', 'ObjectLockLegalHoldStatus'] as const),
  ...(['ObjectLockEventHold', 'ObjectLockEventHoldDurationDays'] as const),
  'ObjectLockEventHoldDurationYears',
] as const;

/** The attributes that stay when a write keeps the headers of an object. */
export function preservedOf(reply: ObjectReply): PreservedAttributes {
  const { ServerSideEncryption: encryption, BucketKeyEnabled = false } = reply;
  return {
    input: {
      ...pick(reply, ['WebsiteRedirectLocation', ...ENCRYPTION]),
      // Without this, the default of the bucket would apply.
      ...(encryption === 'aws:kms' && { BucketKeyEnabled }),
    },
    expires: reply.ExpiresString ?? reply.Expires?.toUTCString(),
  };
}

/** The headers of an object, with its tags, as a write sends them again. */
export async function preservedHeaders(
  requests: Requests,
  resource: string,
  { reply }: ObjectHead,
  signal?: AbortSignal,
): Promise<Headers> {
  const headers = headersOf(reply);
  return reply.TagCount ? { ...headers, tags: await requests.tags(resource, signal) } : headers;
}

/**
 * The headers and attributes that a claim sends, so that only the token changes.
 *
 * @throws {UnsupportedByStoreError} if something of the object could not be sent again.
 * @throws {StoreSetupError} if the credentials may not read its ACL.
 */
export async function preservedByClaim(
  requests: Requests,
  resource: string,
  object: ObjectHead,
  wallClockMs: number,
  signal?: AbortSignal,
): Promise<{ readonly headers: Headers; readonly preserved: PreservedAttributes }> {
  const { reply } = object;
  if (reply.SSECustomerAlgorithm !== undefined)
    throw cannotPreserve(resource, 'its encryption with a key of the customer (SSE-C)');
  // The reply has the number of such metadata, and not their names.
  if (reply.MissingMeta)
    throw cannotPreserve(resource, `${reply.MissingMeta} metadata that no header can carry`);
  const [headers, acl] = await Promise.all([
    preservedHeaders(requests, resource, object, signal),
    requests.acl(resource, signal),
  ]);
  const { input: attributes, expires } = preservedOf(reply);
  const encoding = encodingsOf(reply).join(', ');
  const input = {
    ...attributes,
    ...pick(reply, OBJECT_LOCK),
    ...(encoding !== '' && { ContentEncoding: encoding }),
    ...(acl && grantsOf(resource, acl)),
  };
  // S3 refuses a retention whose time is over.
  if (Number(input.ObjectLockRetainUntilDate ?? wallClockMs) <= wallClockMs) {
    delete input.ObjectLockMode;
    delete input.ObjectLockRetainUntilDate;
  }
  checkSendable(resource, headers, { ...input, Expires: expires });
  return { headers, preserved: { input, expires } };
}

/**
 * Checks that the bytes of an object can stay under another token. In the layout `gzip` they
 * contain the token. Otherwise, two writes of them must get different ETags.
 *
 * @throws {UnsupportedByStoreError}
 */
export function checkBytesCanStay(
  resource: string,
  { stored, reply }: ObjectHead,
  distinctEtags: boolean,
): void {
  if (stored.layout === 'gzip') return;
  // AWS makes the ETag of an AES256 object from its bytes, whatever the default of the bucket is.
  const mayRepeat = stored.token === 0n && reply.ServerSideEncryption === 'AES256';
  if (!distinctEtags || mayRepeat)
    throw new UnsupportedByStoreError(
      `the object was stored by another program, and a claim may not change its bytes: two writes of the same bytes have the same ETag here, so no token can be put beside them. Write it once by update or put, which store it with a token resource=${resource}`,
    );
}

/** The ACL as headers of a write; empty for the ACL that every object has. */
function grantsOf(
  resource: string,
  { Owner, Grants = [] }: Pick<GetObjectAclCommandOutput, 'Owner' | 'Grants'>,
): ObjectInput {
  const isDefault = ({ Grantee, Permission }: Grant): boolean =>
    Permission === 'FULL_CONTROL' && !Grantee?.URI && (Grantee?.ID ?? '') === (Owner?.ID ?? '');
  if (Grants.every(isDefault)) return {};
  const grantees: { -readonly [Name in (typeof GRANTS)[keyof typeof GRANTS]]?: string } = {};
  for (const { Grantee, Permission = '' } of Grants) {
    const name = GRANTS[Permission as keyof typeof GRANTS];
    const [kind, grantee] = Grantee?.URI ? ['uri', Grantee.URI] : ['id', Grantee?.ID];
    if (name === undefined || !grantee || grantee.includes('"'))
      throw cannotPreserve(
        resource,
        `a grant of its ACL (${Permission} to ${grantee || 'nobody'})`,
      );
    grantees[name] = [...(grantees[name] ? [grantees[name]] : []), `${kind}="${grantee}"`].join(
      ', ',
    );
  }
  return grantees;
}

const GRANTS = {
  FULL_CONTROL: 'GrantFullControl',
  READ: 'GrantRead',
  READ_ACP: 'GrantReadACP',
  WRITE_ACP: 'GrantWriteACP',
} as const;

/** Another tool may have stored more metadata than this library sends, or text beyond ASCII. */
function checkSendable(resource: string, headers: Headers, preserved: object): void {
  const { metadata = {}, tags: _, ...texts } = headers;
  for (const [name, value] of Object.entries({ ...texts, ...metadata, ...preserved }))
    if (typeof value === 'string' && !isHeaderValue(value))
      throw cannotPreserve(resource, `${name}, which is not printable ASCII`);
  if (metadataBytes(metadata) > METADATA_BYTES_MAX)
    throw cannotPreserve(resource, `more than ${METADATA_BYTES_MAX} bytes of metadata`);
}

function cannotPreserve(resource: string, what: string): UnsupportedByStoreError {
  return new UnsupportedByStoreError(
    `a claim would lose something of the object, so nothing was written: ${what}. Write the object once by put, with everything that it needs resource=${resource}`,
  );
}

function pick<From extends object, Name extends keyof From>(
  from: From,
  names: readonly Name[],
): Partial<Pick<From, Name>> {
  const entries = names.flatMap((name) => (from[name] === undefined ? [] : [[name, from[name]]]));
  return Object.fromEntries(entries) as Partial<Pick<From, Name>>;
}
