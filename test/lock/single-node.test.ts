import { randomUUID } from 'node:crypto';
import { Redlock } from '@fenced/lock';
import { startRedis } from '@fenced/testbed';
import { expect, test } from 'vitest';
import { Ownership } from '../../packages/lock/src/redis/nodes.js';
import { LockTable } from './harness/lock-table.js';
import { OneNode } from './harness/one-node.js';
import { connect } from './harness/world.js';

/** A node that votes, whose first token was 1, and its lock table. */
async function votingNode(
  stack: AsyncDisposableStack,
): Promise<{ node: OneNode; lockTable: LockTable }> {
  const service = stack.use(await startRedis(1));
  const client = stack.adopt(connect(service.nodes[0]?.port ?? 0), (one) => one.disconnect());
  const keyPrefix = `{${randomUUID()}}:`;
  const lock = new Redlock({ nodes: [{ name: 'n', client }], keyPrefix, firstToken: 1n });
  await (await lock.acquire('other', { ttlMs: 1_000, waitMs: 10_000 })).release();
  const members = (await client.hget(`${keyPrefix}node`, 'members')) ?? '';
  const node = new OneNode(client, keyPrefix, members);
  return { node, lockTable: new LockTable(client, keyPrefix) };
}

test('a client that lost its lock and became the head of the queue cannot confirm or extend, even when the lock is free', async () => {
  await using stack = new AsyncDisposableStack();
  const { node, lockTable } = await votingNode(stack);
  const [mine, other] = [new Ownership(['x'], 'mine', true), new Ownership(['x'], 'other', true)];
  const position = {
    enqueuedMs: 1,
    channel: 'nobody',
    graceMs: 10_000,
    followersMax: 0,
    processId: 'x',
  };

  expect(await node.acquire(mine, 10_000, position)).toMatchObject({
    answer: 'granted',
    token: 2n,
  });
  // The lock ends early, as if the clock of the node had jumped.
  await lockTable.free('x');
  expect(await node.acquire(other, 10_000)).toMatchObject({ answer: 'granted', token: 3n });
  expect(await node.acquire(mine, 10_000, position)).toMatchObject({ answer: 'held' });
  await node.release(other);
  expect(await node.confirm(mine, 3n)).toEqual({ answer: 'not-held' });
  expect(await node.extend(mine, 2n, 10_000)).toMatchObject({ answer: 'not-held' });
  expect(await node.acquire(other, 10_000)).toMatchObject({ answer: 'held' });
  expect(await node.acquire(mine, 10_000, position)).toMatchObject({
    answer: 'granted',
    token: 4n,
  });
  // A confirmation of the token that the node itself gave raises it: no node gives a token twice.
  expect(await node.confirm(mine, 4n)).toMatchObject({ answer: 'granted', token: 5n });
});

test('a node refuses a backfill if it has given a higher token since, because the lease was lost in between', async () => {
  await using stack = new AsyncDisposableStack();
  const { node } = await votingNode(stack);
  const [mine, other] = [new Ownership(['x'], 'mine', true), new Ownership(['x'], 'other', true)];
  expect(await node.backfill(mine, 2n, 10_000)).toMatchObject({ answer: 'granted', token: 2n });
  expect(await node.backfill(mine, 2n, 10_000)).toMatchObject({ answer: 'granted', token: 2n });
  await node.release(mine);
  expect(await node.acquire(other, 10_000)).toMatchObject({ answer: 'granted', token: 3n });
  expect(await node.backfill(mine, 2n, 10_000)).toEqual({ answer: 'not-held' });
  await node.release(other);
  expect(await node.backfill(mine, 2n, 10_000)).toMatchObject({ answer: 'not-held' });
  expect(await node.acquire(other, 10_000)).toMatchObject({ answer: 'granted', token: 4n });
});

