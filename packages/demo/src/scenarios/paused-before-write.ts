import { find, inOrder, replyToWrite, type Scenario } from './scenario.js';

export const pausedBeforeWrite: Scenario = {
  number: 1,
  title: 'The paused client',
  source: 'Kleppmann, "How to do distributed locking", first figure',
  story:
    'Client 1 reads the document and checks its lease: all is well. Then its process is stopped, ' +
    'as by a long garbage collection. The lease ends, client 2 writes, and client 1 wakes up.',
  pinned: { none: 'lost', lock: 'lost', token: 'safe', 'token+cas': 'safe', claim: 'safe' },

  async play(stage) {
    const one = await stage.clientThatStops(1);
    await one.reachedItsWrite();
    await one.pause();
    const [two] = await Promise.all([stage.client(2), stage.leaseIsOver()]);
    await two.finished();
    await one.wake();
    await one.finished();
  },

  missing: (events) =>
    inOrder(
      ["client 1's check", find(events, 'client 1', 'check')],
      ["client 1's pause", find(events, 'client 1', 'pause')],
      ["client 2's write", find(events, 'client 2', 'write')],
      ["client 1's waking", find(events, 'client 1', 'wake')],
      ["the reply to client 1's write", replyToWrite(events, 'client 1')],
    ),
};
