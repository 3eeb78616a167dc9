import { majorityOf } from './quorum.js';

/** What a node remembers, as INSPECT tells it. */
export interface Inspection {
  /** The server process that answered, and its replication history. */
  readonly runId: string;
  /** Random name of this life of the node's data. */
  readonly incarnation: string;
  readonly admitted: boolean;
  /** Of the last admitted incarnation whose data survived; 0 where nothing did. */
  readonly generation: number;
  /** Highest generation known of every node, in the order of the sorted names; empty where nothing is known. */
  readonly roster: readonly number[];
  /** The highest token this node remembers. */
  readonly max: bigint;
  /** Digest of the names it was admitted under, or ''. */
  readonly members: string;
}

export interface Admission {
  /** The node's place among the sorted names. */
  readonly index: number;
  readonly generation: number;
  readonly roster: readonly number[];
  readonly floor: bigint;
}

export type FirstStart =
  | { readonly plan: 'admit'; readonly admissions: readonly Admission[] }
  /** A majority votes already: nodes that do not are no case for a first start. */
  | { readonly plan: 'not-needed' }
  | { readonly plan: 'refuse'; readonly reason: string };

/**
 * Plans a first start: the nodes that have no memory of an admission in this incarnation begin to vote.
 *
 * It is allowed only while *all* nodes have answered and fewer than a majority is admitted, and it assumes that no old master
 * of a failed-over node goes on answering: with it and a node that kept its memory, others could go on acquiring. Then the highest surviving `max` covers every token that any surviving node has seen, and the wall clock in
 * microseconds those that nobody remembers. `firstToken` replaces the clock where no node remembers anything at all.
 *
 * Invariant: the floor of an admitted node is at or above every token of earlier incarnations.
 */
export function planFirstStart(
  names: readonly string[],
  inspections: readonly Inspection[],
  seed: { readonly wallClockUs: bigint; readonly firstToken: bigint | null },
): FirstStart {
  const twin = inspections.findIndex(
    (one, at) => inspections.findIndex((other) => other.runId === one.runId) !== at,
  );
  if (twin !== -1) {
    const first = inspections.findIndex((one) => one.runId === inspections[twin]?.runId);
    return refuse(
      `nodes ${names[first]} and ${names[twin]} are the same Redis server: give each node a server of its own`,
    );
  }
  const admitted = inspections.filter((one) => one.admitted).length;
  if (admitted >= majorityOf(names.length)) return { plan: 'not-needed' };

  const max = inspections.reduce((highest, one) => (one.max > highest ? one.max : highest), 0n);
  const isNew = max === 0n && inspections.every((one) => one.generation === 0);
  const seeded = isNew && seed.firstToken !== null ? seed.firstToken - 1n : seed.wallClockUs;
  const floor = max > seeded ? max : seeded;
  const roster = inspections.map((one, index) =>
    one.admitted ? one.generation : firstStartGeneration(index, inspections),
  );
  const admissions = inspections.flatMap((one, index) =>
    one.admitted ? [] : [{ index, generation: roster[index] ?? 0, roster, floor }],
  );
  return { plan: 'admit', admissions };
}

/**
 * Every node learns the generations of all, so that a node which later loses its memory begins above its own.
 *
 * A generation that others know and the node itself does not may be one that another client is assigning right now: it
 * is used again, or the two would make nodes that never agree. Should the node have voted in it and forgotten, the
 * floor is above all those votes, as long as that older life of it does not go on answering.
 */
function firstStartGeneration(index: number, inspections: readonly Inspection[]): number {
  const known = Math.max(...inspections.map((one) => one.roster[index] ?? 0));
  const own = inspections[index]?.generation ?? 0;
  return known > own ? known : own + 1;
}

function refuse(reason: string): FirstStart {
  return { plan: 'refuse', reason };
}

/** Whether nothing that a first start rests on has changed between two looks at the same nodes. */
export function unchanged(before: readonly Inspection[], after: readonly Inspection[]): boolean {
  return before.every((one, at) => {
    const other = after[at];
    return (
      one.runId === other?.runId &&
      one.incarnation === other.incarnation &&
      one.admitted === other.admitted
    );
  });
}
