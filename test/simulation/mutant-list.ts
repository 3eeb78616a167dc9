import type { NodeFlaw } from './redis-process.ts';
import type { Patch } from './sources.ts';

/** The client or the nodes without one protective step of the protocol. */
export interface Mutant {
  readonly name: string;
  readonly flaw?: NodeFlaw;
  readonly patch?: Patch;
  /** Why it would be no wonder if it survived. */
  readonly excuse?: string;
}

const tally = '/core/tally.ts';
const quorum = '/core/quorum.ts';
const readmission = '/core/readmission.ts';

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
      'a second line: CONFIRM gives no token twice, and whose lock has expired on a node has used up the time of its lease',
  },
  { name: 'no readmission check', flaw: 'no-admission-check' },
  { name: 'a replica that can be written votes', flaw: 'replica-votes' },
  { name: 'floor not restored', flaw: 'floor-not-restored' },
  {
    name: 'roster ignored',
    patch: {
      file: quorum,
      replace: [['!chosen.every((other) => agree(other, voter))', '!agree(voter, voter)']],
    },
  },
  {
    name: 'roster not restored',
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
        // Else they lose their votes before they are asked.
        ['return outlivedIn(voters, witnesses);', 'return witnesses.length < 0 ? voters : [];'],
      ],
    },
  },
  {
    name: 'promise whatever is claimed',
    flaw: 'promise-not-strict',
  },
  { name: 'token of the ledger preferred to the floor', flaw: 'fence-before-floor' },
  {
    name: 'members ignored',
    flaw: 'members-ignored',
    // Else a roster of another number of nodes is no reply at all.
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
  { name: 'who is first in line takes what is held', flaw: 'first-takes-held' },
  { name: 'a lease is held again whatever was granted since', flaw: 'keep-whatever-was-given' },
  {
    name: 'a lease is held again where what was granted since is forgotten',
    flaw: 'keep-what-was-forgotten',
    excuse:
      'a node must lose its entry of a later lease between its number and KEEP, and the first lease a lock elsewhere; single-node.test.ts sees it at once',
  },
  {
    name: 'a lease is held again by the number of another incarnation',
    flaw: 'keep-by-number-of-another-incarnation',
    excuse:
      'a node must restart and vote between its number and KEEP, and give lower numbers than before; single-node.test.ts sees it at once',
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
      'a second line after an extension that succeeded: a lock must be lost, and another lease come and go, while that extension is on its way',
  },
  { name: 'ledger turned over before its leases are over', flaw: 'ledger-turned-early' },
  {
    name: 'ledger of a full node turned over before its leases are over',
    flaw: 'full-ledger-turned-early',
  },
  {
    name: 'a forgotten resource begins below the highest token of its node',
    flaw: 'forgotten-token-below-highest',
  },
  { name: 'who is handed the lock has no token of its own', flaw: 'heirs-without-tokens' },
  {
    name: 'a token that was confirmed is taken for the last of several',
    patch: {
      file: '/redlock/acquire.ts',
      replace: [['isConfirmed ? null : position', 'position']],
    },
    excuse:
      'a second line: a lock that was lost must come back under the same owner between its ACQUIRE and its CONFIRM, and have been held by another meanwhile',
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
      'a second line: a lock that was lost must come back under the same owner, which a turn does not do, as its value is another one',
  },
  {
    name: 'confirm may lower what a node has stored',
    flaw: 'confirm-may-lower',
    excuse:
      'an attempt must confirm twice at one node, the lower token must be carried out last, and the next two attempts must meet there',
  },
];

export function mutantNamed(name: string): Mutant {
  const found = mutants.find((mutant) => mutant.name === name);
  if (!found) throw new Error(`there is no mutant: ${name}`);
  return found;
}
