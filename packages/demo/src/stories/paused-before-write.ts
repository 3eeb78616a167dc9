import { reply, type Story, step } from './story.js';

export const pausedBeforeWrite: Story = {
  number: 1,
  title: 'The paused client',
  source: 'Kleppmann, "How to do distributed locking", first figure',
  summary:
    'Client 1 reads the document and checks its lease: it is valid. Then its process is stopped, ' +
    'as by a long garbage collection. The lease ends, client 2 writes, and client 1 wakes up.',
  lesson:
    'A lease can end while its holder is stopped. Only the storage can refuse the late write.',
  anyLockService: true,
  pinned: { none: 'lost', lock: 'lost', token: 'safe', 'token+cas': 'safe', claim: 'safe' },

  async play(controls) {
    const one = await controls.clientStoppedBeforeWrite(1);
    await one.reachedWrite();
    await one.pause();
    const [two] = await Promise.all([controls.client(2), controls.leaseEnds()]);
    await two.finished();
    await one.wake();
    await one.finished();
  },

  steps: [
    step('client 1', 'check'),
    step('client 1', 'pause'),
    step('client 2', 'write'),
    step('client 1', 'wake'),
    reply('client 1'),
  ],
};
