import { expect, test } from 'vitest';
import { ManualClock } from '../testing/manual-clock.js';
import type { Call } from './command.js';
import type { RedisNode } from './node.js';
import { Nodes, Ownership } from './nodes.js';

test('two closes at once both end with the answers of the nodes, not with the time limit', async () => {
  const calls: Call<RedisNode>[] = [];
  const send = (call: Call<RedisNode>): void => void calls.push(call);
  const node = { name: 'a', send, read: () => undefined } as unknown as RedisNode;
  const options = { keyPrefix: 'k:', fenceTtlMs: 1_000, maxTtlMs: 1_000 };
  // The clock stands still, so no time limit passes.
  const nodes = new Nodes([node], options, new ManualClock());
  nodes.giveUp(new Ownership(['x'], 'owner', false, [0]));
  const closed = [nodes.givenUp(2_000), nodes.givenUp(2_000)];
  for (const { onReply } of calls) onReply(node, new Error('lost'));
  expect(await Promise.all(closed)).toEqual([undefined, undefined]);
  await nodes.givenUp(2_000);
});