test('a lease is written back to a node only if the node has granted nothing since it reported its token, and has not restarted', async () => {
  await using stack = new AsyncDisposableStack();
  const { node, lockTable } = await votingNode(stack);
  const [mine, other] = [new Ownership(['x'], 'mine', true), new Ownership(['x'], 'other', true)];
  const told = async () => {
    const reply = await node.extend(mine, 2n, 10_000);
    if (reply.answer !== 'not-held' || !reply.tokenBound)
      throw new Error(`answered ${reply.answer}`);
    return reply.tokenBound;
  };
  const tries = async (): Promise<void> => {
    expect(await node.acquire(other, 10_000)).toMatchObject({ answer: 'granted' });
    await node.release(other);
  };
  // Other clients have tried in vain. So the last token of the node is above that of the lease.
  await tries();
  await tries();
  expect(await node.backfill(mine, 2n, 10_000)).toMatchObject({ answer: 'not-held' });
  const first = await told();
  expect(await told()).toEqual(first);
  await tries();
  expect(await node.backfill(mine, first, 10_000)).toMatchObject({ answer: 'not-held' });
  // The node also refuses after it has forgotten the resource.
  await lockTable.forget('x');
  expect(await node.backfill(mine, first, 10_000)).toMatchObject({ answer: 'not-held' });

  const second = await told();
  const stranger = { ...second, incarnation: 'another' };
  expect(await node.backfill(mine, stranger, 10_000)).toEqual({ answer: 'not-held' });
  await node.acquire(other, 10_000);
  expect(await node.extend(mine, 2n, 10_000)).toEqual({ answer: 'not-held' });
  expect(await node.backfill(mine, second, 10_000)).toEqual({ answer: 'not-held' });
  await node.release(other);

  const third = await told();
  expect(await node.backfill(mine, third, 10_000)).toMatchObject({ answer: 'granted' });
  expect(await node.extend(mine, 2n, 10_000)).toMatchObject({ answer: 'extended' });
  await node.release(mine);
  const later = await node.acquire(other, 10_000);
  expect(later).toMatchObject({ answer: 'granted', token: BigInt(third.number) + 1n });
});

test('a lease of two resources is not written back if another client has locked one of them since', async () => {
  await using stack = new AsyncDisposableStack();
  const { node, lockTable } = await votingNode(stack);
  const [mine, other] = [
    new Ownership(['x', 'y'], 'mine', true),
    new Ownership(['x'], 'other', true),
  ];
  await node.acquire(mine, 10_000);
  // The token of `y` is far above that of `x`.
  await lockTable.free('y');
  await lockTable.setToken('y', 1_000n);
  await lockTable.setMax(1_000n);
  const reply = await node.extend(mine, 2n, 10_000);
  if (reply.answer !== 'not-held' || !reply.tokenBound) throw new Error(`answered ${reply.answer}`);
  await lockTable.free('x');
  expect(await node.acquire(other, 10_000)).toMatchObject({ answer: 'granted' });
  await node.release(other);
  expect(await node.backfill(mine, reply.tokenBound, 10_000)).toMatchObject({ answer: 'not-held' });
});

test('a node that has forgotten a resource accepts a lease again only under the token bound that it has reported', async () => {
  await using stack = new AsyncDisposableStack();
  const { node, lockTable } = await votingNode(stack);
  const [mine, other] = [new Ownership(['x'], 'mine', true), new Ownership(['x'], 'other', true)];
  await node.acquire(other, 10_000);
  await node.release(other);
  await lockTable.forget('x');
  const reply = await node.backfill(mine, 1n, 10_000);
  expect(reply).toMatchObject({ answer: 'not-held', tokenBound: { number: '0000000000000002' } });
  if (reply.answer !== 'not-held' || !reply.tokenBound) return;
  expect(await node.backfill(mine, reply.tokenBound, 10_000)).toMatchObject({
    answer: 'granted',
    token: 2n,
  });
});

test('a waiter that leaves a queue leaves no trace in it', async () => {
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
  await expect.poll(() => client.zcard(`${keyPrefix}queue:x`)).toBe(1);
  await lock.close();
  await Promise.all(waits);
});
