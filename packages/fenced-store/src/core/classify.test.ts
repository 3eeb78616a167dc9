import { expect, test } from 'vitest';
import { classify, type Failure, type Meaning } from './classify.js';

type Row = readonly [string, Partial<Failure>, Meaning];
const rows: readonly Row[] = [
  ['AWS, MinIO, Ceph: 412', { name: 'PreconditionFailed', status: 412 }, 'refused'],
  [
    'AWS: an error in a 200, which the SDK shows as 503',
    { name: 'PreconditionFailed', status: 503 },
    'refused',
  ],
  ['412 without a body', { status: 412 }, 'refused'],
  ['AWS: 409', { name: 'ConditionalRequestConflict', status: 409 }, 'refused'],
  ['OVH: 409', { name: 'OperationAborted', status: 409 }, 'refused'],
  ['409 without a body', { status: 409 }, 'refused'],
  ['AWS: If-Match on an absent key', { name: 'NoSuchKey', status: 404 }, 'refused'],
  ['GET of an absent key', { operation: 'get', name: 'NoSuchKey', status: 404 }, 'missing'],
  ['HEAD of an absent key', { operation: 'head', name: 'NotFound', status: 404 }, 'missing'],
  ['HEAD of an absent key, unnamed', { operation: 'head', status: 404 }, 'missing'],
  ['absent bucket', { name: 'NoSuchBucket', status: 404 }, 'no-bucket'],
  ['404 of a web server to PUT', { name: 'NotFound', status: 404 }, 'wrong-address'],
  [
    '404 of a web server to GET',
    { operation: 'get', name: 'NotFound', status: 404 },
    'wrong-address',
  ],
  ['405 of a web server', { status: 405 }, 'wrong-address'],
  ['login page', { status: 302 }, 'wrong-address'],
  ['another region', { name: 'PermanentRedirect', status: 301 }, 'wrong-address'],
  ['unknown key', { name: 'InvalidAccessKeyId', status: 403 }, 'no-access'],
  ['wrong secret', { name: 'SignatureDoesNotMatch', status: 403 }, 'no-access'],
  ['HEAD with wrong keys, unnamed', { operation: 'head', status: 403 }, 'unnamed'],
  ['HEAD with a session that has run out, unnamed', { operation: 'head', status: 400 }, 'unnamed'],
  ['AWS: session has run out, a 400', { name: 'ExpiredToken', status: 400 }, 'unaccepted'],
  [
    'AWS: an archived object',
    { operation: 'get', name: 'InvalidObjectState', status: 403 },
    'archived',
  ],
  ['Ceph: the quota is used up', { name: 'QuotaExceeded', status: 403 }, 'quota'],
  ['MinIO: the same', { name: 'XMinioAdminBucketQuotaExceeded', status: 400 }, 'quota'],
  ['clock is off, a 403', { name: 'RequestTimeTooSkewed', status: 403 }, 'unaccepted'],
  ['AWS: the body came too slowly, a 400', { name: 'RequestTimeout', status: 400 }, 'ambiguous'],
  ['Backblaze: 501', { name: 'NotImplemented', status: 501 }, 'unsupported'],
  ['too large', { name: 'EntityTooLarge', status: 400 }, 'unsupported'],
  ['too much metadata', { name: 'MetadataTooLarge', status: 400 }, 'rejected'],
  ['Ceph 16: most losers of a race', { name: 'UnknownError', status: 500 }, 'ambiguous'],
  ['a real 500', { name: 'InternalError', status: 500 }, 'ambiguous'],
  ['throttled', { name: 'SlowDown', status: 503 }, 'throttled'],
  ['throttled by a proxy', { status: 429 }, 'throttled'],
  ['a success that could not be read', { name: 'SyntaxError', status: 200 }, 'ambiguous'],
  ['reset', { name: 'TimeoutError', code: 'ECONNRESET' }, 'ambiguous'],
  ['timed out or aborted', { name: 'AbortError' }, 'ambiguous'],
  ['nobody listens', { name: 'Error', code: 'ECONNREFUSED' }, 'unreachable'],
  ['no such host', { name: 'Error', code: 'ENOTFOUND' }, 'wrong-address'],
  ['name service is down', { name: 'Error', code: 'EAI_AGAIN' }, 'unreachable'],
  ['Linux: also on an open connection', { name: 'Error', code: 'EHOSTUNREACH' }, 'ambiguous'],
  ['Linux: also on an open connection', { name: 'Error', code: 'ENETUNREACH' }, 'ambiguous'],
  ['TLS fails, at the start or later', { name: 'Error', code: 'EPROTO' }, 'ambiguous'],
  [
    'no region or credentials, so nothing was sent',
    { sent: 'no', name: 'CredentialsProviderError' },
    'client',
  ],
  [
    'a client that runs other commands than it is given',
    { sent: 'unseen', name: 'Error' },
    'unseen',
  ],
  [
    'Complete of an upload that is gone',
    { operation: 'complete', name: 'NoSuchUpload', status: 404 },
    'refused',
  ],
  [
    'Complete upon an absent key',
    { operation: 'complete', name: 'NoSuchKey', status: 404 },
    'refused',
  ],
];

test.each(rows)('%s', (_, failure, meaning) => {
  const put = {
    operation: 'put',
    sent: 'yes',
    name: 'Unknown',
    code: undefined,
    status: undefined,
  } as const;
  expect(classify({ ...put, ...failure })).toBe(meaning);
});

test('a write that a server may have applied is never called refused, missing or rejected', () => {
  for (let status = 500; status < 600; status++) {
    const meaning = classify({
      operation: 'put',
      sent: 'yes',
      name: 'Unknown',
      code: undefined,
      status,
    });
    const others: Readonly<Record<number, string>> = { 501: 'unsupported', 503: 'throttled' };
    expect([status, meaning]).toEqual([status, others[status] ?? 'ambiguous']);
  }
});
