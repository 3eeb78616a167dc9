import { pausedBeforeWrite } from './paused-before-write.js';
import { type Story, step } from './story.js';

export const ignoredConditions: Story = {
  number: 12,
  title: 'Conditions are ignored',
  source: 'npm s3rver, fauxqs 2.4.1, Garage 1.x, and proxies that drop headers',
  summary:
    'As story 1, but a proxy before the storage drops If-Match and If-None-Match and answers 200 to everything. ' +
    'A client that relies on the condition overwrites. FencedS3 tests the server first, and writes nothing.',
  lesson: 'Test that a server enforces conditions before you rely on them.',
  pinned: { metadata: 'lost', token: 'refused', 'token+cas': 'refused', claim: 'refused' },
  stores: ['s3'],
  ignoresConditions: true,

  async play(controls) {
    const one = await controls.clientStoppedBeforeWrite(1);
    // A client that refuses the store ends before its write.
    const isHeld = await Promise.race([
      one.reachedWrite().then(
        () => true,
        () => false,
      ),
      one.finished().then(() => false),
    ]);
    if (isHeld) await one.pause();
    const [two] = await Promise.all([controls.client(2), isHeld && controls.leaseEnds()]);
    await two.finished();
    if (isHeld) await one.wake();
    await one.finished();
  },

  steps: pausedBeforeWrite.steps,
  stepsIfRefused: [step('client 1', 'probe', 'refused'), step('client 2', 'probe', 'refused')],
};
