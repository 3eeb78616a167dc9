import type { FaultKind } from './faults.ts';
import type { NodeFlaw } from './redis-process.ts';
import type { Settings } from './settings.ts';
import type { Patch } from './sources.ts';
import type { WorldKind } from './world.ts';

/** The client or the nodes without one protective step of the protocol. */
export interface Mutant {
  readonly name: string;
  readonly flaw?: NodeFlaw;
  /** The change of the Lua scripts that has the effect of `flaw` on real nodes. */
  readonly script?: Patch;
  readonly patch?: Patch;
  /** True if only worlds in which the locks move to another node set can show it. */
  readonly moves?: boolean;
  /** A fault without which no world shows it. */
  readonly needs?: FaultKind;
  /** The worlds that show it soon. Without it, all settings and faults are drawn. */
  readonly world?: Pick<WorldKind, 'settings' | 'faults'>;
  /** The reason why the mutant may survive. */
  readonly excuse?: string;
}

const tally = '/core/tally.ts';
const quorum = '/core/quorum.ts';
const readmission = '/core/readmission.ts';
const scripts = '/redis/scripts.generated.ts';

/** After a failover, some clients still reach the old master, and readmit it in turn. */
const twoMasters: Partial<Settings> = {
  ...{ nodeCount: 3, clientCount: 2, workerCount: 1, resourceCount: 1, maxTtlMs: 40 },
  ...{ losses: 'any', durable: true, firstToken: null, hasStranger: false },
  ...{ areNodesSound: false, areLossesWaitedFor: false },
};

