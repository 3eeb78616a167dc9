import type { StoryControls } from '../controls.js';
import { reply, type Story, step } from './story.js';

/**
 * Client 1 reaches only A, B and C. It holds the lock there, well within its lease. C forgets the
 * lease. A and B turn client 2 away, but C, D and E are a majority, too.
 */
async function playForgetting(
  controls: StoryControls,
  makeForget: () => Promise<void>,
): Promise<void> {
  await controls.reaches(1, 'abc');
  const one = await controls.clientStoppedBeforeWrite(1);
  await one.reachedWrite();
  await makeForget();
  const two = await controls.client(2);
  await two.finishedOrTurnedAway();
  one.proceed();
  await one.finished();
  await two.finished();
}

const SAFE = { token: 'safe', 'token+cas': 'safe', claim: 'safe' } as const;
const FORGETTING = {
  leaseLasts: true,
  steps: [
    step('lock nodes', 'reach'),
    step('client 1', 'acquire'),
    step('client 1', 'check'),
    step('lock nodes', 'forget'),
    step('client 2', 'acquire', 'refused', 'ok'),
    reply('client 1'),
    { ...reply('client 2'), isUnordered: true },
  ],
} as const;

export const jumpingClock: Story = {
  ...FORGETTING,
  number: 4,
  title: 'The jumping clock',
  source: 'Kleppmann, first example of bad timings',
  summary:
    'Client 1 holds the lock on A, B and C; it cannot reach D and E. The clock of C jumps ahead, so ' +
    'the lease is over there. Client 2 gets C, D and E: two clients hold the lock.',
  lesson: 'A lock that depends on clocks can have two holders. Tokens still stop the earlier one.',
  breaks: 'clocks',
  pinned: { lock: 'two holders', ...SAFE },

  play: (controls) => playForgetting(controls, () => controls.jumpAhead('c')),
};

export const restartedNode: Story = {
  ...FORGETTING,
  number: 5,
  title: 'The restarted node',
  source: 'Kleppmann; Redis documentation, crash recovery',
  summary:
    'Client 1 holds the lock on A, B and C; it cannot reach D and E. C crashes, has nothing on disk and ' +
    'restarts at once. With naive Redlock, client 2 gets C, D and E. With @fenced/lock, C has no vote ' +
    'until every lease that it may have forgotten is over.',
  lesson: 'A node that lost its memory must not vote until every forgotten lease is over.',
  breaks: 'nodes',
  pinned: { lock: 'safe', ...SAFE },
  counterparts: [{ lock: 'naive Redlock', pinned: { lock: 'two holders' } }],

  play: (controls) => playForgetting(controls, () => controls.restart('c', 'none')),
};

export const failedOverNode: Story = {
  ...FORGETTING,
  number: 7,
  title: 'The failover',
  source: 'Redis documentation, "why failover-based implementations are not enough"',
  summary:
    "C has a replica. Before client 1's lock reaches the replica, C dies. The replica takes its place, " +
    'and does not know client 1. With naive Redlock, client 2 gets C, D and E. With @fenced/lock, a promoted ' +
    'replica counts as a new process, and has no vote yet.',
  lesson: 'A promoted replica may lack the last writes, so it must wait before it votes.',
  breaks: 'nodes',
  replicated: 'c',
  pinned: { lock: 'safe', ...SAFE },
  counterparts: [{ lock: 'naive Redlock', pinned: { lock: 'two holders' } }],

  async play(controls) {
    controls.cutReplication();
    await playForgetting(controls, () => controls.failOver('c'));
  },
};
