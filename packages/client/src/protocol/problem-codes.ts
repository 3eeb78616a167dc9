import '../node-version.js';
/** What can go wrong, as far as a client would act differently. docs/gateway.md explains each. */
export type ProblemCode =
  | 'invalid-request'
  | 'invalid-path'
  | 'invalid-token'
  | 'unauthenticated'
  | 'forbidden'
  | 'wrong-lease'
  | 'not-found'
  | 'no-such-route'
  | 'method-not-allowed'
  | 'request-timeout'
  | 'held'
  | 'conflict'
  | 'lease-lost'
  | 'stale-token'
  | 'precondition-failed'
  | 'body-too-large'
  | 'unsupported-media-type'
  | 'range-not-satisfiable'
  | 'expectation-failed'
  | 'unsupported'
  | 'token-required'
  | 'too-many-requests'
  | 'headers-too-large'
  | 'internal'
  | 'corrupt-object'
  | 'ratchet-lost'
  | 'no-quorum'
  | 'lock-setup'
  | 'store-setup'
  | 'unsafe-store'
  | 'unavailable'
  | 'overloaded'
  | 'shutting-down'
  | 'outcome-unknown';

/** Status and title of each. */
const PROBLEMS: Readonly<Record<ProblemCode, readonly [status: number, title: string]>> = {
  'invalid-request': [400, 'The request is malformed'],
  'invalid-path': [400, 'The path is not a name that can be stored'],
  'invalid-token': [400, 'Not a fencing token'],
  unauthenticated: [401, 'Credentials are missing or unknown'],
  forbidden: [403, 'The credentials do not allow this'],
  'wrong-lease': [403, 'The token is not of the lease that guards this'],
  'not-found': [404, 'There is nothing under this name'],
  'no-such-route': [404, 'There is no such route'],
  'method-not-allowed': [405, 'This method is not for this path'],
  'request-timeout': [408, 'The request did not arrive in time'],
  held: [409, 'Somebody else holds the lease'],
  conflict: [409, 'Others were in the way each time; nothing was written'],
  'lease-lost': [410, 'The lease is over'],
  'stale-token': [412, 'A later holder has written or claimed'],
  'precondition-failed': [412, 'What is stored is not the version that the request names'],
  'body-too-large': [413, 'The body is larger than it may be'],
  'unsupported-media-type': [415, 'The body is not of a type that can be stored here'],
  'range-not-satisfiable': [416, 'The range lies outside of the body'],
  'expectation-failed': [417, 'The expectation cannot be met'],
  unsupported: [422, 'The store cannot do that'],
  'token-required': [428, 'A write needs a fencing token'],
  'too-many-requests': [429, 'Too many requests'],
  'headers-too-large': [431, 'The headers are larger than they may be'],
  internal: [500, 'The gateway failed'],
  'corrupt-object': [502, 'What is stored is damaged, or nothing of ours'],
  'ratchet-lost': [502, 'Somebody lowered or removed a token that was known'],
  'no-quorum': [503, 'Too few lock nodes voted'],
  'lock-setup': [503, 'The lock nodes are not set up as this gateway is'],
  'store-setup': [503, 'The store is not set up as it must be'],
  'unsafe-store': [503, 'The store does not enforce what the token check rests on'],
  unavailable: [503, 'The store did not answer; nothing was written'],
  overloaded: [503, 'The gateway does too much at once'],
  'shutting-down': [503, 'This gateway is shutting down'],
  'outcome-unknown': [504, 'The write may or may not be applied'],
};

export const codes = Object.keys(PROBLEMS) as readonly ProblemCode[];

export function statusOf(code: ProblemCode): number {
  return PROBLEMS[code][0];
}

export function titleOf(code: ProblemCode): string {
  return PROBLEMS[code][1];
}

/** The beginning of the `type` of every problem document. Its code follows. */
const TYPE = 'urn:fenced:problem:';

export function typeOf(code: ProblemCode): string {
  return `${TYPE}${code}`;
}

/** The code in the `type` of a problem document; null if no gateway of ours wrote it. */
export function codeIn(type: unknown): ProblemCode | null {
  const isOurs = typeof type === 'string' && type.startsWith(TYPE);
  return isOurs ? (type.slice(TYPE.length) as ProblemCode) : null;
}
