/** The kinds of requests. `part` and `complete` belong to a multipart upload. */
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

/** The failure of a request, as it can be seen from outside the SDK. */
export interface Failure {
  readonly operation: Operation;
  /**
   * True if the request was handed to the network. `unseen`: the client did not run the command
   * that it was given, so nothing is known.
   */
  readonly sent: 'yes' | 'no' | 'unseen';
  /** The error's name: the error code of S3, else `Unknown` or a name that the SDK made up. */
  readonly name: string;
  /** Node's error code, if the connection failed. */
  readonly code: string | undefined;
  /** The HTTP status, if there was a reply. */
  readonly status: number | undefined;
}

/**
 * The meaning of a failed request.
 *
 * - `refused`: the condition did not hold, or another request was quicker.
 * - `missing`: the object is not there.
 * - `ambiguous`: the request may or may not have been applied. A write must be read back.
 * - `throttled`: as `ambiguous`, and the server asks its clients to slow down.
 * - `unaccepted`: the server refused this copy of the request before it looked at the object.
 *   Nothing was applied, and another attempt may succeed: with a corrected clock, new credentials,
 *   or after a redirection has ended.
 * - `unreachable`: nothing was sent, because no server listens there. Another attempt may succeed.
 * - `unseen`: as `ambiguous`: the client sends other commands than it is given. The set-up is
 *   wrong.
 * - `unnamed`: `HEAD` was refused, and a reply without a body does not say why. `GET` does.
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
  | 'unaccepted'
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

// The name is matched before the status. The SDK turns a 200 with an error body into a 503 with the
// body's name (AWS, for CompleteMultipartUpload, aws-sdk-java-v2#6023), so its status is wrong.
const meanings: ReadonlyMap<string, Meaning> = new Map<string, Meaning>([
  // AWS, MinIO, Ceph: the condition did not hold.
  ['PreconditionFailed', 'refused'],
  // AWS: a DELETE or PUT of the same key was in flight. CoreWeave: all losers of a race.
  ['ConditionalRequestConflict', 'refused'],
  // AWS, OVH: another conditional request is in progress.
  ['OperationAborted', 'refused'],
  // All servers: the upload was completed or aborted, perhaps by another copy of the request.
  ['NoSuchUpload', 'refused'],
  ['NoSuchBucket', 'no-bucket'],
  ['InvalidBucketName', 'no-bucket'],
  ['AccessDenied', 'no-access'],
  ['InvalidAccessKeyId', 'no-access'],
  ['SignatureDoesNotMatch', 'no-access'],
  // AWS: 400, not 403, for temporary credentials that are garbled, or have run out. The client may
  // have got others by the next attempt.
  ['InvalidToken', 'no-access'],
  ['ExpiredToken', 'unaccepted'],
  // AWS: 403 to GET and to UploadPartCopy of an object in Glacier or in an archive tier.
  ['InvalidObjectState', 'archived'],
  // Ceph: 403. MinIO: 400.
  ['QuotaExceeded', 'quota'],
  ['XMinioAdminBucketQuotaExceeded', 'quota'],
  // AWS: the bucket lives in another region.
  ['PermanentRedirect', 'wrong-address'],
  ['AuthorizationHeaderMalformed', 'wrong-address'],
  // Backblaze B2: the reply to conditional writes.
  ['NotImplemented', 'unsupported'],
  ['EntityTooLarge', 'unsupported'],
  // AWS: a new bucket whose name has not spread yet.
  ['TemporaryRedirect', 'unaccepted'],
  // 403 before the body is read: a wrong clock, which the SDK corrects for the next attempt.
  ['RequestTimeTooSkewed', 'unaccepted'],
  // 400: the body is not the one that was signed, so it is not stored.
  ['XAmzContentSHA256Mismatch', 'unaccepted'],
  // 400 about this copy of the request only, which was late, cut or damaged on its way.
  ['RequestTimeout', 'ambiguous'],
  ['IncompleteBody', 'ambiguous'],
  ['BadDigest', 'ambiguous'],
  ['XAmzContentChecksumMismatch', 'ambiguous'],
]);

// Codes of Node for connections that were never made, so nothing was sent. EHOSTUNREACH and
// ENETUNREACH are not among them: Linux reports them on established connections, too.
const unconnected: ReadonlyMap<string, Meaning> = new Map<string, Meaning>([
  ['ECONNREFUSED', 'unreachable'],
  ['EAI_AGAIN', 'unreachable'],
  ['ENOTFOUND', 'wrong-address'],
]);

/** Classifies the failure of a request. All differences between servers are here. */
export function classify(failure: Failure): Meaning {
  const { operation, name, code, status } = failure;
  if (failure.sent !== 'yes') return failure.sent === 'no' ? 'client' : 'unseen';
  const byName = meanings.get(name);
  if (byName !== undefined) return byName;
  if (status === undefined) return unconnected.get(code ?? '') ?? 'ambiguous';
  if (status === 404) {
    // A reply to HEAD has no body, so no name either.
    if (operation === 'head') return 'missing';
    // AWS, MinIO since 2025-09: If-Match on an absent key. Ceph 16 and SeaweedFS answer 412. The
    // SDK makes up `NotFound` for a 404 that it cannot read, so only the name of S3 counts.
    if (name !== 'NoSuchKey') return 'wrong-address';
    return operation === 'put' || operation === 'complete' ? 'refused' : 'missing';
  }
  // A wrong clock, session, key or request. Only a body says which.
  if (operation === 'head' && (status === 400 || status === 403)) return 'unnamed';
  // SeaweedFS, Ceph and proxies may leave out the body.
  if (status === 412 || status === 409) return 'refused';
  if (status === 401 || status === 403) return 'no-access';
  if (status === 413 || status === 501) return 'unsupported';
  if (status === 307) return 'unaccepted';
  // A server that is not S3 answers 405 to PUT. A 3xx is another region, or a login page.
  if (status === 405 || (status >= 300 && status < 400)) return 'wrong-address';
  if (status === 408) return 'ambiguous';
  // AWS, Ceph: 503 SlowDown. MinIO: 503 SlowDownWrite. Proxies: 429 or 503, without a name.
  if (status === 429 || status === 503) return 'throttled';
  // Ceph 16 answers most losers of an If-Match race with 500 UnknownError, as after a real error.
  if (status >= 500) return 'ambiguous';
  if (status >= 400) return 'rejected';
  // A success that the SDK could not read.
  return 'ambiguous';
}
