import { type Story, step } from './story.js';

export const lostReply: Story = {
  number: 11,
  title: 'The lost reply',
  source: 'every network; "a retried PUT that had succeeded is answered 412"',
  summary:
    'Client 2 has written. Client 1 writes, too, and the storage applies it, but the reply is lost and the ' +
    'connection breaks. Client 1 must neither write twice nor report a failure. It reads back, and finds its own write id.',
  lesson: 'A lost reply is not a failed write. Read back before you decide.',
  pinned: { token: 'safe', 'token+cas': 'safe', claim: 'safe' },
  stores: ['s3'],
  leaseLasts: true,

  async play(controls) {
    const two = await controls.client(2);
    await two.finished();
    const one = await controls.clientStoppedBeforeWrite(1);
    await one.reachedWrite();
    controls.loseReplies();
    one.proceed();
    await controls.replyIsLost();
    await one.finished();
  },

  steps: [
    step('client 2', 'write'),
    step('client 1', 'check'),
    step('storage', 'lose'),
    step('client 1', 'write'),
  ],
};
