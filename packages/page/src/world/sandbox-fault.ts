import type { Protection } from '../../../demo/src/job.ts';

/**
 * Kinds of faults in the sandbox:
 *
 * - `pause`: a client's process stops for `ms`.
 * - `delay`: requests of a client to the storage wait for `ms`.
 * - `lose`: replies of the storage to a client are lost for `ms`; then the connection breaks.
 * - `block`: nothing gets through between a client and a lock node for `ms`.
 * - `wipe`: a lock node restarts without its data.
 * - `rollback`: a lock node restarts with the data of `ms` ago.
 * - `failover`: a replica takes the place of a lock node. It lacks the writes of the last `ms`.
 * - `jump`: the clock of a lock node jumps ahead by `ms`.
 *
 * Kinds of faults of one message, the next one between two lanes:
 *
 * - `drop`: it is lost, and the connection breaks.
 * - `late`: it arrives `ms` later.
 * - `twice`: it arrives once more, `ms` later. Only for requests: nobody reads a second reply.
 */
export const faultKinds = [
  ...(['pause', 'delay', 'lose', 'block'] as const),
  ...(['wipe', 'rollback', 'failover', 'jump'] as const),
  ...(['drop', 'late', 'twice'] as const),
] as const;

type Kind = (typeof faultKinds)[number];

/** Kinds of faults of a lock node. */
export const nodeFaults: ReadonlySet<Kind> = new Set(['wipe', 'rollback', 'failover', 'jump']);
/** Kinds of faults of one message. */
export const messageFaults: ReadonlySet<Kind> = new Set(['drop', 'late', 'twice']);

export interface SandboxFault {
  readonly kind: Kind;
  readonly client: 1 | 2;
  /** The letter of a node. For a message: `s` is the storage. */
  readonly node: string;
  /** The message goes from the node to the client. */
  readonly isReply?: boolean;
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
export function describe({ kind, client, node, isReply, ms }: SandboxFault): string {
  const letter = node.toUpperCase();
  const other = node === 's' ? 'the storage' : letter;
  const way = isReply ? `${other} to client ${client}` : `client ${client} to ${other}`;
  const time = `${ms.toLocaleString('en')} ms`;
  return {
    pause: `client ${client} is stopped for ${time}`,
    delay: `packets of client ${client} to the storage wait ${time}`,
    lose: `replies of the storage to client ${client} are lost for ${time}`,
    block: `client ${client} and ${letter} are cut off for ${time}`,
    wipe: `${letter} restarts without its data`,
    rollback: `${letter} restarts with the data of ${time} ago`,
    failover: `${letter} fails over to a replica that is ${time} behind`,
    drop: `the next message from ${way} is lost`,
    late: `the next message from ${way} is ${time} late`,
    twice: `the next message from ${way} arrives again after ${time}`,
    jump: `the clock of ${letter} jumps ahead by ${time}`,
  }[kind];
}
