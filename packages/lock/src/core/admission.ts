import { majorityOf } from './quorum.js';

/** What a node remembers, as INSPECT tells it. */
export interface Inspection {
  /** The server process that answered. */
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
  /** Digest of the members it was admitted among, or ''. */
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
 * It is allowed only while *all* nodes have answered and fewer than a majority is admitted, so no acquisition can be under
 * way. Then the highest surviving `max` covers every token that any surviving node has seen, and `seed` (the wall clock
 * in microseconds, or the token before the configured first one) covers those that nobody remembers.
 *
 * Invariant: the floor of an admitted node is at or above every token of earlier incarnations.
 */
export function planFirstStart(
  names: readonly string[],
  inspections: readonly Inspection[],
  members: string,
  seed: bigint,
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
  const stranger = inspections.findIndex((one) => one.members !== '' && one.members !== members);
  if (stranger !== -1) {
    return refuse(
      `node ${names[stranger]} belongs to a lock service with other members: configure the same node names in every client`,
    );
  }
  const admitted = inspections.filter((one) => one.admitted).length;
  if (admitted >= majorityOf(names.length)) return { plan: 'not-needed' };

  const floor = inspections.reduce((highest, one) => (one.max > highest ? one.max : highest), seed);
  const known = names.map((_, index) => highestGeneration(inspections, index));
  const admissions = inspections.flatMap((one, index) => {
    if (one.admitted) return [];
    const generation = (known[index] ?? 0) + 1;
    return [{ index, generation, roster: known.with(index, generation), floor }];
  });
  return { plan: 'admit', admissions };
}

function highestGeneration(inspections: readonly Inspection[], index: number): number {
  const told = inspections.map((one) => one.roster[index] ?? 0);
  return Math.max(...told, inspections[index]?.generation ?? 0);
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
