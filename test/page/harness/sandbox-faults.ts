import fc from 'fast-check';
import { hasLength } from '../../../packages/page/src/view/route.ts';
import {
  faultKinds,
  messageFaults,
  nodeFaults,
  type SandboxFault,
} from '../../../packages/page/src/world/sandbox-fault.ts';

/** A fault that a link can have. */
export function sandboxFault(
  kinds: readonly SandboxFault['kind'][] = faultKinds,
  atMsMax = 60_000,
): fc.Arbitrary<SandboxFault> {
  return fc
    .record({
      kind: fc.constantFrom(...kinds),
      client: fc.constantFrom(1 as const, 2 as const),
      node: fc.constantFrom('a', 'b', 'c', 's'),
      isReply: fc.boolean(),
      atMs: fc.nat(atMsMax),
      ms: fc.nat(3_600_000),
    })
    .map(({ kind, client, node, isReply, atMs, ms }) => {
      // A link has only the fields that matter for the kind. The others get their default here.
      const isOfMessage = messageFaults.has(kind);
      const hasNode = nodeFaults.has(kind) || isOfMessage || kind === 'block';
      return {
        kind,
        atMs,
        client: nodeFaults.has(kind) ? 1 : client,
        node: hasNode && (node !== 's' || isOfMessage) ? node : 'a',
        ms: hasLength(kind) ? ms : 0,
        ...(isReply && isOfMessage && kind !== 'twice' && { isReply }),
      };
    });
}
