import { encodedPath, segmentsOf } from '@fenced/client/protocol/path';
import { checkAllowed, type Exchange } from './exchange.js';
import { Problem } from './problem.js';
import type { Services } from './services.js';
import { SignatureError } from './token-signer.js';

/**
 * The token that a write or a claim presents. It must belong to the lease that guards the resource.
 * If that can be any lease, `Fencing-Resource` names one that the caller may take.
 *
 * @throws {Problem} `token-required`, `wrong-lease`, `invalid-token`, `forbidden`
 * @throws {InvalidTokenError}
 */
export function presentedToken(
  { message, caller, resource }: Exchange,
  services: Services,
): bigint {
  const text = message.get('fencing-token');
  if (text === undefined)
    throw new Problem('token-required', 'send the token of the lease in the header Fencing-Token');
  const encoded = message.get('fencing-resource');
  const named = encoded === undefined ? undefined : segmentsOf(`/${encoded}`).join('/');
  const guard = services.leaseOf(resource);
  if (guard === null && named !== undefined) checkAllowed(caller, 'lease', `leases/${named}`);
  else if (named !== undefined && named !== guard)
    throw new Problem(
      'wrong-lease',
      `the lease ${guard} guards ${resource}: acquire that lease, and present its token. To let another lease guard ${resource}, an operator adds a rule to bindings in the gateway's configuration`,
      { members: { resource, lease: guard } },
    );
  // If any lease may guard the value, and the request names none, the token must belong to the
  // lease with the value's name.
  const lease = named ?? guard ?? resource.slice(resource.indexOf('/') + 1);
  try {
    return services.signer.verify(text, { purpose: 'token', resource: lease });
  } catch (error) {
    if (!(error instanceof SignatureError)) throw error;
    throw new Problem('invalid-token', `${error.message} lease=${lease}`, {
      members: { fault: error.fault, lease },
      cause: error,
    });
  }
}

/** A read writes nothing, so it takes no token. @throws {Problem} `invalid-request` */
export function refuseToken({ message, resource }: Exchange): void {
  if (message.get('fencing-token') !== undefined)
    throw new Problem(
      'invalid-request',
      `a read takes no Fencing-Token, because it writes nothing: POST /v1/${encodedPath(resource)}/claim-and-get claims and reads`,
    );
}
