import { randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import { ListMultipartUploadsCommand } from '@aws-sdk/client-s3';
import {
  ConflictError,
  FencedStoreError,
  OutcomeUnknownError,
  StaleTokenError,
  StoreUnavailableError,
} from '@fenced/store';
import type { FencedS3, Written } from '@fenced/store/s3';
import { beforeAll, beforeEach, expect, test } from 'vitest';
import { FAULTS, type Fault } from './harness/faulty-proxy.js';
import { type Staged, shortId, text } from './harness/stage.js';

type Call = (store: FencedS3, key: string) => Promise<Written | undefined>;

const BIG = randomBytes(5.2 * 2 ** 20);
const writes: Readonly<Record<string, Call>> = {
  'a put upon what is there': (store, key) => store.put(key, 'x', { token: 33 }),
  'a put upon nothing': (store, key) => store.put(`${key}-new`, 'x', { token: 33 }),
  'an update': (store, key) => store.update(key, { token: 33 }, (current) => `${text(current)}x`),
  'a claim': async (store, key) => void (await store.claim(key, { token: 34 })),
  'a claim of nothing': async (store, key) => void (await store.claim(`${key}-new`, { token: 34 })),
  'a claim that reads': async (store, key) => {
    const read = await store.claimAndGet(key, { token: 34 });
    expect(text(read)).toBe('base');
    return read === null ? undefined : { ...read, version: read.version };
  },
  'a delete': (store, key) => store.delete(key, { token: 33 }),
  'a small stream': (store, key) => store.put(key, Readable.from(['x', 'y']), { token: 33 }),
};
const reads: Readonly<Record<string, (store: FencedS3, key: string) => Promise<unknown>>> = {
  'a read': async (store, key) => text(await store.get(key)),
  'a streamed read': async (store, key) => {
    const found = await store.getStream(key);
    return Buffer.concat(await Array.fromAsync(found?.body ?? [])).toString();
  },
  'the highest token': async (store, key) => (await store.highest(key)) === 33n && 'base',
  'a batch': async (store, key) => text((await store.get([key])).get(key)),
};
/** Faults that are tried at each request of a large stream. The others would take too long. */
const EVERYWHERE: ReadonlySet<Fault> = new Set(['reply-lost', 'late']);
/** The requests of a call at which a fault is tried, by their numbers. */
const points = [0, 1, 2] as const;

/** Each fault at each request of each call: the reported outcome is true of the bucket. */
export function everyPoint(staged: Staged): void {
  let store: FencedS3;
  let other: FencedS3;

  beforeAll(() => {
    store = staged().viaProxy({ requestTimeoutMs: 300 });
    other = staged().store();
  });

  beforeEach(async () => {
    staged().proxy.reset();
    await store.probe();
  });

  const meet = (fault: Fault, point: number): void => {
    const { proxy } = staged();
    proxy.reset();
    proxy.of = 'all';
    proxy.faults.push(...Array<Fault>(point).fill('pass'), fault);
  };

  const historyOf = async (key: string): Promise<readonly string[]> => [
    ...(await staged().history(key)),
    ...(await staged().history(`${key}-new`)),
  ];

  /** The bucket agrees with the reported outcome. If none was reported, it agrees with `settle`. */
  async function judged(
    key: string,
    before: readonly string[],
    call: Promise<Written | undefined>,
  ) {
    const outcome = await call.catch((error: unknown) => error);
    await staged().proxy.deliverLate();
    const after = await historyOf(key);
    expect(new Set(after).size).toBe(after.length);
    const made = after.filter((id) => !before.map(shortId).includes(id));
    expect(made.length).toBeLessThanOrEqual(1);
    if (outcome instanceof OutcomeUnknownError) {
      staged().proxy.reset();
      const settlement = await store.settle(outcome.writeId);
      const final = await historyOf(key);
      expect(settlement).toBe(final.includes(shortId(outcome.writeId)) ? 'applied' : 'not-applied');
    } else if (outcome instanceof Error) {
      expect(outcome).toBeInstanceOf(FencedStoreError);
      expect(made).toEqual([]);
    } else if (outcome === undefined) expect(made).toHaveLength(1);
    else expect(made).toEqual([shortId((outcome as Written).writeId)]);
    return outcome;
  }

  test.each(Object.entries(writes))('%s', async (_, call) => {
    for (const fault of FAULTS)
      for (const point of points) {
        const key = staged().newKey();
        const { writeId } = await other.put(key, 'base', { token: 33 });
        meet(fault, point);
        const outcome = await judged(key, [writeId], call(store, key));
        const told = `${fault} at request ${point}: ${outcome}`;
        // After one fault, the store repeats the request, so no outcome is unknown. Only a read
        // that hangs makes the call fail.
        if (outcome instanceof Error) expect(outcome, told).toBeInstanceOf(StoreUnavailableError);
      }
  });

  test.each(Object.entries(reads))('%s', async (_, call) => {
    const key = staged().newKey();
    await other.put(key, 'base', { token: 33 });
    for (const fault of FAULTS)
      for (const point of [0, 1]) {
        meet(fault, point);
        const read = await call(store, key).catch((error: unknown) => error);
        if (read instanceof Error) expect(read).toBeInstanceOf(StoreUnavailableError);
        else expect(read).toBe('base');
        expect(await staged().proxy.deliverLate()).toBeDefined();
      }
  });

  test('a large stream', { timeout: 60_000 }, async () => {
    const { bucket, client, capabilities } = staged();
    const large = staged().viaProxy({ partBytes: 5 * 2 ** 20, requestTimeoutMs: 1_000 });
    // Large writes have requests of their own kind. The store checks them before the first one.
    await large.put(staged().newKey(), Readable.from([BIG]), { token: 33 });
    // The requests are HEAD, Create, two parts, Complete; or HEAD and PUT. The last one writes.
    const last = capabilities.conditionalComplete ? 4 : 1;
    for (const fault of FAULTS)
      for (let point = 0; point <= last; point++) {
        if (point < last && !EVERYWHERE.has(fault)) continue;
        const key = staged().newKey();
        const { writeId } = await other.put(key, 'base', { token: 33 });
        await large.probe();
        meet(fault, point);
        const body = () => Readable.from([BIG]);
        const outcome = await judged(key, [writeId], large.put(key, body, { token: 33 }));
        if (outcome instanceof Error) continue;
        const read = await other.get(key);
        expect(Buffer.compare(read?.body ?? Buffer.alloc(0), BIG), `${fault} at ${point}`).toBe(0);
      }
    const left = await client.send(new ListMultipartUploadsCommand({ Bucket: bucket }));
    // If the reply to a Create was lost, or the Create came twice, an upload has an unknown id. The
    // store cannot abort it; a lifecycle rule removes it.
    const lost = FAULTS.filter(
      (fault) => !['pass', 'cut-before', 'error-not-applied'].includes(fault),
    );
    expect(left.Uploads?.length ?? 0).toBeLessThanOrEqual(lost.length);
  });

  test('two holders at once, each with a fault at every point: no increment is lost', async () => {
    const { proxy } = staged();
    for (const fault of FAULTS) {
      if (fault === 'reply-hangs') continue;
      const key = staged().newKey();
      await other.put(key, '0', { token: 33 });
      proxy.reset();
      proxy.of = 'all';
      proxy.faults.push(...Array.from({ length: 12 }, (_, i) => (i % 3 === 1 ? fault : 'pass')));
      let sure = 0;
      let perhaps = 0;
      const increment = async (by: FencedS3): Promise<void> => {
        for (let i = 0; i < 3; i++)
          await by
            .update(key, { token: 33 }, (current) => `${Number(text(current)) + 1}`)
            .then(
              () => sure++,
              (error: unknown) => {
                if (error instanceof OutcomeUnknownError) perhaps++;
                else if (
                  !(error instanceof StoreUnavailableError || error instanceof ConflictError)
                )
                  throw error;
              },
            );
      };
      await Promise.all([increment(store), increment(other)]);
      await proxy.deliverLate();
      const total = Number(text(await other.get(key)));
      expect(total, fault).toBeGreaterThanOrEqual(sure);
      expect(total, fault).toBeLessThanOrEqual(sure + perhaps);
    }
  });

  test('settle decides an unknown outcome, and a copy of the write that arrives later is refused', async () => {
    const { proxy } = staged();
    for (const upon of ['something', 'nothing']) {
      const key = staged().newKey();
      if (upon === 'something') await other.put(key, 'base', { token: 33 });
      proxy.reset();
      await store.highest(key);
      proxy.faults.push('late', ...Array<Fault>(5).fill('cut-before'));
      const error = await store.put(key, 'held', { token: 34 }).catch((thrown: unknown) => thrown);
      expect(error).toBeInstanceOf(OutcomeUnknownError);
      const { writeId } = error as OutcomeUnknownError;
      expect(await staged().store().settle(writeId, { key })).toBe('unknown');
      expect(await store.settle(writeId)).toBe('not-applied');
      for (const status of await proxy.deliverLate()) expect(status).toBeGreaterThanOrEqual(400);
      expect(text(await other.get(key))).toBe(upon === 'something' ? 'base' : null);
      expect(await other.highest(key)).toBe(34n);
      await expect(other.put(key, 'late', { token: 33 })).rejects.toThrow(StaleTokenError);
      await expect(store.settle(writeId)).rejects.toThrow('name its key');
    }
  });

  test('settle finds that a write of unknown outcome was applied, even after other writes', async () => {
    const { proxy } = staged();
    const key = staged().newKey();
    await other.put(key, 'base', { token: 33 });
    proxy.reset();
    proxy.faults.push('late', ...Array<Fault>(5).fill('cut-before'));
    const error = await store.put(key, 'held', { token: 33 }).catch((thrown: unknown) => thrown);
    const { writeId } = error as OutcomeUnknownError;
    await proxy.deliverLate();
    expect(await store.settle(writeId)).toBe('applied');
    for (let i = 0; i < 40; i++) await other.put(key, `${i}`, { token: 34 });
    expect(await staged().store().settle(writeId, { key })).toBe('applied');
    await other.put(key, 'one too many', { token: 34 });
    expect(await staged().store().settle(writeId, { key })).toBe('unknown');
  });
}
