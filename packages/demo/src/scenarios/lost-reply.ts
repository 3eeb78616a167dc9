import { find, inOrder, type Scenario } from './scenario.js';

export const lostReply: Scenario = {
  number: 11,
  title: 'The lost reply',
  source: 'every network; "a retried PUT that had succeeded is answered 412"',
  story:
    'Client 2 has written. Client 1 writes, too, and the storage applies it, but the reply is lost and the ' +
    'connection breaks. Client 1 must neither write twice nor call it failed: it reads back, and finds its own write id.',
  pinned: { token: 'safe', 'token+cas': 'safe', claim: 'safe' },
  stores: ['s3'],
  leaseLasts: true,

  async play(stage) {
    const two = await stage.client(2);
    await two.finished();
    const one = await stage.clientThatStops(1);
    await one.reachedItsWrite();
    stage.loseReplies();
    one.proceed();
    await stage.replyIsLost();
    await one.finished();
  },

  missing: (events) =>
    inOrder(
      ["client 2's write", find(events, 'client 2', 'write')],
      ["client 1's check", find(events, 'client 1', 'check')],
      ['the lost reply', find(events, 'storage', 'lose')],
      ["client 1's write", find(events, 'client 1', 'write')],
    ),
};
