import type { NodeFlaw } from './redis-process.ts';
import type { Settings } from './settings.ts';
import type { Patch } from './sources.ts';
import type { WorldKind } from './world.ts';

/** A variant of the client or of the nodes that lacks one protective step of the protocol. */
export interface Mutant {
  readonly name: string;
  /** The reason for the step, and the effect of its absence. */
  readonly purpose: string;
  readonly flaw?: NodeFlaw;
  /** The change of the Lua scripts that gives real nodes the same flaw. */
  readonly script?: Patch;
  readonly patch?: Patch;
  /** True if only worlds in which the locks move to another node set can show it. */
  readonly moves?: boolean;
  /** True if the step protects mutual exclusion only: tokens grow without it, too. */
  readonly tokensGrow?: boolean;
  /** Settings and faults of worlds that show the flaw soon. Without them, all are drawn. */
  readonly world?: Pick<WorldKind, 'settings' | 'faults' | 'readmissions'>;
  /** The reason why the mutant may survive. */
  readonly excuse?: string;
}

const tally = '/core/tally.ts';
const quorum = '/core/quorum.ts';
const readmission = '/core/readmission.ts';
const scripts = '/redis/scripts.generated.ts';

/** Two clients, one resource, and three nodes, of which any number may lose its memory. */
const small: Partial<Settings> = {
  nodeCount: 3,
  clientCount: 2,
  workerCount: 1,
  resourceCount: 1,
  maxTtlMs: 40,
  losses: 'any',
  durable: true,
  firstToken: null,
  hasStranger: false,
  areNodesSound: false,
  areLossesWaitedFor: false,
};

