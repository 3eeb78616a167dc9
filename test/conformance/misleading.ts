import { DeleteObjectCommand, PutObjectCommand } from '@aws-sdk/client-s3';
import { ConflictError, OutcomeUnknownError, StaleTokenError } from '@fenced/store';
import { FencedS3, type Runtime } from '@fenced/store/s3';
import { beforeAll, beforeEach, expect, test } from 'vitest';
import type { Fault, FaultyProxy } from './harness/faulty-proxy.js';
import { type Staged, shortId, text } from './harness/stage.js';

/** Replies that are of another request, of another time, or that say less than they seem to say. */
export function misleadingReplies(staged: Staged): void {
  /** The requests of `store` pass the faulty proxy. Those of `other` do not. */
  let store: FencedS3;
  let other: FencedS3;
  let proxy: FaultyProxy;
  let key: string;

  beforeAll(() => {
    proxy = staged().proxy;
    store = staged().viaProxy();
    other = staged().store();
  });

  beforeEach(async () => {
    key = staged().newKey();
    proxy.reset();
    await store.probe();
  });

  const increment = (by: FencedS3, token: number) =>
    by.update(key, { token }, (current) => `${Number(text(current)) + 1}`);

  test('a stale write that gets the reply to a newer one stays stale, and so does the next', async () => {
    await store.put(key, 'first', { token: 5 });
    await staged().viaProxy().put(key, 'newer', { token: 7 });
    proxy.faults.push('shifted');
    await expect(store.put(key, 'stale', { token: 5 })).rejects.toThrow(StaleTokenError);
    await expect(store.put(key, 'stale', { token: 5 })).rejects.toThrow(StaleTokenError);
    expect(await other.get(key)).toMatchObject({ token: 7n, body: Buffer.from('newer') });
  });

  test('a read that gets the reply to a write takes no object for one without a token', async () => {
    await staged().viaProxy().put(key, 'newer', { token: 7 });
    const late = staged().viaProxy();
    await late.probe();
    proxy.of = 'HEAD';
    proxy.faults.push('shifted');
    await expect(late.put(key, 'stale', { token: 5 })).rejects.toThrow(StaleTokenError);
    expect(await other.get(key)).toMatchObject({ token: 7n, body: Buffer.from('newer') });
  });

  test.each([
    ['applied by a later copy', 6],
    ['unknown if no copy is answered', 100],
  ] as const)(
    'an update that is refused beside its own late copy is %s, and never applied twice',
    async (_, refusals) => {
      await other.put(key, '1', { token: 33 });
      let edits = 0;
      proxy.faults.push('late-conflict', ...Array<Fault>(refusals - 1).fill('conflict'));
      const told = await store
        .update(key, { token: 33 }, async (current) => {
          edits += 1;
          if (edits === 2) await proxy.deliverLate();
          return `${Number(text(current)) + 1}`;
        })
        .catch((error: unknown) => error);
      await proxy.deliverLate();
      expect(text(await other.get(key))).toBe('2');
      if (refusals === 6) return expect(told).toMatchObject({ token: 33n });
      expect(told).toBeInstanceOf(OutcomeUnknownError);
      proxy.reset();
      expect(await store.settle((told as OutcomeUnknownError).writeId)).toBe('applied');
    },
  );

  test('a read of an older object than the base decides nothing', async () => {
    await other.put(key, '0', { token: 33 });
    await store.highest(key);
    await other.put(key, '1', { token: 33 });
    proxy.of = 'all';
    // The update reads the base, and the reply to its write is lost.
    proxy.faults.push('pass', 'reply-lost', 'past');
    const { writeId } = await increment(store, 34);
    expect(await other.get(key)).toMatchObject({ writeId, body: Buffer.from('2') });
  });

  test('a holder that was paused while 41 others wrote starts again, and knows its outcome', async () => {
    let pausedMs = 0;
    const { client, bucket } = staged();
    const runtime: Runtime = {
      random: Math.random,
      wallClockMs: Date.now,
      nowMs: () => performance.now() + pausedMs,
      writeId: () => crypto.randomUUID().replaceAll('-', ''),
      sleep: async () => undefined,
    };
    const paused = new FencedS3({ client, bucket }, runtime);
    const pause = async (): Promise<void> => {
      for (let i = 0; i < 41; i++) await increment(other, 33);
      pausedMs += 1_001;
    };
    let edits = 0;
    await paused.update(key, { token: 33 }, async (current) => {
      if (++edits === 1) await pause();
      return `${Number(text(current)) + 1}`;
    });
    expect(text(await other.get(key))).toBe('42');
    await pause();
    await paused.put(key, 'mine', { token: 33 });
    expect(text(await other.get(key))).toBe('mine');
    await pause();
    await expect(
      paused.update(key, { token: 33, attemptsMax: 1 }, async (current) => {
        await pause();
        return `${text(current)}`;
      }),
    ).rejects.toThrow(ConflictError);
  });

  /** A create that was applied, and whose outcome its caller could not learn. */
  async function unknownCreate(): Promise<string> {
    proxy.faults.push('reply-lost');
    proxy.failsHeads = true;
    // The first read must work.
    await store.get(key);
    const error = await increment(store, 5).catch((thrown: unknown) => thrown);
    proxy.reset();
    const { writeId } = error as OutcomeUnknownError;
    expect(await staged().history(key)).toEqual([shortId(writeId)]);
    return writeId;
  }

  const begins: readonly (readonly [string, () => Promise<unknown>])[] = [
    [
      'removed, and created anew by another process',
      async () => {
        const { client, bucket } = staged();
        await client.send(new DeleteObjectCommand({ Bucket: bucket, Key: key }));
      },
    ],
    [
      'overwritten by another program',
      async () => {
        const { client, bucket } = staged();
        await client.send(new PutObjectCommand({ Bucket: bucket, Key: key, Body: 'foreign' }));
      },
    ],
    [
      'damaged and repaired',
      async () => {
        const { client, bucket } = staged();
        const Metadata = { 'fencing-token': 'damaged' };
        await client.send(
          new PutObjectCommand({ Bucket: bucket, Key: key, Body: 'damaged', Metadata }),
        );
        await staged().store().repair(key, { token: 6, body: 'repaired' });
      },
    ],
  ];
  test.each(begins)(
    'settle does not deny an applied create if the object was %s',
    async (...row) => {
      const writeId = await unknownCreate();
      await row[1]();
      await staged().store().put(key, 'anew', { token: 7 });
      store.forget(key);
      expect(await store.settle(writeId)).toBe('unknown');
    },
  );
}
