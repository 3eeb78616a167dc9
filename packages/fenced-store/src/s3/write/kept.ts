import type { GetObjectAclCommandOutput, Grant } from '@aws-sdk/client-s3';
import { UnsupportedByStoreError } from '../../core/errors.js';
import { METADATA_BYTES_MAX, metadataBytes, type Stored } from '../../core/stored.js';
import { type Headers, isHeaderValue } from '../arguments.js';
import type { Kept } from '../http/kept.js';
import type { ObjectFacts, Requests, WholeObject } from '../http/requests.js';

/** The headers that a write must send to keep those of an object. Tags are no part of it and are asked for by themselves. */
export async function keptHeaders(
  requests: Requests,
  resource: string,
  { headers, isTagged }: Pick<WholeObject, 'headers' | 'isTagged'>,
  signal: AbortSignal | undefined,
): Promise<Headers> {
  return isTagged ? { ...headers, tags: await requests.tags(resource, signal) } : headers;
}

/**
 * What a claim sends, so that nothing but the token changes.
 *
 * @throws {UnsupportedByStoreError} if something of the object could not be sent again.
 * @throws {StoreSetupError} if the credentials do not allow to read its ACL.
 */
export async function keptByClaim(
  requests: Requests,
  resource: string,
  object: ObjectFacts,
  nowMs: number,
  signal: AbortSignal | undefined,
): Promise<{ readonly headers: Headers; readonly kept: Kept }> {
  if (object.unkeepable !== undefined) throw cannotKeep(resource, object.unkeepable);
  const [headers, acl] = await Promise.all([
    keptHeaders(requests, resource, object, signal),
    requests.acl(resource, signal),
  ]);
  const { expires } = object.kept;
  const input = {
    ...object.kept.input,
    ...object.keptWithValue,
    ...(acl && grantsOf(resource, acl)),
  };
  // A retention that is over retains nothing, and would be refused.
  if (Number(input.ObjectLockRetainUntilDate ?? nowMs) <= nowMs) {
    delete input.ObjectLockMode;
    delete input.ObjectLockRetainUntilDate;
  }
  checkSendable(resource, headers, { ...input, Expires: expires });
  return { headers, kept: { input, expires } };
}

/**
 * Whether the bytes of an object can stay as they are under another token: in the layout `gzip` they hold the token; else two
 * writes of them must get different ETags.
 *
 * @throws {UnsupportedByStoreError}
 */
export function checkBytesCanStay(
  resource: string,
  { stored, kept }: Pick<ObjectFacts, 'kept'> & { readonly stored: Stored },
  distinctEtags: boolean,
): void {
  if (stored.layout === 'gzip') return;
  // AWS makes the ETag of such an object from its bytes, whatever the bucket's default is.
  const mayRepeat = stored.token === 0n && kept.input.ServerSideEncryption === 'AES256';
  if (!distinctEtags || mayRepeat)
    throw new UnsupportedByStoreError(
      `the object was stored by something else, and a claim may not change its bytes: two writes of the same bytes have the same ETag here, so no token can be put beside them. Write it once by update or put, which store it with a token resource=${resource}`,
    );
}

/** The ACL as headers of a write; none if it is what every object has. */
function grantsOf(
  resource: string,
  { Owner, Grants = [] }: Pick<GetObjectAclCommandOutput, 'Owner' | 'Grants'>,
): Kept['input'] {
  const isDefault = ({ Grantee, Permission }: Grant): boolean =>
    Permission === 'FULL_CONTROL' && !Grantee?.URI && (Grantee?.ID ?? '') === (Owner?.ID ?? '');
  if (Grants.every(isDefault)) return {};
  const grantees: { -readonly [Name in (typeof GRANTS)[keyof typeof GRANTS]]?: string } = {};
  for (const { Grantee, Permission = '' } of Grants) {
    const name = GRANTS[Permission as keyof typeof GRANTS];
    const [kind, who] = Grantee?.URI ? ['uri', Grantee.URI] : ['id', Grantee?.ID];
    if (name === undefined || !who || who.includes('"'))
      throw cannotKeep(resource, `a grant of its ACL (${Permission} to ${who || 'nobody'})`);
    grantees[name] = [...(grantees[name] ? [grantees[name]] : []), `${kind}="${who}"`].join(', ');
  }
  return grantees;
}

const GRANTS = {
  FULL_CONTROL: 'GrantFullControl',
  READ: 'GrantRead',
  READ_ACP: 'GrantReadACP',
  WRITE_ACP: 'GrantWriteACP',
} as const;

/** What was stored by another tool may be more than this library takes, or nothing that a header carries unchanged. */
function checkSendable(resource: string, headers: Headers, kept: object): void {
  const { metadata = {}, tags: _, ...texts } = headers;
  for (const [name, value] of Object.entries({ ...texts, ...metadata, ...kept }))
    if (typeof value === 'string' && !isHeaderValue(value))
      throw cannotKeep(resource, `${name}, which is not printable ASCII`);
  if (metadataBytes(metadata) > METADATA_BYTES_MAX)
    throw cannotKeep(resource, `more than ${METADATA_BYTES_MAX} bytes of metadata`);
}

function cannotKeep(resource: string, what: string): UnsupportedByStoreError {
  return new UnsupportedByStoreError(
    `a claim would lose something of the object, so nothing was written: ${what}. Write the object once by put, with what it shall have resource=${resource}`,
  );
}
