import type { Event } from '../history.js';
import { find, inOrder, replyToWrite, type Scenario } from './scenario.js';

export const etagAgain: Scenario = {
  number: 10,
  title: 'The ETag comes back',
  source: 'Amazon S3, API_Object: the ETag tells contents, "not its metadata"',
  story:
    'Client 2 has written. Client 1 reads, compares the tokens and is stopped. Its lease ends, and client 2 writes the ' +
    'same bytes again, with a higher token. Client 1 wakes and writes upon the ETag that it read, which is the ETag again. ' +
    'With the token in the bytes, no two writes have the same one.',
  pinned: { metadata: 'lost', token: 'safe', 'token+cas': 'safe', claim: 'safe' },
  stores: ['s3'],

  async play(stage) {
    const first = await stage.client(2);
    await first.finished();
    const one = await stage.clientThatStops(1);
    await one.reachedItsWrite();
    await one.pause();
    const [again] = await Promise.all([stage.client(2), stage.leaseIsOver()]);
    await again.finished();
    await one.wake();
    await one.finished();
  },

  missing: (events) =>
    inOrder(
      ["client 2's first write", find(events, 'client 2', 'write')],
      ["client 1's check", find(events, 'client 1', 'check')],
      ["client 1's pause", find(events, 'client 1', 'pause')],
      ["client 2's second write", lastWrite(events)],
      ["client 1's waking", find(events, 'client 1', 'wake')],
      ["the reply to client 1's write", replyToWrite(events, 'client 1')],
    ),
};

function lastWrite(events: readonly Event[]): Event | undefined {
  return events.findLast(
    ({ actor, operation, phase }) =>
      actor === 'client 2' && operation === 'write' && phase === 'ok',
  );
}
