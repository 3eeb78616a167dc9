import { reply, type Story, step } from './story.js';

export const pausedGateway: Story = {
  number: 13,
  title: 'The paused gateway',
  source: 'story 1, for clients that use gateways',
  summary:
    'Two gateways share the lock nodes and the storage. Client 1 has its lease from gateway A and ' +
    'writes through A. A is stopped after it accepted the write and before the storage sees it. The lease ends, ' +
    'client 2 writes through B, and A wakes up. The storage refuses the write of A, and client 1 gets 412.',
  lesson: 'A gateway can be paused, too. The storage behind it must check the token.',
  behindGateways: true,
  pinned: { token: 'safe' },

  async play(controls) {
    const gateway = controls.gateway();
    const one = await controls.client(1);
    // If the client ends first, it has not written through the gateway: the story did not happen.
    await Promise.race([gateway.reachedWrite(), one.finished()]);
    await gateway.pause();
    const [two] = await Promise.all([controls.client(2), controls.leaseEnds()]);
    await two.finished();
    await gateway.wake();
    await one.finished();
  },

  steps: [
    step('client 1', 'check'),
    step('client 1', 'write', 'invoke'),
    step('gateway A', 'pause'),
    step('client 2', 'write'),
    step('gateway A', 'wake'),
    reply('client 1'),
  ],
};
