/** The kinds of requests, as far as their replies mean different things. `part` and `complete` belong to a multipart upload. */
export type Operation =
  | 'head'
  | 'get'
  | 'acl'
  | 'list'
  | 'put'
  | 'delete'
  | 'create-upload'
  | 'part'
  | 'complete'
  | 'abort-upload';

/** What a request ended with, other than success, as far as it can be seen from outside the SDK. */
export interface Failure {
  readonly operation: Operation;
  /**
   * Whether the request was handed to the network. `unseen`: the client did not run the command that it was given, so nobody
   * can tell.
   */
  readonly sent: 'yes' | 'no' | 'unseen';
  /** The error's name: S3's error code where the reply had one, else `Unknown` or what the SDK made up. */
  readonly name: string;
  /** Node's error code, where the connection failed. */
  readonly code: string | undefined;
  /** The HTTP status, where there was a reply. */
  readonly status: number | undefined;
}

/**
 * What a failed request means to the protocol.
 *
 * - `refused`: the condition did not hold, or another request was quicker.
 * - `missing`: the object is not there.
 * - `ambiguous`: the request may or may not have been applied. A write must be read back.
 * - `throttled`: as `ambiguous`, and the server asks its clients to slow down.
 * - `unreachable`: nothing was sent, since nobody listens there. Worth another try.
 * - `unseen`: as `ambiguous`, since the client sends other commands than those it is given. The set-up is wrong.
 * - `unnamed`: `HEAD` was refused, and a reply without a body does not say why. `GET` must be asked.
 * - `no-bucket`, `no-access`, `wrong-address`, `client`: the set-up is wrong; nothing was applied.
 * - `archived`: the object must be restored before it can be read.
 * - `quota`: the bucket or its owner has no room left; nothing was applied.
 * - `unsupported`: the server cannot do it; nothing was applied.
 * - `rejected`: the server says that the request itself is wrong; nothing was applied.
 */
export type Meaning =
  | 'refused'
  | 'missing'
  | 'ambiguous'
  | 'throttled'
  | 'unreachable'
  | 'unseen'
  | 'unnamed'
  | 'no-bucket'
  | 'no-access'
  | 'wrong-address'
  | 'client'
  | 'archived'
  | 'quota'
  | 'unsupported'
  | 'rejected';

// The name is matched before the status: the SDK turns a 200 with an error body into a 503 that keeps the body's name
// (AWS answers so for CompleteMultipartUpload, aws-sdk-java-v2#6023), so there the status lies.
const meanings: ReadonlyMap<string, Meaning> = new Map<string, Meaning>([
  // AWS, MinIO, Ceph: the condition did not hold.
  ['PreconditionFailed', 'refused'],
  // AWS: a DELETE or PUT of the same key was in flight. CoreWeave gives it to every loser of a race.
  ['ConditionalRequestConflict', 'refused'],
  // AWS, OVH: another conditional request is in progress.
  ['OperationAborted', 'refused'],
  // All servers: the upload was completed or aborted, by another copy of the request perhaps.
  ['NoSuchUpload', 'refused'],
  ['NoSuchBucket', 'no-bucket'],
  ['InvalidBucketName', 'no-bucket'],
  ['AccessDenied', 'no-access'],
  ['InvalidAccessKeyId', 'no-access'],
  ['SignatureDoesNotMatch', 'no-access'],
  // AWS: 400, not 403, for temporary credentials that have run out or are garbled.
  ['ExpiredToken', 'no-access'],
  ['InvalidToken', 'no-access'],
  // AWS: 403 to GET and to UploadPartCopy of an object in Glacier, or in an archive tier of Intelligent-Tiering.
  ['InvalidObjectState', 'archived'],
  // Ceph: 403. MinIO: 400.
  ['QuotaExceeded', 'quota'],
  ['XMinioAdminBucketQuotaExceeded', 'quota'],
  // AWS: the bucket lives in another region.
  ['PermanentRedirect', 'wrong-address'],
  ['AuthorizationHeaderMalformed', 'wrong-address'],
  // Backblaze B2 answers conditional writes so; AWS does for values of the headers that we never send.
  ['NotImplemented', 'unsupported'],
  ['EntityTooLarge', 'unsupported'],
  // 400 or 403 by status, but about this one copy of the request only: it was late, cut or garbled on the way, or signed
  // with a clock that the SDK corrects for the next one.
  ['RequestTimeout', 'ambiguous'],
  ['RequestTimeTooSkewed', 'ambiguous'],
  ['IncompleteBody', 'ambiguous'],
  ['BadDigest', 'ambiguous'],
  ['XAmzContentSHA256Mismatch', 'ambiguous'],
  ['XAmzContentChecksumMismatch', 'ambiguous'],
]);

// Codes that Node gives only where a connection never came about, so that nothing was sent. EHOSTUNREACH and ENETUNREACH are
// not among them: Linux reports them on established connections too, after the request has gone out.
const unconnected: ReadonlyMap<string, Meaning> = new Map<string, Meaning>([
  ['ECONNREFUSED', 'unreachable'],
  ['EAI_AGAIN', 'unreachable'],
  ['ENOTFOUND', 'wrong-address'],
]);

/** The one place where a server's way of saying no is understood. */
export function classify(failure: Failure): Meaning {
  const { operation, name, code, status } = failure;
  if (failure.sent !== 'yes') return failure.sent === 'no' ? 'client' : 'unseen';
  const byName = meanings.get(name);
  if (byName !== undefined) return byName;
  if (status === undefined) return unconnected.get(code ?? '') ?? 'ambiguous';
  if (status === 404) {
    // A reply to HEAD has no body, so no name either.
    if (operation === 'head') return 'missing';
    // AWS, MinIO since 2025-09: If-Match on an absent key. Ceph 16 and SeaweedFS say 412 instead. The SDK makes up `NotFound`
    // for any 404 that it cannot read, a web server's page say, so only S3's own name counts.
    if (name !== 'NoSuchKey') return 'wrong-address';
    return operation === 'put' || operation === 'complete' ? 'refused' : 'missing';
  }
  // A late clock, an expired session, a wrong key or a wrong request: which of them, only a body says.
  if (operation === 'head' && (status === 400 || status === 403)) return 'unnamed';
  // SeaweedFS, Ceph and proxies before them may leave the body out.
  if (status === 412 || status === 409) return 'refused';
  if (status === 401 || status === 403) return 'no-access';
  if (status === 413 || status === 501) return 'unsupported';
  // Servers that are not S3 answer 405 to PUT; a 3xx that the SDK did not follow is another region or a login page.
  if (status === 405 || (status >= 300 && status < 400)) return 'wrong-address';
  if (status === 408) return 'ambiguous';
  // AWS, Ceph: 503 SlowDown. MinIO: 503 SlowDownWrite. Proxies: either, without a name.
  if (status === 429 || status === 503) return 'throttled';
  // Ceph 16 answers most losers of an If-Match race with 500 UnknownError: a lost race, but a real 500 looks the same.
  if (status >= 500) return 'ambiguous';
  if (status >= 400) return 'rejected';
  // A success that the SDK could not read.
  return 'ambiguous';
}