export const mutants: readonly Mutant[] = [
  {
    name: 'no confirm round',
    purpose:
      'A token counts once a majority has stored it. Without CONFIRM, two acquisitions can get one token.',
    patch: {
      file: tally,
      replace: [['else confirmations.push({', 'confirmations.push({']],
    },
  },
  {
    name: 'confirm without holding the lock',
    purpose:
      'A node stores a confirmed token only while the acquisition holds the lock there. Without that, a late CONFIRM could count beside a newer holder.',
    flaw: 'confirm-without-lock',
    excuse:
      'a second defence: CONFIRM issues no token twice. If the lock has expired on a node, the time of its lease is used up as well',
  },
  {
    name: 'no readmission check',
    purpose:
      'A node that restarted does not vote until it is readmitted. Without the check, it votes with an old memory, and tokens repeat.',
    flaw: 'no-readmission-check',
    script: {
      file: scripts,
      replace: [['if voter.history ~= own_history() or', 'if not voter.history or']],
    },
  },
  {
    name: 'a writable replica votes',
    purpose:
      'Only a master votes. A replica takes over the data of its master, so it forgets the locks and tokens that it gave.',
    flaw: 'replica-votes',
    script: {
      file: scripts,
      replace: [["history = role == 'master' and replid or nil", 'history = replid']],
    },
    world: { faults: ['replica-for-a-while', 'failover', 'crash', 'save', 'cut'] },
  },
  {
    name: 'floor not restored',
    purpose:
      'A readmitted node begins above the highest token that a majority knows. Without this floor, it gives old tokens again.',
    flaw: 'floor-not-restored',
    script: {
      file: scripts,
      replace: [['math.max(tonumber(floor), tonumber(fields', 'math.max(0, tonumber(fields']],
    },
  },
  {
    name: 'roster ignored',
    purpose:
      'A majority counts only if none of its voters knows a newer incarnation of another one. Without that, the vote of an old master counts, and tokens repeat.',
    patch: {
      file: quorum,
      replace: [['!chosen.every((other) => agree(other, voter))', '!agree(voter, voter)']],
    },
  },
  {
    name: 'roster not restored',
    purpose:
      'A readmitted node learns the newest incarnation of every node. Without that, it votes beside an old master, and tokens repeat.',
    world: {
      settings: { ...small, clientCount: 3, faultCount: 40, calmAtMs: 4_000, delayMaxMs: 5 },
      // After a failover, a connection stays at the old master until it is cut.
      faults: ['failover', 'cut', 'lose-lock', 'crash'],
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
    purpose:
      'Promises count only from nodes without a newer incarnation. An old master knows no newer token, so the readmitted node begins too low.',
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
        // Otherwise the superseded nodes would lose their votes before they are asked to promise.
        ['return outlivedIn(voters, witnesses);', 'return witnesses.length < 0 ? voters : [];'],
      ],
    },
  },
  {
    name: 'promise whatever is nominated',
    purpose:
      'A node refuses a nomination if it knows a newer one. Without that, an overtaken client brings an old incarnation back, and tokens repeat.',
    flaw: 'promise-not-strict',
    script: {
      file: scripts,
      replace: [['known.generation ~= tonumber(seen) or known.generation >= generation', 'false']],
    },
    // After a failover, some clients still reach the old master, and readmit it in turn.
    world: { settings: small, faults: ['failover', 'lose-lock'] },
  },
  {
    name: 'roster ties kept by place',
    purpose:
      'Of two incarnations under one generation, all nodes keep the same one. Otherwise, two majorities each believe in another one, and tokens repeat.',
    flaw: 'roster-ties-by-place',
    script: {
      file: scripts,
      replace: [
        ['if is_later(one, known[place]) then', 'if one.generation > known[place].generation then'],
      ],
    },
    patch: {
      file: readmission,
      replace: [['isLater(one, latest)', 'one.generation > latest.generation']],
    },
    world: { readmissions: true },
    excuse:
      'it needs five nodes, clients that reach different ones, and four restarts in one order. two-incarnations.test.ts detects it at once on real servers',
  },
  {
    name: 'stored token preferred to the floor',
    purpose:
      'A readmitted node may still have an old token of a resource. Its floor counts if that is higher. Otherwise, tokens go back.',
    flaw: 'fence-before-floor',
    script: {
      file: scripts,
      replace: [
        ['last and math.max(last, tonumber(floor)) or max', 'last or max'],
        ['return last and math.max(last, voter.floor) or voter.max', 'return last or voter.max'],
        ['if last and last < floor then last = floor end', ''],
      ],
    },
  },
  {
    name: 'members ignored',
    purpose:
      'A node refuses a client that has another list of nodes. Otherwise, two majorities share no node, and tokens repeat.',
    flaw: 'members-ignored',
    script: {
      file: scripts,
      replace: [
        [
          'if not members or members == MEMBERS then return nil end',
          'if not members or not string.find(members, SEALED, 1, true) then return nil end',
        ],
      ],
    },
    // The client would refuse a reply whose roster has another number of nodes.
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
  {
    name: 'the first waiter takes a held lock',
    purpose:
      'The first waiter gets the lock only if it is free. Otherwise, two clients hold it at once.',
    flaw: 'first-takes-held',
    script: {
      file: scripts,
      replace: [['elseif holder then', 'elseif holder and head_of(KEYS[i]) ~= waiter then']],
    },
    tokensGrow: true,
  },
  {
    name: 'a lease is written back after a later grant',
    purpose:
      'A node takes a lost lease back only if it has given no higher token. Otherwise, an old lease is extended after a later one was won.',
    flaw: 'backfill-whatever-was-given',
    script: {
      file: scripts,
      replace: [['if given > asked then', 'if false then']],
    },
    world: {
      settings: { ...small, faultCount: 100, calmAtMs: 1_000, delayChance: 0.3, delayMaxMs: 12 },
      faults: ['lose-lock'],
    },
    tokensGrow: true,
  },
  {
    name: 'a late grant counts for an extension',
    purpose:
      'A node extends a lease only if it gave no higher token before the lease. Otherwise, an ACQUIRE that arrives after a later lease counts for the earlier one.',
    flaw: 'extended-though-not-proven',
    script: {
      file: scripts,
      replace: [['return first_token(last, origin) <= token', 'return true']],
    },
    tokensGrow: true,
    excuse:
      'a request must be delayed until another lease has come and gone. nothing-in-between.test.ts detects it at once on real servers',
  },
  {
    name: 'a lease is written back after a forgotten later grant',
    purpose:
      'A node that forgot a resource compares with the highest token that it ever gave. Otherwise, an old lease could come back after a later one.',
    flaw: 'backfill-what-was-forgotten',
    excuse:
      'between its number and BACKFILL, a node must forget a later lease. The first lease must lose its lock on another node. single-node.test.ts detects it at once',
  },
  {
    name: 'a lease is written back by the number of another incarnation',
    purpose:
      'A number counts only for the incarnation that reported it. After a restart, an old lease could come back by it.',
    flaw: 'backfill-by-number-of-another-incarnation',
    excuse:
      'between its number and BACKFILL, a node must restart, vote, and issue lower numbers than before. single-node.test.ts detects it at once',
  },
  {
    name: 'a lease is written back without being extended first',
    purpose:
      'A majority extends a lost lease once more before it is written back. Otherwise, a lease that ended meanwhile could come back.',
    patch: {
      file: '/redlock/extend.ts',
      replace: [
        [
          'const extended = await extendOnAll(nodes, ownership, token, ttlMs);',
          'const extended = { ok: true, deadlineMs: nodes.runtime.nowMs() + 1 };',
        ],
      ],
    },
    excuse:
      'a second defence after a successful extension: during that extension, a lock must be lost, and another lease must come and go',
  },
  {
    name: 'lock table rotated before its leases end',
    purpose:
      'A node drops an old lock table only if no lease in it can be valid. Otherwise, it forgets a holder, and two clients hold the lock.',
    flaw: 'lock-table-rotated-early',
    script: {
      file: scripts,
      replace: [
        [
          'is_old(fence_ttl) and math.abs(own_time_ms() - voter.rotated) > voter.longest',
          'own_time_ms() > voter.opened',
        ],
      ],
    },
    tokensGrow: true,
  },
  {
    name: 'lock table of a full node rotated before its leases end',
    purpose:
      'A full node, too, drops a lock table only if no lease in it can be valid. Otherwise, it forgets a holder, and two clients hold the lock.',
    flaw: 'full-lock-table-rotated-early',
    script: {
      file: scripts,
      replace: [
        [
          'if may_rotate(0) then return (pcall(rotate, 0)) end',
          'voter.longest = 0 if may_rotate(0) then return (pcall(rotate, 0)) end',
        ],
      ],
    },
    tokensGrow: true,
  },
  {
    name: 'the loss of the older lock table goes unnoticed',
    purpose:
      'A node without its older lock table does not vote. Otherwise, it forgets a holder, and two clients hold the lock.',
    flaw: 'lost-lock-table-unnoticed',
    script: {
      file: scripts,
      replace: [
        ["return before == '1' and redis.call('EXISTS', BEFORE) == 0", 'return false'],
        ["before ~= '1' or redis.call('EXISTS', BEFORE) == 1", 'true'],
      ],
    },
    tokensGrow: true,
  },
  {
    name: 'a forgotten resource begins below the highest token of its node',
    purpose:
      'A node that forgot a resource begins above the highest token that it ever gave. Otherwise, it gives an old token again.',
    flaw: 'forgotten-token-below-highest',
    script: {
      file: scripts,
      replace: [
        ['math.max(last, voter.floor) or voter.max', 'math.max(last, voter.floor) or voter.floor'],
        ['(last or max) + 1', '(last or floor) + 1'],
        [
          'math.max(last, tonumber(floor)) or max',
          'math.max(last, tonumber(floor)) or tonumber(floor)',
        ],
      ],
    },
  },
  {
    name: 'a successor has no token of its own',
    purpose:
      'A node reserves a token for each waiter that may get the lock without a round trip. Otherwise, the token of a successor repeats.',
    flaw: 'followers-without-tokens',
    script: {
      file: scripts,
      replace: [['local token = highest + 1 + reserved', 'local token = highest + 1']],
    },
  },
  {
    name: 'a confirmed token is taken for the last of several',
    purpose:
      'A token that was raised by CONFIRM belongs to one lease only. The tokens below it may have been given to others.',
    patch: {
      file: '/redlock/acquire.ts',
      replace: [['isConfirmed ? 0 : (position?.followersMax ?? 0)', 'position?.followersMax ?? 0']],
    },
    excuse:
      'a second defence: between ACQUIRE and CONFIRM, a lost lock must come back under the same owner. Meanwhile another client must have held it',
  },
  {
    name: 'validity taken from the wall clock',
    purpose:
      'A client measures its lease on a clock that never jumps. A wall clock may jump back. Then the client trusts a lease that is over.',
    tokensGrow: true,
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
    purpose:
      'A node confirms only a token above all that it gave before. Otherwise, two acquisitions could win with one token.',
    flaw: 'confirm-may-repeat',
    excuse:
      'a second defence: a lost lock must come back under the same owner. Each acquisition has an owner id of its own',
  },
  {
    name: 'no seal',
    purpose:
      'SEAL ends the votes of the old node set before the next one votes. Without it, both sets grant one lock.',
    flaw: 'votes-though-sealed',
    script: {
      file: scripts,
      replace: [
        [
          'if not members or members == MEMBERS then return nil end',
          'if not members or members == MEMBERS or members == MEMBERS .. SEALED then return nil end',
        ],
      ],
    },
    moves: true,
  },
  {
    name: 'floor not carried',
    purpose:
      'The next node set begins above the highest token of the old one. Without this floor, tokens go back.',
    moves: true,
    patch: {
      file: '/core/move.ts',
      replace: [
        [
          'return { floor, longestMs: carriedMs(longestMs), isComplete, maxTtlMs };',
          'return { floor: 0n, longestMs: carriedMs(longestMs), isComplete, maxTtlMs };',
        ],
      ],
    },
  },
  {
    name: 'sealed votes counted',
    purpose:
      'An answer to SEAL counts only from the incarnation that voted. A restarted node may know too little, and tokens could go back.',
    flaw: 'sealed-votes-after-restart',
    moves: true,
    excuse:
      'a move begins only while a majority votes. So a node must restart with a snapshot from before its vote between the first look and its seal, and the other nodes that know the token must be silent from then on. core/move.test.ts covers the rule',
  },
  {
    name: 'leases not carried',
    purpose:
      'The leases of the old node set are copied to the next one. Without them, it grants a lock that is held.',
    moves: true,
    tokensGrow: true,
    patch: {
      file: '/redlock/move.ts',
      replace: [['mergeLeases(deciding, total)', 'mergeLeases([], total)']],
    },
  },
  {
    name: 'leases carried from one node',
    purpose:
      'The leases are read from a majority of the old node set. A single node lacks some of them, so the next set grants a lock that is held.',
    moves: true,
    tokensGrow: true,
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
    purpose:
      'The next node set waits for the move. If it starts earlier, it knows neither tokens nor leases of the old set.',
    moves: true,
    patch: {
      file: '/redlock/readmission-round.ts',
      replace: [['!this.#arrival && isBeforeMove(seen)', 'seen.length === 0']],
    },
  },
  {
    name: 'confirm may lower what a node has stored',
    purpose:
      'CONFIRM never lowers the token that a node has stored. Otherwise, the node could give an old token again.',
    flaw: 'confirm-may-lower',
    excuse:
      'an acquisition must confirm twice at one node, and the lower token must be carried out last. The next two acquisitions must meet there',
  },
];

/**
 * Returns the patches of the sources for a mutant on real nodes. Empty if real nodes cannot run it.
 */
export function realPatchesOf({ flaw, script, patch }: Mutant): readonly Patch[] {
  return flaw && !script ? [] : [script, patch].filter((one) => one !== undefined);
}

export function mutantNamed(name: string): Mutant {
  const found = mutants.find((mutant) => mutant.name === name);
  if (!found) throw new Error(`there is no mutant: ${name}`);
  return found;
}
