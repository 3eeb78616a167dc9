import type { Meaning } from '../../core/classify.js';
import {
  CorruptObjectError,
  type FencedStoreError,
  StoreSetupError,
  StoreUnavailableError,
  UnsupportedByStoreError,
} from '../../core/errors.js';

/** The known facts of an error that the SDK or Node threw. */
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

/** The answer in a few words: `412 PreconditionFailed`, `no reply (ECONNRESET)`. */
export function briefly({ name, code, status }: Facts): string {
  return status === undefined ? `no reply (${code ?? name})` : `${status} ${name}`;
}

/** Codes of Node and OpenSSL for a TLS connection that failed. */
const TLS_CODE = /^EPROTO$|SSL|TLS|CERT|LEAF_SIGNATURE/;

/** Faults of the set-up, and how to mend them. */
const SETUP: { readonly [Of in Meaning]?: string } = {
  'no-bucket': 'the bucket does not exist: create it, or name another',
  'no-access':
    'the credentials are wrong or do not allow this: check the keys, and that they grant GetObject, PutObject, DeleteObject, AbortMultipartUpload and ListBucket, and the use of a KMS key; or the bucket is not of expectedBucketOwner, or its requester pays',
  'wrong-address':
    'the endpoint does not answer like S3, or the bucket is elsewhere: check endpoint, region and path style',
  client: 'the S3 client could not send the request',
  unseen:
    'the S3 client does not run the commands that it is given: it is a wrapper that builds its own, so the outcome of a request cannot be known; pass the S3Client itself, or hand on the command object unchanged',
  quota: 'the quota of the bucket or of its owner is used up: remove objects, or raise the quota',
};

/** Refusals of every attempt, by the server's code. */
const UNACCEPTED: Readonly<Record<string, string | undefined>> = {
  ExpiredToken: `${SETUP['no-access']}; the session has expired`,
  RequestTimeTooSkewed: 'the clock of this machine or of the server is wrong: set it',
  XAmzContentSHA256Mismatch:
    'the body that arrived is not the one that was signed: a proxy between here and the server changes it',
};

/**
 * The error for a failed request that changed nothing.
 *
 * @param where the request, in the words of an error message
 */
export function explain(
  meaning: Meaning,
  { name, code, status, message }: Facts,
  where: string,
  cause: unknown,
): FencedStoreError {
  const answer = `error=${name}${status === undefined ? '' : ` status=${status}`} reason=${JSON.stringify(message)}`;
  const facts = `${where} ${answer}`;
  const setup = SETUP[meaning] ?? (meaning === 'unaccepted' ? UNACCEPTED[name] : undefined);
  if (setup !== undefined) return new StoreSetupError(`${setup} ${facts}`, { cause });
  if (meaning === 'archived')
    // Without `where`: clients of a gateway read this message, and must not read the address.
    return new UnsupportedByStoreError(
      `the object is archived: restore it (RestoreObject), wait until that is done, and try again; or overwrite it by put ${answer}`,
      { cause },
    );
  if (meaning === 'unsupported' || meaning === 'rejected')
    return new UnsupportedByStoreError(`the store refuses such a request ${facts}`, { cause });
  if (code !== undefined && TLS_CODE.test(code))
    // Nothing is lost if a write was applied nevertheless: its outcome is read back.
    return new StoreSetupError(
      `the endpoint and the client do not agree on TLS: check http or https, and the certificate ${facts}`,
      { cause },
    );
  return new StoreUnavailableError(`the store did not give an answer ${facts}`, { cause });
}

/** The client sends other commands than it is given, so it would repeat writes unseen. */
export function bypassed(where: string): StoreSetupError {
  return new StoreSetupError(`${SETUP.unseen} ${where}`);
}

/** The body is too large for memory. */
export function tooLarge(resource: string, bodyBytesMax: number): UnsupportedByStoreError {
  return new UnsupportedByStoreError(
    `the body is larger than may be read into memory: read it with getStream, or raise bodyBytesMax resource=${resource} bodyBytesMax=${bodyBytesMax}`,
  );
}

/** The error for a body that could not be read. The SDK reports a wrong checksum by its message. */
export function asBroken(resource: string, cause: unknown): FencedStoreError {
  const where = `key=${JSON.stringify(resource)} operation=get`;
  if (!(cause instanceof Error && cause.message.startsWith('Checksum mismatch')))
    return explain('ambiguous', factsOf(cause), where, cause);
  const reason = 'the body that arrived is not the one that was stored';
  return new CorruptObjectError(resource, reason, { cause });
}
