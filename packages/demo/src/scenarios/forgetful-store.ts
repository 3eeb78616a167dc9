import type { Event } from '../history.js';
import { pausedBeforeWrite } from './paused-before-write.js';
import { find, inOrder, type Scenario } from './scenario.js';

export const forgetfulStore: Scenario = {
  number: 12,
  title: 'Conditions are ignored',
  source: 'npm s3rver, fauxqs 2.4.1, Garage 1.x, and proxies that drop headers',
  story:
    'As story 1, but something before the storage drops If-Match and If-None-Match and answers 200 to everything. ' +
    'Whoever relies on the condition overwrites. FencedS3 asks first, and refuses to write at all.',
  pinned: { metadata: 'lost', token: 'refused', 'token+cas': 'refused', claim: 'refused' },
  stores: ['s3'],
  ignoresConditions: true,

  async play(stage) {
    const one = await stage.clientThatStops(1);
    // A client that refuses the store ends before its write.
    const stands = await Promise.race([
      one.reachedItsWrite().then(
        () => true,
        () => false,
      ),
      one.finished().then(() => false),
    ]);
    if (stands) await one.pause();
    const [two] = await Promise.all([stage.client(2), stands && stage.leaseIsOver()]);
    await two.finished();
    if (stands) await one.wake();
    await one.finished();
  },

  missing: (events) =>
    refusal(events, 'client 1')
      ? inOrder(
          ["client 1's refusal", refusal(events, 'client 1')],
          ["client 2's refusal", refusal(events, 'client 2')],
        )
      : pausedBeforeWrite.missing(events),
};

function refusal(events: readonly Event[], actor: Event['actor']): Event | undefined {
  return find(events, actor, 'probe', 'refused');
}
