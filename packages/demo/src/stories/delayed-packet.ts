import { reply, type Story, step } from './story.js';

export const delayedPacket: Story = {
  number: 2,
  title: 'The delayed packet',
  source: 'Kleppmann, after an incident at GitHub: packets were delayed for 90 seconds',
  summary:
    'Client 1 sends its write in time, but the network delays it. The lease ends, client 2 writes, ' +
    'and then the packet arrives.',
  lesson: 'No check before the write can help: the client was in time, but its packet was not.',
  anyLockService: true,
  pinned: { none: 'lost', lock: 'lost', token: 'safe', 'token+cas': 'safe', claim: 'safe' },

  async play(controls) {
    const one = await controls.clientStoppedBeforeWrite(1);
    await one.reachedWrite();
    controls.holdPackets();
    one.proceed();
    await controls.packetIsHeld();
    const [two] = await Promise.all([controls.client(2), controls.leaseEnds()]);
    await two.finished();
    controls.deliver();
    await one.finished();
  },

  steps: [
    step('client 1', 'check'),
    step('storage', 'hold'),
    step('client 2', 'write'),
    step('storage', 'deliver'),
    reply('client 1'),
  ],
};
