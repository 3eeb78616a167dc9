import { randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import {
  CreateMultipartUploadCommand,
  ListMultipartUploadsCommand,
  type PutObjectCommand,
} from '@aws-sdk/client-s3';
import type { Objects } from '@fenced/client';
import { OutcomeUnknownError, StaleTokenError } from '@fenced/store';
import type { FencedS3, S3Calls } from '@fenced/store/s3';
import fc from 'fast-check';
import { beforeAll, beforeEach, expect, test } from 'vitest';
import { FAULTS, type Fault, type FaultyProxy } from './faulty-proxy.js';
import { type Staged, shortId, text } from './stage.js';

/** Compares the outcomes that a store reports after lost replies with the bucket. */
export function faults(staged: Staged<Objects>): void {
  /** The requests of `store` pass the faulty proxy. Those of `other` do not. */
  let store: Objects;
  let other: Objects;
  let proxy: FaultyProxy;
  let key: string;
  const history = () => staged().history(key);

  beforeAll(() => {
    proxy = staged().proxy;
    store = staged().viaProxy();
    other = staged().store();
  });

  beforeEach(() => {
    key = staged().newKey();
    proxy.reset();
  });

  test.each(FAULTS)(
    'a put whose first request meets the fault "%s" is applied once, and reported as applied',
    async (fault) => {
      const first = await other.put(key, 'first', { token: 33 });
      proxy.faults.push(fault);
      const written = await store.put(key, 'second', { token: 33 });
      await proxy.deliverLate();
      expect(await other.get(key)).toMatchObject({
        version: written.version,
        writeId: written.writeId,
      });
      expect(await history()).toEqual([written.writeId, first.writeId].map(shortId));
    },
  );

  test.each(FAULTS)(
    'a create whose first request meets the fault "%s" is applied once, and reported as applied',
    async (fault) => {
      proxy.faults.push(fault);
      const written = await store.put(key, 'first', { token: 33 });
      await proxy.deliverLate();
      expect(await history()).toEqual([shortId(written.writeId)]);
    },
  );

  test.each(FAULTS)(
    'an increment whose first request meets the fault "%s" counts once',
    async (fault) => {
      await other.put(key, '1', { token: 33 });
      proxy.faults.push(fault);
      await store.update(key, { token: 33 }, (current) => `${Number(text(current)) + 1}`);
      await proxy.deliverLate();
      expect(text(await other.get(key))).toBe('2');
    },
  );

  test('a write whose reply was lost is reported as applied, even if the next holder has replaced it', async () => {
    proxy.faults.push('reply-lost');
    proxy.meanwhile = () => other.put(key, 'next', { token: 34 });
    const written = await store.put(key, 'ours', { token: 33 });
    expect(written.version).toBeNull();
    expect((await history())[1]).toBe(shortId(written.writeId));
  });

  test('a stale copy that was held in the network is refused when it arrives', async () => {
    await store.put(key, 'first', { token: 33 });
    proxy.faults.push('late', ...Array<Fault>(5).fill('cut-before'));
    const unknown = store.put(key, 'held', { token: 33 });
    await expect(unknown).rejects.toThrow(OutcomeUnknownError);
    await other.put(key, 'from 34', { token: 34 });
    const before = await history();
    for (const status of await proxy.deliverLate()) expect(status).toBeGreaterThanOrEqual(400);
    expect(await history()).toEqual(before);
  });

  test('the error of an unknown outcome names the write, which may arrive after its sender gave up', async () => {
    await store.put(key, 'first', { token: 33 });
    proxy.faults.push('late', ...Array<Fault>(5).fill('cut-before'));
    const error = await store.put(key, 'held', { token: 33 }).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(OutcomeUnknownError);
    expect(proxy.puts).toBe(7);
    expect(await proxy.deliverLate()).toEqual([200]);
    expect((await history())[0]).toBe(shortId((error as OutcomeUnknownError).writeId));
  });

  test('a write that was answered 500 and not applied is stale once a later holder has written', async () => {
    await store.put(key, 'first', { token: 33 });
    proxy.faults.push('error-not-applied');
    proxy.meanwhile = () => other.put(key, 'from 34', { token: 34 });
    await expect(store.put(key, 'lost', { token: 33 })).rejects.toThrow(StaleTokenError);
    expect(text(await other.get(key))).toBe('from 34');
  });

  test('a write that was answered 500 is unknown if more writes followed than the history holds', async () => {
    await store.put(key, 'first', { token: 33 });
    proxy.faults.push('error-not-applied');
    proxy.meanwhile = async () => {
      for (let i = 0; i < 41; i++) await other.put(key, `${i}`, { token: 34 });
    };
    const patient = staged().viaProxy({ requestTimeoutMs: 30_000 });
    await expect(patient.put(key, 'lost', { token: 33 })).rejects.toThrow(OutcomeUnknownError);
  });

  test('a write whose only reply is a refusal is unknown if more writes followed than the history holds', async () => {
    await other.put(key, '1', { token: 33 });
    proxy.faults.push('replayed');
    proxy.meanwhile = async () => {
      for (let i = 0; i < 41; i++) await other.claim(key, { token: 35 + i });
    };
    // The reply comes after all of these writes, so the sender must wait for it long enough.
    const patient = staged().viaProxy({ requestTimeoutMs: 30_000 });
    const error = await patient
      .update(key, { token: 34 }, (current) => `${Number(text(current)) + 1}`)
      .catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(OutcomeUnknownError);
    expect(text(await other.get(key))).toBe('2');
  });

  test('a refused write is unknown if it cannot be read back: a copy may have been applied before', async () => {
    await store.put(key, 'first', { token: 33 });
    proxy.faults.push('replayed');
    proxy.failsHeads = true;
    const error = await store.put(key, 'second', { token: 33 }).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(OutcomeUnknownError);
    expect((await history())[0]).toBe(shortId((error as OutcomeUnknownError).writeId));
  });

  test('an abort before anything is sent gives its reason, and nothing is written', async () => {
    const reason = new Error('enough');
    const signal = AbortSignal.abort(reason);
    await expect(store.put(key, 'x', { token: 1, signal })).rejects.toBe(reason);
    await expect(store.update(key, { token: 1, signal }, () => 'x')).rejects.toBe(reason);
    await expect(store.claim(key, { token: 1, signal })).rejects.toBe(reason);
    await expect(store.get(key, { signal })).rejects.toBe(reason);
    await expect(store.highest(key, { signal })).rejects.toBe(reason);
    expect(proxy.puts).toBe(0);
  });

  const scripts = fc.array(
    fc.record({
      token: fc.integer({ min: 1, max: 4 }),
      viaProxy: fc.boolean(),
      faults: fc.array(fc.constantFrom(...FAULTS.filter((fault) => fault !== 'reply-hangs')), {
        maxLength: 3,
      }),
    }),
    { minLength: 1, maxLength: 8 },
  );

  test('under any faults, the reported outcomes agree with the bucket', async () => {
    await fc.assert(
      fc.asyncProperty(scripts, async (script) => {
        key = staged().newKey();
        proxy.reset();
        const applied = new Set<string>();
        const unknown = new Set<string>();
        const run = async ({ token, viaProxy, faults }: (typeof script)[number]): Promise<void> => {
          if (viaProxy) proxy.faults.push(...faults);
          const put = (viaProxy ? store : other).put(key, 'x', { token });
          await put.then(
            ({ writeId }) => applied.add(shortId(writeId)),
            (error: unknown) => {
              if (error instanceof OutcomeUnknownError) unknown.add(shortId(error.writeId));
              else expect(error).toBeInstanceOf(StaleTokenError);
            },
          );
        };
        await Promise.all(script.map(run));
        await proxy.deliverLate();
        const ids = new Set(await history());
        for (const id of applied) expect(ids).toContain(id);
        for (const id of ids) expect(applied.has(id) || unknown.has(id)).toBe(true);
      }),
      { numRuns: 25 },
    );
  });
}

/** Calls that are aborted while they are under way. */
export function aborts(staged: Staged): void {
  let store: FencedS3;
  let proxy: FaultyProxy;
  let key: string;
  const history = () => staged().history(key);

  beforeAll(() => {
    proxy = staged().proxy;
    store = staged().viaProxy();
  });

  beforeEach(() => {
    key = staged().newKey();
    proxy.reset();
  });

  test('an abort while the reply is awaited is resolved by reading back', async () => {
    const abort = new AbortController();
    proxy.faults.push('reply-hangs');
    proxy.meanwhile = async () => abort.abort(new Error('enough'));
    const written = await store.put(key, 'x', { token: 1, signal: abort.signal });
    expect(await history()).toEqual([shortId(written.writeId)]);
  });

  test('an abort while an upload is created leaves no upload', async () => {
    const { bucket, client, capabilities } = staged();
    const abort = new AbortController();
    const reason = new Error('enough');
    const send = async (command: PutObjectCommand, options: { abortSignal: AbortSignal }) => {
      const isOurs = (command as object) instanceof CreateMultipartUploadCommand;
      if (!isOurs || command.input.Key !== key) return client.send(command, options);
      abort.abort(reason);
      // The server creates the upload although the client has given up.
      const answer = await client.send(command);
      options.abortSignal.throwIfAborted();
      return answer;
    };
    const large = staged().store({ client: { send } as S3Calls, partBytes: 5 * 2 ** 20 });
    const body = Readable.from([randomBytes(6 * 2 ** 20)]);
    const put = large.put(key, body, { token: 1, signal: abort.signal });
    if (capabilities.conditionalComplete) await expect(put).rejects.toBe(reason);
    else await put;
    const left = new ListMultipartUploadsCommand({ Bucket: bucket, Prefix: key });
    expect((await client.send(left)).Uploads ?? []).toEqual([]);
  });

  test('an abort while a copy may be on its way leaves an unknown outcome with the reason', async () => {
    const abort = new AbortController();
    const reason = new Error('enough');
    proxy.faults.push('late');
    proxy.meanwhile = async () => abort.abort(reason);
    const put = store.put(key, 'x', { token: 1, signal: abort.signal });
    await expect(put).rejects.toMatchObject({ code: 'outcome-unknown', cause: reason });
  });
}
