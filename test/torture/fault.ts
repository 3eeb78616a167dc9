import type { Random } from '../simulation/random.ts';
import type { World } from './world.ts';

/** A fault that a run has made. */
export interface Fault {
  readonly kind: string;
  /** Name of the client, the node or the proxy that the fault has hit. */
  readonly target: string;
  readonly fromNs: number;
  readonly toNs: number;
  /** Bytes that a proxy discarded or held. */
  readonly bytes?: number;
}

/** Makes a fault, and ends it again. */
export type Make = (world: World, random: Random) => Promise<Pick<Fault, 'target' | 'bytes'>>;
