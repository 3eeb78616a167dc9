import { find, inOrder, replyToWrite, type Scenario } from './scenario.js';

export const delayedPacket: Scenario = {
  number: 2,
  title: 'The delayed packet',
  source: 'Kleppmann, after an incident at GitHub: packets were delayed for 90 seconds',
  story:
    'Client 1 sends its write in time, but the network keeps it. The lease ends, client 2 writes, ' +
    'and then the packet arrives.',
  pinned: { none: 'lost', lock: 'lost', token: 'safe', 'token+cas': 'safe', claim: 'safe' },

  async play(stage) {
    const one = await stage.clientThatStops(1);
    await one.reachedItsWrite();
    stage.holdPackets();
    one.proceed();
    await stage.packetIsHeld();
    const [two] = await Promise.all([stage.client(2), stage.leaseIsOver()]);
    await two.finished();
    stage.deliver();
    await one.finished();
  },

  missing: (events) =>
    inOrder(
      ["client 1's check", find(events, 'client 1', 'check')],
      ['the held packet', find(events, 'storage', 'hold')],
      ["client 2's write", find(events, 'client 2', 'write')],
      ["the packet's arrival", find(events, 'storage', 'deliver')],
      ["the reply to client 1's write", replyToWrite(events, 'client 1')],
    ),
};
