import type { Protection } from '../../../demo/src/job.ts';

/**
 * Kinds of faults in the sandbox:
 *
 * - `pause`: a client's process stops for `ms`.
 * - `delay`: requests of a client to the storage wait for `ms`.
 * - `lose`: replies of the storage to a client are lost for `ms`; then the connection breaks.
 * - `block`: nothing gets through between a client and a lock node for `ms`.
 * - `wipe`: a lock node restarts without its data.
 * - `jump`: the clock of a lock node jumps ahead by `ms`.
 */
export const faultKinds = ['pause', 'delay', 'lose', 'block', 'wipe', 'jump'] as const;

export interface SandboxFault {
  readonly kind: (typeof faultKinds)[number];
  readonly client: 1 | 2;
  /** The letter of a node. */
  readonly node: string;
  /** Milliseconds since the run began. */
  readonly atMs: number;
  readonly ms: number;
}

export interface Sandbox {
  readonly seed: number;
  readonly protection: Protection;
  /** Nodes that forgot their leases vote at once. */
  readonly votesAtOnce: boolean;
  readonly faults: readonly SandboxFault[];
}

/** Names a fault in a few words. */
export function describe({ kind, client, node, ms }: SandboxFault): string {
  const letter = node.toUpperCase();
  const time = `${ms.toLocaleString('en')} ms`;
  return {
    pause: `client ${client} is stopped for ${time}`,
    delay: `packets of client ${client} to the storage wait ${time}`,
    lose: `replies of the storage to client ${client} are lost for ${time}`,
    block: `client ${client} and ${letter} are cut off for ${time}`,
    wipe: `${letter} restarts without its data`,
    jump: `the clock of ${letter} jumps ahead by ${time}`,
  }[kind];
}