export const mutants: readonly Mutant[] = [
  {
    name: 'no confirm round',
    patch: {
      file: tally,
      replace: [['else confirmations.push({', 'confirmations.push({']],
    },
  },
  {
    name: 'confirm without holding the lock',
    flaw: 'confirm-without-lock',
    excuse:
      'a second defence: CONFIRM issues no token twice. If the lock has expired on a node, the time of its lease is used up as well',
  },
  { name: 'no readmission check', flaw: 'no-readmission-check' },
  { name: 'a writable replica votes', flaw: 'replica-votes', needs: 'replica-for-a-while' },
  {
    name: 'floor not restored',
    flaw: 'floor-not-restored',
    script: {
      file: scripts,
      replace: [['math.max(tonumber(floor), tonumber(fields', 'math.max(0, tonumber(fields']],
    },
  },
  {
    name: 'roster ignored',
    patch: {
      file: quorum,
      replace: [['!chosen.every((other) => agree(other, voter))', '!agree(voter, voter)']],
    },
  },
  {
    name: 'roster not restored',
    world: {
      settings: { ...twoMasters, clientCount: 3, faultCount: 80 },
      faults: ['failover', 'lose-lock', 'lose-record', 'crash'],
    },
    patch: {
      file: readmission,
      replace: [
        [
          'roster: Array.from({ length: nodeCount }, (_, index) => latestOf(index)),',
          "roster: Array.from({ length: nodeCount }, () => ({ generation: 0, incarnation: '' })),",
        ],
      ],
    },
  },
  {
    name: 'promises from superseded incarnations accepted',
    patch: {
      file: readmission,
      replace: [
        [
          'if (consistentQuorum(voters, majorityOf(inspections.length))) {',
          'if (voters.length >= majorityOf(inspections.length)) {',
        ],
        [
          'const quorum = consistentQuorum(voters, majorityOf(nodeCount));',
          'const quorum = voters.length >= majorityOf(nodeCount) ? voters : null;',
        ],
        // Otherwise they lose their votes before they are asked.
        ['return outlivedIn(voters, witnesses);', 'return witnesses.length < 0 ? voters : [];'],
      ],
    },
  },
  {
    name: 'promise whatever is nominated',
    flaw: 'promise-not-strict',
    world: { settings: twoMasters, faults: ['failover', 'lose-lock'] },
  },
  {
    name: 'stored token preferred to the floor',
    flaw: 'fence-before-floor',
    script: {
      file: scripts,
      replace: [
        ['last and math.max(last, tonumber(node[6])) or max', 'last or max'],
        ['return last and math.max(last, voter.floor) or voter.max', 'return last or voter.max'],
        ['if last and last < floor then last = floor end', ''],
      ],
    },
  },
  {
    name: 'members ignored',
    flaw: 'members-ignored',
    // Otherwise a roster with another number of nodes is no valid reply.
    patch: {
      file: '/redis/replies.ts',
      replace: [
        [
          'if (entries.length !== service.names.length) throw unexpected(value);',
          "while (entries.length < service.names.length) entries.push('0:');",
        ],
      ],
    },
  },
  { name: 'the first waiter takes a held lock', flaw: 'first-takes-held' },
  { name: 'a lease is written back after a later grant', flaw: 'backfill-whatever-was-given' },
  {
    name: 'a lease is written back after a forgotten later grant',
    flaw: 'backfill-what-was-forgotten',
    excuse:
      'between its number and BACKFILL, a node must forget a later lease. The first lease must lose its lock on another node. single-node.test.ts detects it at once',
  },
  {
    name: 'a lease is written back by the number of another incarnation',
    flaw: 'backfill-by-number-of-another-incarnation',
    excuse:
      'between its number and BACKFILL, a node must restart, vote, and issue lower numbers than before. single-node.test.ts detects it at once',
  },
  {
    name: 'a lease is written back without being extended first',
    patch: {
      file: '/redlock/extend.ts',
      replace: [
        [
          'const extended = await extendOnAll(nodes, ownership, ttlMs);',
          'const extended = { ok: true, deadlineMs: nodes.runtime.nowMs() + 1 };',
        ],
      ],
    },
    excuse:
      'a second defence after a successful extension: during that extension, a lock must be lost, and another lease must come and go',
  },
  { name: 'lock table rotated before its leases end', flaw: 'lock-table-rotated-early' },
  {
    name: 'lock table of a full node rotated before its leases end',
    flaw: 'full-lock-table-rotated-early',
  },
  {
    name: 'a forgotten resource begins below the highest token of its node',
    flaw: 'forgotten-token-below-highest',
  },
  {
    name: 'a successor has no token of its own',
    flaw: 'followers-without-tokens',
    script: {
      file: scripts,
      replace: [['highest + 1 + (tonumber(followers_max) or 0)', 'highest + 1']],
    },
  },
  {
    name: 'a confirmed token is taken for the last of several',
    patch: {
      file: '/redlock/acquire.ts',
      replace: [['isConfirmed ? null : position', 'position']],
    },
    excuse:
      'a second defence: between ACQUIRE and CONFIRM, a lost lock must come back under the same owner. Meanwhile another client must have held it',
  },
  {
    name: 'validity taken from the wall clock',
    patch: {
      file: '/redlock/acquire.ts',
      replace: [
        [
          'const startedMs = nodes.runtime.nowMs();',
          'const startedMs = nodes.runtime.wallClockMs();',
        ],
        ['nowMs - startedMs', 'nodes.runtime.wallClockMs() - startedMs'],
      ],
    },
  },
  {
    name: 'confirm may repeat a token',
    flaw: 'confirm-may-repeat',
    excuse:
      'a second defence: a lost lock must come back under the same owner. Each acquisition has an owner id of its own',
  },
  {
    name: 'no seal',
    flaw: 'votes-though-sealed',
    moves: true,
  },
  {
    name: 'floor not carried',
    moves: true,
    patch: {
      file: '/core/move.ts',
      replace: [
        [
          'return { floor, longestMs: carriedMs(longestMs), isComplete };',
          'return { floor: 0n, longestMs: carriedMs(longestMs), isComplete };',
        ],
      ],
    },
  },
  {
    name: 'sealed votes counted',
    flaw: 'sealed-votes-after-restart',
    moves: true,
    excuse:
      'a move begins only while a majority votes. So a node must restart with a snapshot from before its vote between the first look and its seal, and the other nodes that know the token must be silent from then on. core/move.test.ts covers the rule',
  },
  {
    name: 'leases not carried',
    moves: true,
    patch: {
      file: '/redlock/move.ts',
      replace: [['mergeLeases(deciding, total)', 'mergeLeases([], total)']],
    },
  },
  {
    name: 'leases carried from one node',
    moves: true,
    patch: {
      file: '/redlock/move.ts',
      replace: [
        ['? decidingLeases(sealed, total) : null', '? sealed : null'],
        [
          'seals.filter(({ voting }) => voting)',
          'seals.filter(({ voting }) => voting).slice(0, 1)',
        ],
      ],
    },
  },
  {
    name: 'the next set starts by itself',
    moves: true,
    patch: {
      file: '/redlock/readmission-round.ts',
      replace: [['!this.#arrival && isBeforeMove(seen)', 'seen.length === 0']],
    },
  },
  {
    name: 'confirm may lower what a node has stored',
    flaw: 'confirm-may-lower',
    excuse:
      'an acquisition must confirm twice at one node, and the lower token must be carried out last. The next two acquisitions must meet there',
  },
];

/** Returns the change of the client that makes it the mutant on real nodes; null without one. */
export function realPatchOf({ flaw, script, patch }: Mutant): Patch | null {
  return (flaw ? script : patch) ?? null;
}

export function mutantNamed(name: string): Mutant {
  const found = mutants.find((mutant) => mutant.name === name);
  if (!found) throw new Error(`there is no mutant: ${name}`);
  return found;
}
