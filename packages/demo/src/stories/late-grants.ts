import { reply, type Story, step } from './story.js';

export const lateGrants: Story = {
  number: 6,
  title: 'The late grants',
  source: "Kleppmann, second example of bad timings; antirez's answer",
  summary:
    'Every node grants client 1 the lock, but client 1 is stopped before it reads the replies. The lease ends, ' +
    'and client 2 takes the lock and works. Client 1 wakes and finds the grants. It asked too long ago, ' +
    'so they are worthless. A client that counts its lease from their arrival believes them.',
  lesson: 'A lease counts from the request, not from the arrival of the replies.',
  breaks: 'nodes',
  pinned: { lock: 'safe' },
  counterparts: [{ lock: 'elapsed time ignored', pinned: { lock: 'two holders' } }],

  async play(controls) {
    const one = await controls.clientStoppedBeforeAcquire();
    controls.holdGrants();
    one.proceed();
    await controls.grantsAreHeld();
    await one.pause();
    controls.deliverGrants();
    const [two] = await Promise.all([controls.clientStoppedBeforeWrite(2), controls.leaseEnds()]);
    await two.reachedWrite();
    await one.wake();
    await one.finishedOrTurnedAway();
    two.proceed();
    await two.finished();
    await one.finished();
  },

  steps: [
    step('client 1', 'acquire', 'invoke'),
    step('lock nodes', 'hold'),
    step('client 1', 'pause'),
    step('lock nodes', 'deliver'),
    // The demo sees the end of the lease by polling, so client 2 may have the lock a moment
    // earlier.
    { ...step('lock nodes', 'expire'), isUnordered: true },
    step('client 2', 'check'),
    step('client 1', 'wake'),
    step('client 1', 'acquire', 'refused', 'ok'),
    reply('client 2'),
    { ...reply('client 1'), isUnordered: true },
  ],
};
