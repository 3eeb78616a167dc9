import { documentation } from './documentation.ts';

/** Mutants that leave out a part of one step of the protocol. */
export interface MutantGroup {
  readonly step: string;
  /** The messages of the step, in their order. */
  readonly messages: string;
  /** Explains the step, and the words in the names of its mutants. */
  readonly purpose: string;
  /** The page of the documentation about it. */
  readonly href: string;
  readonly mutants: readonly string[];
}

/** The steps of the protocol, from the first acquisition to the move of the locks. */
export const mutantGroups: readonly MutantGroup[] = [
  {
    step: 'Acquire a token',
    messages: 'ACQUIRE → granted 34, 32, 32 → CONFIRM 34 → stored',
    purpose:
      'Each node grants a number above its last one. The highest is the token, and it counts once a majority has stored it.',
    href: documentation('tokens.md#acquire'),
    mutants: [
      'no confirm round',
      'confirm without holding the lock',
      'confirm may repeat a token',
      'confirm may lower what a node has stored',
      'a confirmed token is taken for the last of several',
      'members ignored',
    ],
  },
  {
    step: 'Wait for a held lock',
    messages: 'ENQUEUE → queued → the holder releases → granted',
    purpose:
      'A waiter has a position in the queue of each node. The first waiter, the successor, gets the lock when it is free.',
    href: documentation('wait-queue.md'),
    mutants: ['the first waiter takes a held lock', 'a successor has no token of its own'],
  },
  {
    step: 'Measure and keep the lease',
    messages: 'EXTEND → extended → BACKFILL → taken back',
    purpose:
      'The client measures its lease from the request, by a clock that never jumps. A lease that a node lost is written back to it by BACKFILL.',
    href: documentation('tokens.md#leases-survive-restarts'),
    mutants: [
      'validity taken from the wall clock',
      'a lease is written back after a later grant',
      'a late grant counts for an extension',
      'a lease is written back after a forgotten later grant',
      'a lease is written back by the number of another incarnation',
      'a lease is written back without being extended first',
    ],
  },
  {
    step: 'Forget old names',
    messages: 'lock table → table before → dropped',
    purpose:
      'A node drops its old lock table to save memory. It may drop no valid lease, and a forgotten name must not begin at a low token again.',
    href: documentation('tokens.md#what-a-node-keeps'),
    mutants: [
      'lock table rotated before its leases end',
      'lock table of a full node rotated before its leases end',
      'the loss of the older lock table goes unnoticed',
      'a forgotten resource begins below the highest token of its node',
    ],
  },
  {
    step: 'Readmit a node that lost its memory',
    messages: 'INSPECT → PROMISE → ADMIT, above a floor',
    purpose:
      'A start, a flush or a failover begins a new incarnation of a node. It does not vote until a majority admits it. The floor is the token above which it begins. The roster is the list of the latest incarnations that a node knows.',
    href: documentation('tokens.md#a-node-that-lost-its-memory'),
    mutants: [
      'no readmission check',
      'a writable replica votes',
      'floor not restored',
      'stored token preferred to the floor',
      'roster ignored',
      'roster not restored',
      'roster ties kept by place',
      'promises from superseded incarnations accepted',
      'promise whatever is nominated',
    ],
  },
  {
    step: 'Move to other nodes',
    messages: 'SEAL → floor and leases of a majority → the next set starts',
    purpose:
      'A seal ends the votes of the old nodes for good. The next set of nodes begins above their highest token, and with their leases.',
    href: documentation('tokens.md#moving-to-other-nodes'),
    mutants: [
      'no seal',
      'sealed votes counted',
      'floor not carried',
      'leases not carried',
      'leases carried from one node',
      'the next set starts by itself',
    ],
  },
];
