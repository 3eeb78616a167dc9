import type { Verdict } from '../../../demo/src/checker.ts';
import type { Protection } from '../../../demo/src/job.ts';
import { reply, type Step, type Story, step } from '../../../demo/src/stories/story.ts';

/** The switches of a story. */
interface Switches {
  readonly protection: Protection;
  /** Nodes that forgot their leases vote at once. */
  readonly votesAtOnce: boolean;
}

/** A sentence or two, and the event at which they are true. */
export interface Told {
  readonly text: string;
  readonly moment: Step;
  /** The event sends a message. The step ends before the message arrives. */
  readonly isOnTheWay?: true;
}

/** The page's words for a story of the demo. */
export interface Telling {
  readonly title: Story['title'];
  /** The situation, which is the same under each protection. */
  readonly setting: string;
  /** Five to eight steps, in the order of their events. */
  readonly steps: (switches: Switches) => readonly Told[];
  /** Words of the article. The link opens the paragraph that has them. */
  readonly paragraph: string;
  /** Verdicts if nodes that forgot their leases vote at once. */
  readonly votesAtOnce?: Readonly<Partial<Record<Protection, Verdict>>>;
}

const COMPARED: Readonly<Record<Protection, string>> = {
  none: 'The storage compares nothing.',
  lock: 'The storage compares nothing.',
  metadata: 'The storage compares the ETag.',
  token: 'The storage compares the tokens.',
  'token+cas': 'The storage compares the tokens and the values.',
  claim: 'The storage compares the tokens.',
};
const ARRIVES = 'The write of client 1 arrives at the storage.';
const LEASE_IS_VALID =
  'Client 1 gets the lock, reads the document and checks its lease. The lease is valid.';
const EDITS = 'No client takes the lock. Client 1 reads the document and edits it.';
const STOPPED = 'Client 1 is stopped before its write.';

function told(moment: Step, text: string): Told {
  return { moment, text };
}

function onTheWay(moment: Step, text: string): Told {
  return { ...told(moment, text), isOnTheWay: true };
}

const EARLY_VOTES = {
  lock: 'two holders',
  token: 'safe',
  'token+cas': 'safe',
  claim: 'safe',
} as const;

const majorityOfClient1: readonly Told[] = [
  told(
    step('lock nodes', 'reach'),
    'Client 1 reaches only A, B and C. They are a majority of five nodes.',
  ),
  told(step('client 1', 'acquire'), 'Client 1 gets the lock from these three nodes.'),
  told(
    step('client 1', 'check'),
    'Client 1 reads the document and checks its lease. It is valid. Client 1 is slow to write.',
  ),
];

/** The end of a story in which C votes although it forgot the lease. */
function withTwoHolders(protection: Protection): readonly Told[] {
  return [
    told(
      step('client 2', 'acquire'),
      'Client 2 asks. A and B refuse, but C, D and E are a majority, too. Both clients hold the lock.',
    ),
    told(step('client 2', 'write'), 'Client 2 is faster, and its write is applied.'),
    told(reply('client 1'), `${ARRIVES} ${COMPARED[protection]}`),
  ];
}

/** The end of a story in which C may not vote, because it forgot the lease. */
const withoutVote: readonly Told[] = [
  told(
    step('client 2', 'acquire', 'refused'),
    'Client 2 asks. A and B refuse. C has no vote yet, and D and E alone are no majority.',
  ),
  told(reply('client 1'), 'Client 1 is still the only holder. Its write is applied.'),
  told(
    step('client 2', 'acquire'),
    'Client 1 has released the lock. Now client 2 gets it, with a higher token.',
  ),
  told(reply('client 2'), 'Client 2 has read the line of client 1, and adds its own.'),
];

function forgetting(text: string): Telling['steps'] {
  return ({ protection, votesAtOnce }) => [
    ...majorityOfClient1,
    told(
      step('lock nodes', 'forget'),
      `${text} ${votesAtOnce ? 'An operator lets it vote at once.' : 'C must wait before it votes.'}`,
    ),
    ...(votesAtOnce ? withTwoHolders(protection) : withoutVote),
  ];
}

