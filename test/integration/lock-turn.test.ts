import { randomUUID } from 'node:crypto';
import { Redlock } from '@fenced/lock';
import { startRedis } from '@fenced/testbed';
import { expect, test } from 'vitest';
import { Holding } from '../../packages/lock/src/redis/nodes.js';
import { Ledger } from './ledger.js';
import { connect } from './lock-world.js';
import { OneNode } from './one-node.js';

/** A node that votes, whose first token was 1, and its ledger. */
async function votingNode(stack: AsyncDisposableStack): Promise<{ node: OneNode; ledger: Ledger }> {
  const service = stack.use(await startRedis(1));
  const client = stack.adopt(connect(service.nodes[0]?.port ?? 0), (one) => one.disconnect());
  const keyPrefix = `{${randomUUID()}}:`;
  const lock = new Redlock({ nodes: [{ name: 'n', client }], keyPrefix, firstToken: 1n });
  await (await lock.acquire('other', { ttlMs: 1_000, waitMs: 10_000 })).release();
  const members = (await client.hget(`${keyPrefix}node`, 'members')) ?? '';
  const node = new OneNode(client, keyPrefix, members);
  return { node, ledger: new Ledger(client, keyPrefix) };
}

test('a turn is no holding: a late copy of an old request, and a release, do not let an attempt confirm or extend what it has lost', async () => {
  await using stack = new AsyncDisposableStack();
  const { node, ledger } = await votingNode(stack);
  const [mine, other] = [new Holding(['x'], 'mine', true), new Holding(['x'], 'other', true)];
  const ticket = { score: 1, channel: 'nobody', turnMs: 10_000, heirsMax: 0, family: 'x' };

  expect(await node.acquire(mine, 10_000, ticket)).toMatchObject({ answer: 'granted', token: 2n });
  // The node's clock leaps.
  await ledger.free('x');
  expect(await node.acquire(other, 10_000)).toMatchObject({ answer: 'granted', token: 3n });
  expect(await node.acquire(mine, 10_000, ticket)).toMatchObject({ answer: 'held' });
  await node.release(other);
  expect(await node.confirm(mine, 3n)).toEqual({ answer: 'not-held' });
  expect(await node.extend(mine, 10_000)).toEqual({ answer: 'not-held' });
  expect(await node.acquire(other, 10_000)).toMatchObject({ answer: 'held' });
  expect(await node.acquire(mine, 10_000, ticket)).toMatchObject({ answer: 'granted', token: 4n });
  // Sent again, it gives another one: no node gives a token twice.
  expect(await node.confirm(mine, 4n)).toMatchObject({ answer: 'granted', token: 5n });
});

test('a lease is not held by more nodes where one has given a higher token meanwhile: it was lost in between', async () => {
  await using stack = new AsyncDisposableStack();
  const { node } = await votingNode(stack);
  const [mine, other] = [new Holding(['x'], 'mine', true), new Holding(['x'], 'other', true)];
  expect(await node.keep(mine, 2n, 10_000)).toMatchObject({ answer: 'granted', token: 2n });
  expect(await node.keep(mine, 2n, 10_000)).toMatchObject({ answer: 'granted', token: 2n });
  await node.release(mine);
  expect(await node.acquire(other, 10_000)).toMatchObject({ answer: 'granted', token: 3n });
  expect(await node.keep(mine, 2n, 10_000)).toEqual({ answer: 'not-held' });
  await node.release(other);
  expect(await node.keep(mine, 2n, 10_000)).toEqual({ answer: 'not-held' });
  expect(await node.acquire(other, 10_000)).toMatchObject({ answer: 'granted', token: 4n });
});

test('who leaves a line leaves no trace in it', async () => {
  await using service = await startRedis(1);
  await using stack = new AsyncDisposableStack();
  const client = stack.adopt(connect(service.nodes[0]?.port ?? 0), (one) => one.disconnect());
  const keyPrefix = `{${randomUUID()}}:`;
  await using lock = new Redlock({ nodes: [{ name: 'n', client }], keyPrefix });
  await using _ = await lock.acquire('x', { ttlMs: 60_000, waitMs: 10_000 });
  const waits = Array.from({ length: 20 }, (_, at) =>
    lock.acquire('x', { ttlMs: 60_000, waitMs: at === 0 ? 60_000 : 50 }).catch(() => 'gave up'),
  );
  expect(await Promise.all(waits.slice(1))).toEqual(Array(19).fill('gave up'));
  await expect.poll(() => client.zcard(`${keyPrefix}line:x`)).toBe(1);
  await lock.close();
  await Promise.all(waits);
});
