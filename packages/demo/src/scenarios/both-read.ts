import { find, inOrder, replyToWrite, type Scenario } from './scenario.js';

export const bothRead: Scenario = {
  number: 3,
  title: 'Both have read',
  source: 'a comment below Kleppmann\'s article, answered: "that scenario does look risky"',
  story:
    'Client 1 reads and is stopped. Its lease ends; client 2 reads, too, and is stopped. Client 1 wakes ' +
    'and writes with the lower token before any higher one was seen; then client 2 writes what it has. ' +
    'Checking tokens on writes alone is not enough: the write must also fit what was read.',
  pinned: { none: 'lost', lock: 'lost', token: 'lost', 'token+cas': 'safe', claim: 'safe' },

  async play(stage) {
    const one = await stage.clientThatStops(1);
    await one.reachedItsWrite();
    await one.pause();
    const [two] = await Promise.all([stage.clientThatStops(2), stage.leaseIsOver()]);
    await two.reachedItsWrite();
    await two.pause();
    await one.wake();
    await one.finished();
    await two.wake();
    await two.finished();
  },

  missing: (events) =>
    inOrder(
      ["client 1's read", find(events, 'client 1', 'read')],
      ["client 1's pause", find(events, 'client 1', 'pause')],
      ["client 2's read", find(events, 'client 2', 'read')],
      ["client 2's pause", find(events, 'client 2', 'pause')],
      ["client 1's waking", find(events, 'client 1', 'wake')],
      ["the reply to client 1's write", replyToWrite(events, 'client 1')],
      ["client 2's waking", find(events, 'client 2', 'wake')],
      ["client 2's write", find(events, 'client 2', 'write')],
    ),
};