const refusedStorage: readonly Told[] = [
  onTheWay(
    step('client 1', 'probe', 'invoke'),
    'Before its first write, client 1 tests the storage. It sends a write that must be refused.',
  ),
  told(
    step('client 1', 'probe', 'refused'),
    'The storage answers with success, so its conditions are worthless. Client 1 refuses it.',
  ),
  onTheWay(
    step('client 2', 'probe', 'invoke'),
    'Client 2 does not rely on the test of client 1. It tests the storage, too.',
  ),
  told(step('client 2', 'probe', 'refused'), 'Client 2 finds the same, and refuses the storage.'),
  told(
    step('storage', 'final'),
    'The document is as it was. Nobody wrote, so nobody lost an update.',
  ),
];

export const tellings: readonly Telling[] = [
  {
    title: 'The paused client',
    setting:
      'Client 1 reads the document. Its process is stopped before it writes, as by a long garbage collection. Client 2 works meanwhile.',
    paragraph: 'Client 1 acquires the lease and gets a token of 33',
    steps: ({ protection }) => {
      const isLocked = protection !== 'none';
      return [
        told(step('client 1', 'check'), isLocked ? LEASE_IS_VALID : EDITS),
        told(
          step('client 1', 'pause'),
          `Now its process is stopped.${isLocked ? ' The time of its lease goes on.' : ''}`,
        ),
        told(
          step('client 2', 'write'),
          isLocked
            ? 'The lease ends at the lock nodes. Client 2 gets the lock and writes. All is well so far.'
            : 'Client 2 reads the document, edits it and writes. All is well so far.',
        ),
        told(
          step('client 1', 'wake'),
          isLocked
            ? 'Client 1 wakes up. It checked its lease before the pause, so it goes on to write.'
            : 'Client 1 wakes up, and goes on to write.',
        ),
        told(reply('client 1'), `${ARRIVES} ${COMPARED[protection]}`),
      ];
    },
  },
  {
    title: 'The delayed packet',
    setting:
      'Client 1 sends its write, but the network delays the packet. Client 2 works meanwhile.',
    paragraph: 'the file-writing request may get delayed in the network',
    steps: ({ protection }) => {
      const isLocked = protection !== 'none';
      return [
        told(step('client 1', 'check'), isLocked ? LEASE_IS_VALID : EDITS),
        told(
          step('storage', 'hold'),
          isLocked
            ? 'Client 1 sends its write while the lease is valid, but the network holds the packet.'
            : 'Client 1 sends its write, but the network holds the packet.',
        ),
        told(
          step('client 2', 'write'),
          isLocked
            ? 'The lease of client 1 ends. Client 2 gets the lock and writes.'
            : 'Client 2 reads the document, edits it and writes.',
        ),
        told(
          step('storage', 'deliver'),
          'Now the network delivers the packet. Client 1 cannot take it back.',
        ),
        told(reply('client 1'), `${ARRIVES} ${COMPARED[protection]}`),
      ];
    },
  },
  {
    title: 'Both have read',
    setting:
      'Client 1 reads and is stopped. Client 2 reads, too, and is stopped. Then client 1 writes before client 2 does.',
    paragraph: 'A client first acquires the lock, then reads the file',
    steps: ({ protection }) => {
      const isLocked = protection !== 'none';
      const claims = protection === 'claim' ? ', presents its token' : '';
      const last =
        protection === 'token+cas'
          ? 'The write of client 2 arrives. The value is not the one that it read, so it reads and writes again.'
          : `The write of client 2 arrives. ${COMPARED[protection]}`;
      return [
        told(
          step('client 1', 'read'),
          isLocked
            ? 'Client 1 gets the lock and reads the empty document.'
            : 'No client takes the lock. Client 1 reads the empty document.',
        ),
        told(step('client 1', 'pause'), STOPPED),
        told(
          step('client 2', 'read'),
          isLocked
            ? `The lease of client 1 ends. Client 2 gets the lock${claims} and reads. The document is still empty.`
            : 'Client 2 reads the document. It is still empty.',
        ),
        told(step('client 2', 'pause'), 'Client 2 is stopped before its write, too.'),
        told(step('client 1', 'wake'), 'Client 1 wakes up. Client 2 has not written yet.'),
        told(reply('client 1'), `The write of client 1 arrives first. ${COMPARED[protection]}`),
        told(
          step('client 2', 'wake'),
          'Client 2 wakes up. Its value does not contain the line of client 1.',
        ),
        told(reply('client 2'), last),
      ];
    },
  },
  {
    title: 'The jumping clock',
    setting:
      'Client 1 holds the lock on A, B and C. It cannot reach D and E. The clock of C jumps ahead.',
    paragraph: 'The clock on node C jumps forward',
    steps: ({ protection }) => [
      ...majorityOfClient1,
      told(
        step('lock nodes', 'forget'),
        'The clock of C jumps an hour ahead. By that clock, the lease is over.',
      ),
      ...withTwoHolders(protection),
    ],
  },
  {
    title: 'The restarted node',
    setting:
      'Client 1 holds the lock on A, B and C. It cannot reach D and E. C crashes, and restarts without its data.',
    paragraph: 'if C crashes before persisting the lock to disk',
    steps: forgetting('C crashes and restarts without data, so it forgot the lease.'),
    votesAtOnce: EARLY_VOTES,
  },
  {
    title: 'The late grants',
    setting:
      'Every node grants client 1 the lock, but client 1 is stopped before it reads the replies. Client 2 takes the lock meanwhile.',
    paragraph: 'Client 1 requests lock on nodes A, B, C, D, E',
    steps: () => [
      onTheWay(
        step('client 1', 'acquire', 'invoke'),
        'Client 1 asks the nodes for the lock. Its lease counts from now on.',
      ),
      told(
        step('lock nodes', 'hold'),
        'Every node has granted the lock. The network still holds the replies.',
      ),
      told(
        step('lock nodes', 'deliver'),
        'The process of client 1 is stopped. Then the replies arrive, and nobody reads them.',
      ),
      told(step('lock nodes', 'expire'), 'The lease of client 1 ends at the nodes.'),
      told(
        step('client 2', 'check'),
        'Client 2 gets the lock, reads the document and checks its lease.',
      ),
      told(
        step('client 1', 'acquire', 'refused', 'ok'),
        'Client 1 wakes up and finds the grants. It asked too long ago, so they are worthless.',
      ),
      told(reply('client 2'), 'Client 2 still holds the lock, and writes.'),
      told(
        reply('client 1'),
        'Client 1 asked again, and got the lock after client 2. Its write is no late write.',
      ),
    ],
  },
  {
    title: 'The failover',
    setting:
      'Client 1 holds the lock on A, B and C. It cannot reach D and E. C fails over to a replica that does not know the lease.',
    paragraph: 'if C crashes before persisting the lock to disk',
    steps: forgetting('C fails over to its replica. The replica never heard of the lease.'),
    votesAtOnce: EARLY_VOTES,
  },
  {
    title: 'All nodes are wiped',
    setting:
      'Client 1 holds the lock and is stopped. Meanwhile, all lock nodes restart without their data.',
    paragraph: 'Simply keeping a counter on one Redis node would not be sufficient',
    steps: ({ protection }) => [
      told(step('client 1', 'check'), LEASE_IS_VALID),
      told(step('client 1', 'pause'), STOPPED),
      told(
        step('lock nodes', 'forget'),
        'All lock nodes restart without data. None of them knows the lease of client 1.',
      ),
      told(
        step('client 2', 'acquire'),
        'Client 2 gets the lock. Its token starts above the clock, so it is higher than 33.',
      ),
      told(reply('client 2'), 'Client 2 writes.'),
      told(
        step('client 1', 'wake'),
        'Client 1 wakes up. Its lease is still valid by its own clock.',
      ),
      told(reply('client 1'), `${ARRIVES} ${COMPARED[protection]}`),
    ],
  },
  {
    title: 'The counter on one node',
    setting:
      'Client 1 gets its token and is stopped. Node A restarts with old data. A counter on A alone would give the same token again.',
    paragraph: 'Simply keeping a counter on one Redis node would not be sufficient',
    steps: ({ protection }) => [
      told(step('client 1', 'check'), 'Client 1 gets token 33 and checks its lease.'),
      told(step('client 1', 'pause'), STOPPED),
      told(
        step('lock nodes', 'forget'),
        'A crashes and restarts with older data. A counter on A would count 33 again.',
      ),
      told(
        step('client 2', 'acquire'),
        'The lease ends. Client 2 gets the lock. A majority has stored the numbers, so its token is higher.',
      ),
      told(reply('client 2'), 'Client 2 writes.'),
      told(step('client 1', 'wake'), 'Client 1 wakes up, and goes on to write.'),
      told(reply('client 1'), `${ARRIVES} ${COMPARED[protection]}`),
    ],
  },
  {
    title: 'The highest counter',
    setting:
      'Client 2 reaches only E, gives up, and leaves E one ahead. Then the clients reach different majorities. If the highest counter were the token, both would get the same one.',
    paragraph: 'Keeping counters on several nodes would mean they would go out of sync',
    steps: ({ protection }) => [
      told(
        step('client 2', 'acquire', 'refused'),
        'Client 2 reaches only E, and gives up. A counter on E would be one ahead now.',
      ),
      told(
        step('client 1', 'check'),
        'Client 1 reaches A, B and E. It gets the lock and checks its lease.',
      ),
      told(step('client 1', 'pause'), STOPPED),
      told(
        step('client 2', 'acquire'),
        'The lease ends. Client 2 reaches A, B, C and D. It gets the lock with a higher token.',
      ),
      told(reply('client 2'), 'Client 2 writes.'),
      told(step('client 1', 'wake'), 'Client 1 wakes up, and goes on to write.'),
      told(reply('client 1'), `${ARRIVES} ${COMPARED[protection]}`),
    ],
  },
  {
    title: 'The ETag comes back',
    setting:
      'Client 1 reads and is stopped. Meanwhile, client 2 writes the same line again. An ETag identifies bytes: the same bytes have the same ETag.',
    paragraph: 'rejecting any writes on which the token has gone backwards',
    steps: ({ protection }) => [
      told(step('client 2', 'write'), 'Client 2 gets the lock and writes its line.'),
      told(
        step('client 1', 'check'),
        'Client 1 gets the lock, reads the document and checks its lease.',
      ),
      told(step('client 1', 'pause'), STOPPED),
      told(
        { ...step('client 2', 'write'), isLast: true },
        'The lease ends. Client 2 gets the lock with a higher token, and writes the same line again.',
      ),
      told(step('client 1', 'wake'), 'Client 1 wakes up, and goes on to write.'),
      told(reply('client 1'), `${ARRIVES} ${COMPARED[protection]}`),
    ],
  },
  {
    title: 'The lost reply',
    setting: 'The storage applies the write of client 1, but the reply is lost.',
    paragraph: 'Packet networks such as Ethernet and IP may delay packets',
    steps: () => [
      told(step('client 2', 'write'), 'Client 2 gets the lock and writes.'),
      told(step('client 1', 'acquire'), 'Client 1 gets the lock, with the next token.'),
      told(step('client 1', 'check'), 'Client 1 reads the document and checks its lease.'),
      onTheWay(
        step('client 1', 'write', 'invoke'),
        'Client 1 sends its write. The write has an id of its own.',
      ),
      told(
        step('storage', 'lose'),
        'The storage applies the write, but the reply is lost. Client 1 cannot know what happened.',
      ),
      told(
        step('client 1', 'write'),
        'Client 1 does not guess. It reads back, and finds the id of its own write.',
      ),
    ],
  },
  {
    title: 'Conditions are ignored',
    setting:
      'The storage ignores the conditions of writes, and answers each write with success. A proxy that drops headers has this effect.',
    paragraph: 'this requires the storage server to take an active role in checking tokens',
    steps: ({ protection }) =>
      protection === 'metadata'
        ? [
            told(step('client 1', 'check'), LEASE_IS_VALID),
            told(step('client 1', 'pause'), STOPPED),
            told(step('client 2', 'write'), 'The lease ends. Client 2 gets the lock and writes.'),
            told(step('client 1', 'wake'), 'Client 1 wakes up, and goes on to write.'),
            told(
              reply('client 1'),
              'The write of client 1 arrives. Its condition does not hold, and the storage does not check it.',
            ),
          ]
        : refusedStorage,
  },
];
