import type { Event } from '../history.js';
import { find, inOrder, replyToWrite, type Scenario, type Stage } from './scenario.js';

/**
 * Client 1 has the lock on A, B and C, which is all that it can reach, and is at work, well within its lease. C forgets
 * that. Client 2, which A and B turn away, asks C, D and E, which is a majority, too.
 */
async function playForgetting(stage: Stage, makeForget: () => Promise<void>): Promise<void> {
  await stage.reaches(1, 'abc');
  const one = await stage.clientThatStops(1);
  await one.reachedItsWrite();
  await makeForget();
  const two = await stage.client(2);
  await two.finishedOrTurnedAway();
  one.proceed();
  await one.finished();
  await two.finished();
}

function missingForgetting(events: readonly Event[]): string | null {
  const turnedAway = find(events, 'client 2', 'acquire', 'refused');
  return (
    inOrder(
      ["client 1's isolation", find(events, 'lock nodes', 'reach')],
      ["client 1's lease", find(events, 'client 1', 'acquire')],
      ["client 1's check", find(events, 'client 1', 'check')],
      ["C's forgetting", find(events, 'lock nodes', 'forget')],
      ["an answer to client 2's asking", turnedAway ?? find(events, 'client 2', 'acquire')],
      ["the reply to client 1's write", replyToWrite(events, 'client 1')],
    ) ?? inOrder(["client 2's write", replyToWrite(events, 'client 2')])
  );
}

const SAFE = { token: 'safe', 'token+cas': 'safe', claim: 'safe' } as const;
const FORGETTING = { leaseLasts: true, missing: missingForgetting } as const;

export const jumpingClock: Scenario = {
  ...FORGETTING,
  number: 4,
  title: 'The jumping clock',
  source: 'Kleppmann, first example of bad timings',
  story:
    'Client 1 holds the lock on A, B and C; it cannot reach D and E. The clock of C jumps ahead, and ' +
    'there the lease is over. Client 2 gets C, D and E: two hold the lock. No lock service that goes by ' +
    'clocks can help it; the tokens do not go by clocks.',
  breaks: 'clocks',
  pinned: { lock: 'two holders', ...SAFE },

  play: (stage) => playForgetting(stage, () => stage.jumpAhead('c')),
};

export const restartedNode: Scenario = {
  ...FORGETTING,
  number: 5,
  title: 'The restarted node',
  source: 'Kleppmann; Redis documentation, crash recovery',
  story:
    'Client 1 holds the lock on A, B and C; it cannot reach D and E. C crashes, keeps nothing on disk and ' +
    'restarts at once. With naive Redlock client 2 gets C, D and E. Here C has no vote until every lease ' +
    'is over that it may have forgotten.',
  breaks: 'nodes',
  pinned: { lock: 'safe', ...SAFE },
  counterparts: [{ lock: 'naive Redlock', pinned: { lock: 'two holders' } }],

  play: (stage) => playForgetting(stage, () => stage.restart('c', 'none')),
};

export const failedOverNode: Scenario = {
  ...FORGETTING,
  number: 7,
  title: 'The failover',
  source: 'Redis documentation, "why failover-based implementations are not enough"',
  story:
    "C has a replica. Before client 1's lock reaches that, C dies and the replica takes its place. It " +
    'knows nothing of client 1: with naive Redlock client 2 gets C, D and E. Here a promoted replica is ' +
    'another process than the one that was admitted, so it has no vote yet.',
  breaks: 'nodes',
  replicated: 'c',
  pinned: { lock: 'safe', ...SAFE },
  counterparts: [{ lock: 'naive Redlock', pinned: { lock: 'two holders' } }],

  async play(stage) {
    stage.cutReplication();
    await playForgetting(stage, () => stage.failOver('c'));
  },
};
