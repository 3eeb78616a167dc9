import { reply, type Story, step } from './story.js';

export const bothRead: Story = {
  number: 3,
  title: 'Both have read',
  source: 'a comment below Kleppmann\'s article, answered: "that scenario does look risky"',
  summary:
    'Client 1 reads and is stopped. Its lease ends. Client 2 reads, too, and is stopped. ' +
    'Client 1 wakes and writes with the lower token, before client 2 writes. If the storage compares ' +
    'tokens alone, client 2 then overwrites the update with a value that lacks it.',
  lesson:
    'A token on the write alone is not enough. Compare with the value that was read, or claim before reading.',
  anyLockService: true,
  pinned: { none: 'lost', lock: 'lost', token: 'lost', 'token+cas': 'safe', claim: 'safe' },

  async play(controls) {
    const one = await controls.clientStoppedBeforeWrite(1);
    await one.reachedWrite();
    await one.pause();
    const [two] = await Promise.all([controls.clientStoppedBeforeWrite(2), controls.leaseEnds()]);
    await two.reachedWrite();
    await two.pause();
    await one.wake();
    await one.finished();
    await two.wake();
    await two.finished();
  },

  steps: [
    step('client 1', 'read'),
    step('client 1', 'pause'),
    step('client 2', 'read'),
    step('client 2', 'pause'),
    step('client 1', 'wake'),
    reply('client 1'),
    step('client 2', 'wake'),
    step('client 2', 'write'),
  ],
};
