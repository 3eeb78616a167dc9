import type { Event } from '../history.js';
import { find, inOrder, type Scenario } from './scenario.js';

/** What a client is told in the end: that its claim or write is applied, or refused. */
function reply(events: readonly Event[], actor: Event['actor']): Event | undefined {
  return events.findLast(
    (event) =>
      event.actor === actor &&
      (event.operation === 'write' || event.operation === 'claim') &&
      (event.phase === 'ok' || event.phase === 'refused'),
  );
}

export const wipedNodes: Scenario = {
  number: 8,
  title: 'All nodes are wiped',
  source: 'a rack without power',
  story:
    'Client 1 holds the lock and is stopped. Every lock node loses everything. Nobody can know of client ' +
    "1's lease any more, so there are two holders; but tokens go on growing, above the clock. Counters " +
    'that are kept in Redis begin at 1 again: the old holder has the higher number for long.',
  breaks: 'nodes',
  leaseLasts: true,
  pinned: { lock: 'two holders', token: 'safe', 'token+cas': 'safe', claim: 'safe' },
  counterparts: [{ lock: 'highest INCR', pinned: { token: 'lost', claim: 'disorder' } }],

  async play(stage) {
    const one = await stage.clientThatStops(1);
    await one.reachedItsWrite();
    await one.pause();
    await stage.restart('abcde', 'none');
    const two = await stage.client(2);
    await two.finished();
    await one.wake();
    await one.finished();
  },

  missing: (events) =>
    inOrder(
      ["client 1's check", find(events, 'client 1', 'check')],
      ["client 1's pause", find(events, 'client 1', 'pause')],
      ['the loss', find(events, 'lock nodes', 'forget')],
      ["client 2's lease", find(events, 'client 2', 'acquire')],
      ['the reply to client 2', reply(events, 'client 2')],
      ["client 1's waking", find(events, 'client 1', 'wake')],
      ["the reply to client 1's write", reply(events, 'client 1')],
    ),
};

export const counterOnOneNode: Scenario = {
  number: 9,
  title: 'The counter on one node',
  source: 'Kleppmann: "keeping a counter on one Redis node would not be sufficient"',
  story:
    'The tokens are counted by INCR on A, which writes to disk now and then. Client 1 has its token and is ' +
    'stopped; its lease ends; A crashes and restarts with what it had on disk. The next holder is given ' +
    'the same number, and no storage can tell the two apart.',
  breaks: 'nodes',
  pinned: { token: 'safe' },
  counterparts: [{ lock: 'INCR on one node', pinned: { token: 'lost' } }],

  async play(stage) {
    await stage.save('a');
    const one = await stage.clientThatStops(1);
    await one.reachedItsWrite();
    await one.pause();
    await stage.restart('a', 'kept');
    const [two] = await Promise.all([stage.client(2), stage.leaseIsOver()]);
    await two.finished();
    await one.wake();
    await one.finished();
  },

  missing: (events) =>
    inOrder(
      ["client 1's check", find(events, 'client 1', 'check')],
      ["client 1's pause", find(events, 'client 1', 'pause')],
      ["A's restart", find(events, 'lock nodes', 'forget')],
      ["client 2's lease", find(events, 'client 2', 'acquire')],
      ["the reply to client 2's write", reply(events, 'client 2')],
      ["client 1's waking", find(events, 'client 1', 'wake')],
      ["the reply to client 1's write", reply(events, 'client 1')],
    ),
};

export const highestCounter: Scenario = {
  number: 9,
  title: 'The highest counter',
  source: 'what is often proposed in reply to the same sentence',
  story:
    'Each node counts by INCR; the highest number of a majority is the token. Client 2 reaches only E, ' +
    'gives up, and leaves E one ahead. Client 1 reaches A, B and E and takes the number of E. Client 2 ' +
    'reaches A, B, C and D: the same number. Here A and B are told the number before it counts.',
  breaks: 'nodes',
  pinned: { token: 'safe' },
  counterparts: [{ lock: 'highest INCR', pinned: { token: 'lost' } }],

  async play(stage) {
    await stage.reaches(2, 'e');
    const hasty = await stage.clientThatGivesUp(2);
    await hasty.finished();
    await stage.reaches(1, 'abe');
    const one = await stage.clientThatStops(1);
    await one.reachedItsWrite();
    await one.pause();
    await stage.reaches(2, 'abcd');
    await stage.leaseIsOver();
    const two = await stage.client(2);
    await two.finished();
    await one.wake();
    await one.finished();
  },

  missing: (events) =>
    inOrder(
      ["client 2's failed attempt", find(events, 'client 2', 'acquire', 'refused')],
      ["client 1's check", find(events, 'client 1', 'check')],
      ["client 1's pause", find(events, 'client 1', 'pause')],
      ["client 2's lease", find(events, 'client 2', 'acquire')],
      ["the reply to client 2's write", reply(events, 'client 2')],
      ["client 1's waking", find(events, 'client 1', 'wake')],
      ["the reply to client 1's write", reply(events, 'client 1')],
    ),
};
