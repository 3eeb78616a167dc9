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

test('the head of the queue holds no lock: a late copy of an old request, and a release, do not let it confirm or extend a lost lock', async () => {
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
  // The node's clock leaps.
  await lockTable.free('x');
  expect(await node.acquire(other, 10_000)).toMatchObject({ answer: 'granted', token: 3n });
  expect(await node.acquire(mine, 10_000, position)).toMatchObject({ answer: 'held' });
  await node.release(other);
  expect(await node.confirm(mine, 3n)).toEqual({ answer: 'not-held' });
  expect(await node.extend(mine, 10_000)).toMatchObject({ answer: 'not-held' });
  expect(await node.acquire(other, 10_000)).toMatchObject({ answer: 'held' });
  expect(await node.acquire(mine, 10_000, position)).toMatchObject({
    answer: 'granted',
    token: 4n,
  });
  // The same request again gives another token: no node gives a token twice.
  expect(await node.confirm(mine, 4n)).toMatchObject({ answer: 'granted', token: 5n });
});

test('a backfill is refused by a node that has given a higher token meanwhile: the lease was lost in between', async () => {
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

test('a lease is brought back to a node that has granted nothing since it reported its number, and only in the same incarnation', async () => {
  await using stack = new AsyncDisposableStack();
  const { node, lockTable } = await votingNode(stack);
  const [mine, other] = [new Ownership(['x'], 'mine', true), new Ownership(['x'], 'other', true)];
  const told = async () => {
    const reply = await node.extend(mine, 10_000);
    if (reply.answer !== 'not-held' || !reply.tokenBound)
      throw new Error(`answered ${reply.answer}`);
    return reply.tokenBound;
  };
  const tries = async (): Promise<void> => {
    expect(await node.acquire(other, 10_000)).toMatchObject({ answer: 'granted' });
    await node.release(other);
  };
  // Others have tried in vain before: their tokens are above the lease's.
  await tries();
  await tries();
  expect(await node.backfill(mine, 2n, 10_000)).toMatchObject({ answer: 'not-held' });
  const first = await told();
  expect(await told()).toEqual(first);
  await tries();
  expect(await node.backfill(mine, first, 10_000)).toMatchObject({ answer: 'not-held' });
  // The same holds after it has forgotten that.
  await lockTable.forget('x');
  expect(await node.backfill(mine, first, 10_000)).toMatchObject({ answer: 'not-held' });

  const second = await told();
  const stranger = { ...second, incarnation: 'another' };
  expect(await node.backfill(mine, stranger, 10_000)).toEqual({ answer: 'not-held' });
  await node.acquire(other, 10_000);
  expect(await node.extend(mine, 10_000)).toEqual({ answer: 'not-held' });
  expect(await node.backfill(mine, second, 10_000)).toEqual({ answer: 'not-held' });
  await node.release(other);

  const third = await told();
  expect(await node.backfill(mine, third, 10_000)).toMatchObject({ answer: 'granted' });
  expect(await node.extend(mine, 10_000)).toMatchObject({ answer: 'extended' });
  await node.release(mine);
  const later = await node.acquire(other, 10_000);
  expect(later).toMatchObject({ answer: 'granted', token: BigInt(third.number) + 1n });
});

test('a lease of several resources is not brought back if one of them that was still held has been lost to another since', async () => {
  await using stack = new AsyncDisposableStack();
  const { node, lockTable } = await votingNode(stack);
  const [mine, other] = [
    new Ownership(['x', 'y'], 'mine', true),
    new Ownership(['x'], 'other', true),
  ];
  await node.acquire(mine, 10_000);
  // The number of this resource is far above that of the other.
  await lockTable.free('y');
  await lockTable.setToken('y', 1_000n);
  await lockTable.setMax(1_000n);
  const reply = await node.extend(mine, 10_000);
  if (reply.answer !== 'not-held' || !reply.tokenBound) throw new Error(`answered ${reply.answer}`);
  await lockTable.free('x');
  expect(await node.acquire(other, 10_000)).toMatchObject({ answer: 'granted' });
  await node.release(other);
  expect(await node.backfill(mine, reply.tokenBound, 10_000)).toMatchObject({ answer: 'not-held' });
});

test('a node that has forgotten a resource holds a lease again only if the request has the number that it reported', async () => {
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
