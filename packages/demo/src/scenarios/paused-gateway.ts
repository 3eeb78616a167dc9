import { find, inOrder, replyToWrite, type Scenario } from './scenario.js';

export const pausedGateway: Scenario = {
  number: 13,
  title: 'The paused gateway',
  source: 'story 1, for clients that go through gateways',
  story:
    'Two gateways stand side by side before the same lock nodes and the same storage. Client 1 has its lease from A and ' +
    'writes through A, which is stopped when it has taken the write on and before the storage sees it. The lease ends, ' +
    'client 2 writes through B, and A wakes up. The storage refuses what A sends, and client 1 is told so: 412.',
  behindGateways: true,
  pinned: { token: 'safe' },

  async play(stage) {
    const gateway = stage.gateway();
    const one = await stage.client(1);
    // A client that ends before has not written through it, and then the story did not happen.
    await Promise.race([gateway.reachedItsWrite(), one.finished()]);
    await gateway.pause();
    const [two] = await Promise.all([stage.client(2), stage.leaseIsOver()]);
    await two.finished();
    await gateway.wake();
    await one.finished();
  },

  missing: (events) =>
    inOrder(
      ["client 1's check", find(events, 'client 1', 'check')],
      ["client 1's write", find(events, 'client 1', 'write', 'invoke')],
      ["the gateway's pause", find(events, 'gateway A', 'pause')],
      ["client 2's write", find(events, 'client 2', 'write')],
      ["the gateway's waking", find(events, 'gateway A', 'wake')],
      ["the reply to client 1's write", replyToWrite(events, 'client 1')],
    ),
};
