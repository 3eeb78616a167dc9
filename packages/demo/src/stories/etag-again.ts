import { reply, type Story, step } from './story.js';

export const etagAgain: Story = {
  number: 10,
  title: 'The ETag comes back',
  source: 'Amazon S3, API_Object: the ETag identifies contents, "not its metadata"',
  summary:
    'Client 2 has written. Client 1 reads, compares the tokens and is stopped. Its lease ends, and client 2 writes ' +
    'the same bytes again, with a higher token. Client 1 wakes and writes if the ETag is the one that it read. ' +
    'It is: the same bytes have the same ETag.',
  lesson:
    'An ETag identifies bytes, not a write. With the token in the bytes, no two writes have the same ETag.',
  pinned: { metadata: 'lost', token: 'safe', 'token+cas': 'safe', claim: 'safe' },
  stores: ['s3'],

  async play(controls) {
    const first = await controls.client(2);
    await first.finished();
    const one = await controls.clientStoppedBeforeWrite(1);
    await one.reachedWrite();
    await one.pause();
    const [again] = await Promise.all([controls.client(2), controls.leaseEnds()]);
    await again.finished();
    await one.wake();
    await one.finished();
  },

  steps: [
    step('client 2', 'write'),
    step('client 1', 'check'),
    step('client 1', 'pause'),
    { ...step('client 2', 'write'), isLast: true },
    step('client 1', 'wake'),
    reply('client 1'),
  ],
};
