import '../node-version.js';
/** A code for each case in which a client would act differently. docs/gateway.md explains each. */
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

/** Status and title of each code. */
const PROBLEMS: Readonly<Record<ProblemCode, readonly [status: number, title: string]>> = {
  'invalid-request': [400, 'The request is malformed'],
  'invalid-path': [400, 'The path cannot name a stored value'],
  'invalid-token': [400, 'Not a fencing token'],
  unauthenticated: [401, 'Credentials are missing or unknown'],
  forbidden: [403, 'The credentials do not allow this'],
  'wrong-lease': [403, 'The token belongs to another lease'],
  'not-found': [404, 'Nothing is stored under this name'],
  'no-such-route': [404, 'There is no such route'],
  'method-not-allowed': [405, 'The path does not have this method'],
  'request-timeout': [408, 'The request did not arrive in time'],
  held: [409, 'Another caller holds the lease'],
  conflict: [409, 'Gave up after conflicting writes; nothing was written'],
  'lease-lost': [410, 'The lease is over'],
  'stale-token': [412, 'A later holder has written or claimed'],
  'precondition-failed': [412, 'Another version is stored than the request names'],
  'body-too-large': [413, 'The body is larger than it may be'],
  'unsupported-media-type': [415, 'The body has an unsupported type or encoding'],
  'range-not-satisfiable': [416, 'The range lies outside of the body'],
  'expectation-failed': [417, 'The expectation cannot be met'],
  unsupported: [422, 'The store cannot do that'],
  'token-required': [428, 'A write needs a fencing token'],
  'too-many-requests': [429, 'Too many requests'],
  'headers-too-large': [431, 'The headers are larger than they may be'],
  internal: [500, 'The gateway failed'],
  'corrupt-object': [502, 'The stored object is damaged, or was not written by a fenced store'],
  'ratchet-lost': [502, 'The highest token of the resource is lower than it was, or gone'],
  'no-quorum': [503, 'Too few lock nodes voted'],
  'lock-setup': [503, 'The lock nodes do not fit this gateway'],
  'store-setup': [503, 'The store is set up wrongly'],
  'unsafe-store': [503, 'The store does not enforce conditional writes'],
  unavailable: [503, 'The store did not answer; nothing was written'],
  overloaded: [503, 'The gateway has no room for more'],
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

/** The prefix of every problem's `type`. Its code follows. */
const TYPE = 'urn:fenced:problem:';

export function typeOf(code: ProblemCode): string {
  return `${TYPE}${code}`;
}

/** The code in the `type` of a problem document; null if it is not a gateway's. */
export function codeIn(type: unknown): ProblemCode | null {
  const isOurs = typeof type === 'string' && type.startsWith(TYPE);
  return isOurs ? (type.slice(TYPE.length) as ProblemCode) : null;
}
