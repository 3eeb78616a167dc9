import type { Meaning } from '../../core/classify.js';
import {
  CorruptObjectError,
  type FencedStoreError,
  StoreSetupError,
  StoreUnavailableError,
  UnsupportedByStoreError,
} from '../../core/errors.js';

/** What is known of an error that the SDK or Node threw; all of it may be missing. */
export interface Facts {
  readonly name: string;
  readonly code: string | undefined;
  readonly status: number | undefined;
  readonly message: string;
}

export function factsOf(error: unknown): Facts {
  if (!(error instanceof Error))
    return { name: typeof error, code: undefined, status: undefined, message: String(error) };
  const { code, $metadata } = error as {
    readonly code?: unknown;
    readonly $metadata?: { readonly httpStatusCode?: number };
  };
  return {
    name: error.name,
    code: typeof code === 'string' ? code : undefined,
    status: $metadata?.httpStatusCode,
    message: error.message,
  };
}

/** What was answered, in a few words: `412 PreconditionFailed`, `no reply (ECONNRESET)`. */
export function briefly({ name, code, status }: Facts): string {
  return status === undefined ? `no reply (${code ?? name})` : `${status} ${name}`;
}

/** The codes of Node and OpenSSL for a TLS connection that fails, by the other end's protocol or its certificate. */
const TLS_CODE = /^EPROTO$|SSL|TLS|CERT|LEAF_SIGNATURE/;

/** What the caller is told about a failed request that has changed nothing. `where` says which request it was. */
export function explain(
  meaning: Meaning,
  { name, code, status, message }: Facts,
  where: string,
  cause: unknown,
): FencedStoreError {
  const what = `error=${name}${status === undefined ? '' : ` status=${status}`} reason=${JSON.stringify(message)}`;
  const facts = `${where} ${what}`;
  switch (meaning) {
    case 'no-bucket':
      return new StoreSetupError(`the bucket does not exist: create it, or name another ${facts}`, {
        cause,
      });
    case 'no-access':
      return new StoreSetupError(
        `the credentials are wrong or do not allow this: check the keys, and that they grant GetObject, PutObject, DeleteObject, AbortMultipartUpload and ListBucket, and the use of a KMS key; or the bucket is not of expectedBucketOwner, or its requester pays ${facts}`,
        { cause },
      );
    case 'wrong-address':
      return new StoreSetupError(
        `the endpoint does not answer like S3, or the bucket is elsewhere: check endpoint, region and path style ${facts}`,
        { cause },
      );
    case 'client':
      return new StoreSetupError(`the S3 client could not send the request ${facts}`, { cause });
    case 'unseen':
      return bypassed(facts, cause);
    case 'archived':
      // About one object, not about the set-up: without the address, which clients of a gateway may not read.
      return new UnsupportedByStoreError(
        `the object is archived: restore it (RestoreObject), wait until that is done, and try again; or overwrite it by put ${what}`,
        { cause },
      );
    case 'quota':
      return new StoreSetupError(
        `the quota of the bucket or of its owner is used up: remove objects, or raise the quota ${facts}`,
        { cause },
      );
    case 'unsupported':
    case 'rejected':
      return new UnsupportedByStoreError(`the store refuses such a request ${facts}`, { cause });
    default:
      // Of a write this proves nothing, so it is read back all the same; whoever hears of it needs another address.
      if (code !== undefined && TLS_CODE.test(code))
        return new StoreSetupError(
          `the endpoint and the client do not agree on TLS: check http or https, and the certificate ${facts}`,
          { cause },
        );
      return new StoreUnavailableError(`the store did not give an answer ${facts}`, { cause });
  }
}

/** A body that may not be read into memory. */
export function tooLarge(resource: string, bodyBytesMax: number): UnsupportedByStoreError {
  return new UnsupportedByStoreError(
    `the body is larger than may be read into memory: read it with getStream, or raise bodyBytesMax resource=${resource} bodyBytesMax=${bodyBytesMax}`,
  );
}

/** A client that sends other commands than it is given would repeat writes behind our back. */
export function bypassed(facts: string, cause?: unknown): StoreSetupError {
  return new StoreSetupError(
    `the S3 client does not run the commands that it is given: it is a wrapper that builds its own, so what becomes of a request cannot be known; pass the S3Client itself, or hand on the command object unchanged ${facts}`,
    { cause },
  );
}

/** What went wrong while a body was read. The SDK's own check of the checksum says that the bytes are not those stored. */
export function asBroken(resource: string, cause: unknown): FencedStoreError {
  if (cause instanceof Error && cause.message.startsWith('Checksum mismatch'))
    return new CorruptObjectError(
      resource,
      'the body that arrived is not the one that was stored',
      {
        cause,
      },
    );
  return explain(
    'ambiguous',
    factsOf(cause),
    `key=${JSON.stringify(resource)} operation=get`,
    cause,
  );
}
