import { find, inOrder, replyToWrite, type Scenario } from './scenario.js';

export const lateGrants: Scenario = {
  number: 6,
  title: 'The late grants',
  source: "Kleppmann, second example of bad timings; antirez's answer",
  story:
    'Every node grants client 1 the lock, but client 1 is stopped before it can read that. The lease ends, ' +
    'client 2 takes the lock and works. Client 1 wakes and finds the grants: it has asked too long ago, ' +
    'and they are worth nothing. A client that counts its lease from their arrival believes them.',
  breaks: 'nodes',
  pinned: { lock: 'safe' },
  counterparts: [{ lock: 'elapsed time ignored', pinned: { lock: 'two holders' } }],

  async play(stage) {
    const one = await stage.clientBeforeItAsks();
    stage.holdGrants();
    one.proceed();
    await stage.grantsAreHeld();
    await one.pause();
    stage.deliverGrants();
    const [two] = await Promise.all([stage.clientThatStops(2), stage.leaseIsOver()]);
    await two.reachedItsWrite();
    await one.wake();
    await one.finishedOrTurnedAway();
    two.proceed();
    await two.finished();
    await one.finished();
  },

  missing(events) {
    const turnedAway = find(events, 'client 1', 'acquire', 'refused');
    return (
      inOrder(
        ["client 1's asking", find(events, 'client 1', 'acquire', 'invoke')],
        ['the held grants', find(events, 'lock nodes', 'hold')],
        ["client 1's pause", find(events, 'client 1', 'pause')],
        ["the grants' arrival", find(events, 'lock nodes', 'deliver')],
        ["the lease's end", find(events, 'lock nodes', 'expire')],
        ["client 2's check", find(events, 'client 2', 'check')],
        ["client 1's waking", find(events, 'client 1', 'wake')],
        ['what client 1 makes of the grants', turnedAway ?? find(events, 'client 1', 'acquire')],
        ["the reply to client 2's write", replyToWrite(events, 'client 2')],
      ) ?? inOrder(["client 1's write", replyToWrite(events, 'client 1')])
    );
  },
};
