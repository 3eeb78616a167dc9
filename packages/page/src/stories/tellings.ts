import type { Verdict } from '../../../demo/src/checker.ts';
import type { Protection } from '../../../demo/src/job.ts';
import { reply, type Step, type Story, step } from '../../../demo/src/stories/story.ts';

/** The page's words for a story of the demo. */
export interface Telling {
  readonly title: Story['title'];
  /** One sentence for each step, in the same order. */
  readonly steps: readonly string[];
  /** The events of the steps, if they are others than those of the demo's story. */
  readonly moments?: readonly Step[];
  /** The same, if the clients refuse the storage. */
  readonly stepsIfRefused?: readonly string[];
  readonly momentsIfRefused?: readonly Step[];
  /** Words of the article. The link opens the paragraph that has them. */
  readonly paragraph: string;
  /** Verdicts if nodes that forgot their leases vote at once. */
  readonly votesAtOnce?: Readonly<Partial<Record<Protection, Verdict>>>;
}

const FORGETTING = [
  'Client 1 reaches only A, B and C. They are a majority of five nodes.',
  'Client 1 gets the lock from these three nodes.',
  'Client 1 reads the document and checks its lease. It is valid. Client 1 is slow to write.',
] as const;

export const tellings: readonly Telling[] = [
  {
    title: 'The paused client',
    paragraph: 'Client 1 acquires the lease and gets a token of 33',
    steps: [
      'Client 1 holds the lock. It reads the document and checks its lease. The lease is valid.',
      'Now its process is stopped, as by a garbage collection. Its lease does not stop.',
      'The lease is over at the lock nodes. Client 2 gets the lock and writes. All is well so far.',
      'Client 1 wakes up. Its last check was before the pause, so it believes in its lease.',
      'The write of client 1 arrives at the storage. Look at what the storage compares.',
    ],
  },
  {
    title: 'The delayed packet',
    paragraph: 'the file-writing request may get delayed in the network',
    steps: [
      'Client 1 holds the lock and checks its lease. The lease is valid.',
      'It sends its write in time, but the network holds the packet.',
      'The lease of client 1 ends. Client 2 gets the lock and writes.',
      'Now the network delivers the packet of client 1.',
      'The storage decides about the old write. Client 1 cannot take it back.',
    ],
  },
  {
    title: 'Both have read',
    paragraph: 'A client first acquires the lock, then reads the file',
    steps: [
      'Client 1 gets the lock and reads the empty document.',
      'Client 1 is stopped before its write. Its lease ends.',
      'Client 2 gets the lock and reads the document. It is still empty.',
      'Client 2 is stopped before its write, too.',
      'Client 1 wakes up. Client 2 has not written yet.',
      'The write of client 1 arrives first. Look at what the storage compares.',
      'Client 2 wakes up. Its value does not contain the line of client 1.',
      'The write of client 2 arrives. Look at what the storage compares.',
    ],
  },
  {
    title: 'The jumping clock',
    paragraph: 'The clock on node C jumps forward',
    steps: [
      ...FORGETTING,
      'The clock of C jumps an hour ahead. By that clock, the lease is over.',
      'Client 2 asks. A and B refuse. C, D and E are a majority, too.',
      'The write of client 1 has reached the storage.',
      'So has the write of client 2. Look at the order of the two.',
    ],
  },
  {
    title: 'The restarted node',
    paragraph: 'if C crashes before persisting the lock to disk',
    steps: [
      ...FORGETTING,
      'C crashes and restarts at once. It had nothing on its disk, so it forgot the lease.',
      'Client 2 asks. A and B refuse. The answer of C decides.',
      'The write of client 1 has reached the storage.',
      'So has the write of client 2. Look at the order of the two.',
    ],
    votesAtOnce: { lock: 'two holders', token: 'safe', 'token+cas': 'safe', claim: 'safe' },
  },
  {
    title: 'The late grants',
    paragraph: 'Client 1 requests lock on nodes A, B, C, D, E',
    moments: [
      step('client 1', 'acquire', 'invoke'),
      step('lock nodes', 'hold'),
      step('client 1', 'pause'),
      step('client 2', 'check'),
      step('client 1', 'wake'),
      step('client 1', 'acquire', 'refused', 'ok'),
      reply('client 2'),
      reply('client 1'),
    ],
    steps: [
      'Client 1 asks the nodes for the lock. Its lease counts from now on.',
      'Every node has granted the lock. The network still holds the replies.',
      'The process of client 1 is stopped. Then the replies arrive, and nobody reads them.',
      'The lease is over at the nodes. Client 2 gets the lock, reads and checks its lease.',
      'Client 1 wakes up, and finds the grants of a majority.',
      'It looks at its clock first. It asked too long ago, so the grants are worthless.',
      'Client 2 still holds the lock, and writes.',
      'Client 1 asked again, and got the lock after client 2. Its write is no late write.',
    ],
  },
  {
    title: 'The failover',
    paragraph: 'if C crashes before persisting the lock to disk',
    steps: [
      ...FORGETTING,
      'C fails over to its replica. The replica never heard of the lease.',
      'Client 2 asks. A and B refuse. The answer of C decides.',
      'The write of client 1 has reached the storage.',
      'So has the write of client 2. Look at the order of the two.',
    ],
    votesAtOnce: { lock: 'two holders', token: 'safe', 'token+cas': 'safe', claim: 'safe' },
  },
  {
    title: 'All nodes are wiped',
    paragraph: 'Simply keeping a counter on one Redis node would not be sufficient',
    steps: [
      'Client 1 holds the lock and checks its lease. The lease is valid for a long time.',
      'Client 1 is stopped before its write.',
      'All lock nodes restart without data. None of them knows the lease of client 1.',
      'Client 2 gets the lock. Its token starts above the clock, so it is higher than 33.',
      'Client 2 writes.',
      'Client 1 wakes up. Its lease is still valid by its own clock.',
      'The write of client 1 arrives at the storage.',
    ],
  },
  {
    title: 'The counter on one node',
    paragraph: 'Simply keeping a counter on one Redis node would not be sufficient',
    steps: [
      'Client 1 gets token 33 and checks its lease.',
      'Client 1 is stopped before its write.',
      'A crashes and restarts with older data. A counter on A would count 33 again.',
      'Client 2 gets the lock. A majority has stored the numbers, so its token is higher.',
      'Client 2 writes.',
      'Client 1 wakes up.',
      'The write of client 1 arrives at the storage.',
    ],
  },
  {
    title: 'The highest counter',
    paragraph: 'Keeping counters on several nodes would mean they would go out of sync',
    steps: [
      'Client 2 reaches only E, and gives up. A counter on E would be one ahead now.',
      'Client 1 reaches A, B and E. It gets the lock and checks its lease.',
      'Client 1 is stopped before its write. Its lease ends.',
      'Client 2 reaches A, B, C and D. It gets the lock with a higher token.',
      'Client 2 writes.',
      'Client 1 wakes up.',
      'The write of client 1 arrives at the storage.',
    ],
  },
  {
    title: 'The ETag comes back',
    paragraph: 'rejecting any writes on which the token has gone backwards',
    steps: [
      'Client 2 has written its line before.',
      'Client 1 gets the lock, reads the document and checks its lease.',
      'Client 1 is stopped before its write. Its lease ends.',
      'Client 2 writes the same bytes again, with a higher token.',
      'Client 1 wakes up.',
      'The write of client 1 arrives. An ETag identifies bytes, and the bytes are the same.',
    ],
  },
  {
    title: 'The lost reply',
    paragraph: 'Packet networks such as Ethernet and IP may delay packets',
    moments: [
      step('client 2', 'write'),
      step('client 1', 'acquire'),
      step('client 1', 'check'),
      step('client 1', 'write', 'invoke'),
      step('storage', 'lose'),
      step('client 1', 'write'),
    ],
    steps: [
      'Client 2 gets the lock and writes.',
      'Client 1 gets the lock, with the next token.',
      'Client 1 reads the document and checks its lease.',
      'Client 1 sends its write. The write has an id of its own.',
      'The storage applies the write, but the reply is lost. Client 1 cannot know what happened.',
      'Client 1 does not guess. It reads back, and finds the id of its own write.',
    ],
  },
  {
    title: 'Conditions are ignored',
    paragraph: 'this requires the storage server to take an active role in checking tokens',
    steps: [
      'Client 1 gets the lock and checks its lease. The storage ignores all conditions.',
      'Client 1 is stopped before its write. Its lease ends.',
      'Client 2 gets the lock and writes.',
      'Client 1 wakes up.',
      'The write of client 1 arrives. Its condition does not hold any more.',
    ],
    momentsIfRefused: [
      step('client 1', 'probe', 'invoke'),
      step('client 1', 'probe', 'refused'),
      step('client 2', 'probe', 'invoke'),
      step('client 2', 'probe', 'refused'),
      step('storage', 'final'),
    ],
    stepsIfRefused: [
      'Before its first write, client 1 tests the storage. It sends a write that must be refused.',
      'The storage answers with success, so its conditions are worthless. Client 1 refuses it.',
      'Client 2 does not rely on the test of client 1. It tests the storage, too.',
      'Client 2 finds the same, and refuses the storage.',
      'The document is as it was. Nobody wrote, so nobody lost an update.',
    ],
  },
];
