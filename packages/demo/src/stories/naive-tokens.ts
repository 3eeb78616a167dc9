import { reply, type Story, step } from './story.js';

export const wipedNodes: Story = {
  number: 8,
  title: 'All nodes are wiped',
  source: 'a rack without power',
  summary:
    'Client 1 holds the lock and is stopped. Every lock node loses everything, so no node knows client ' +
    "1's lease, and there are two holders. Tokens of @fenced/lock still grow, because they start above the " +
    'clock. Counters in Redis start at 1 again, so the old holder has the higher number.',
  lesson: 'If all nodes forget, no lock can help. Tokens can, if they never start again.',
  breaks: 'nodes',
  leaseLasts: true,
  pinned: { lock: 'two holders', token: 'safe', 'token+cas': 'safe', claim: 'safe' },
  counterparts: [{ lock: 'highest INCR', pinned: { token: 'lost', claim: 'disorder' } }],

  async play(controls) {
    const one = await controls.clientStoppedBeforeWrite(1);
    await one.reachedWrite();
    await one.pause();
    await controls.restart('abcde', 'none');
    const two = await controls.client(2);
    await two.finished();
    await one.wake();
    await one.finished();
  },

  steps: [
    step('client 1', 'check'),
    step('client 1', 'pause'),
    step('lock nodes', 'forget'),
    step('client 2', 'acquire'),
    reply('client 2'),
    step('client 1', 'wake'),
    reply('client 1'),
  ],
};

export const counterOnOneNode: Story = {
  number: 9,
  title: 'The counter on one node',
  source: 'Kleppmann: "keeping a counter on one Redis node would not be sufficient"',
  summary:
    'Tokens are counted by INCR on A, which saves to disk now and then. Client 1 gets its token and is ' +
    'stopped. Its lease ends. A crashes and restarts with the data on its disk. The next holder gets ' +
    'the same number, and no storage can tell the two apart.',
  lesson: 'A counter on one node is only as durable as that node.',
  breaks: 'nodes',
  pinned: { token: 'safe' },
  counterparts: [{ lock: 'INCR on one node', pinned: { token: 'lost' } }],

  async play(controls) {
    await controls.save('a');
    const one = await controls.clientStoppedBeforeWrite(1);
    await one.reachedWrite();
    await one.pause();
    await controls.restart('a', 'kept');
    const [two] = await Promise.all([controls.client(2), controls.leaseEnds()]);
    await two.finished();
    await one.wake();
    await one.finished();
  },

  steps: wipedNodes.steps,
};

export const highestCounter: Story = {
  number: 9,
  title: 'The highest counter',
  source: 'a frequent proposal in reply to the same sentence of Kleppmann',
  summary:
    'Each node counts by INCR, and the highest number of a majority is the token. Client 2 reaches only E, ' +
    'gives up, and leaves E one ahead. Client 1 reaches A, B and E and takes the number of E. Client 2 ' +
    'reaches A, B, C and D: the same number. With @fenced/lock, a majority stores a number before it counts.',
  lesson: 'A number is a token only when a majority has stored it.',
  breaks: 'nodes',
  pinned: { token: 'safe' },
  counterparts: [{ lock: 'highest INCR', pinned: { token: 'lost' } }],

  async play(controls) {
    await controls.reaches(2, 'e');
    const hasty = await controls.clientThatGivesUp(2);
    await hasty.finished();
    await controls.reaches(1, 'abe');
    const one = await controls.clientStoppedBeforeWrite(1);
    await one.reachedWrite();
    await one.pause();
    await controls.reaches(2, 'abcd');
    await controls.leaseEnds();
    const two = await controls.client(2);
    await two.finished();
    await one.wake();
    await one.finished();
  },

  steps: [
    step('client 2', 'acquire', 'refused'),
    step('client 1', 'check'),
    step('client 1', 'pause'),
    step('client 2', 'acquire'),
    reply('client 2'),
    step('client 1', 'wake'),
    reply('client 1'),
  ],
};
