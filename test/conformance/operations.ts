import { gzipSync } from 'node:zlib';
import { CopyObjectCommand, PutObjectCommand } from '@aws-sdk/client-s3';
import type { Objects } from '@fenced/client';
import {
  ConflictError,
  CorruptObjectError,
  OutcomeUnknownError,
  RatchetLostError,
  StaleTokenError,
  UnsupportedByStoreError,
} from '@fenced/store';
import type { Current, Written } from '@fenced/store/s3';
import { beforeAll, expect, test } from 'vitest';
import { type Staged, shortId, storedObject, text } from './harness/stage.js';

/** The calls of the store, without faults. */
export function operations(staged: Staged<Objects>): void {
  let holder33: Objects;
  let holder34: Objects;
  let bucket: string;
  const newKey = (): string => staged().newKey();

  beforeAll(() => {
    holder33 = staged().store();
    holder34 = staged().store();
    bucket = staged().bucket;
  });

  const raw = (key: string) => storedObject(staged(), key);

  test("a paused holder's write arrives after the next holder's, and is refused", async () => {
    const key = newKey();
    await holder33.put(key, 'from 33', { token: 33 });
    await holder34.put(key, 'from 34', { token: 34 });
    const before = await raw(key);
    for (const late of [
      () => holder33.put(key, 'late', { token: 33 }),
      () => holder33.update(key, { token: 33 }, () => 'late'),
      () => holder33.claim(key, { token: 33 }),
      () => holder33.claimAndGet(key, { token: 33 }),
      () => holder33.claimAndGetStream(key, { token: 33 }),
    ])
      await expect(late()).rejects.toMatchObject({
        code: 'stale-token',
        resource: key,
        presented: 33n,
        highest: 34n,
      });
    expect(await raw(key)).toEqual(before);
  });

  test('a holder that is paused between its read and its write is refused', async () => {
    const key = newKey();
    await holder33.put(key, 'first', { token: 33 });
    let edits = 0;
    const late = holder33.update(key, { token: 33 }, async (current) => {
      edits++;
      await holder34.put(key, 'from 34', { token: 34 });
      return `${text(current)} and late`;
    });
    await expect(late).rejects.toThrow(StaleTokenError);
    expect(edits).toBe(1);
    expect(text(await holder34.get(key))).toBe('from 34');
  });

  test("a stale holder's edit function is not called", async () => {
    const key = newKey();
    await holder34.put(key, 'from 34', { token: 34 });
    const edit = () => expect.fail('called');
    await expect(holder33.update(key, { token: 33 }, edit)).rejects.toThrow(StaleTokenError);
  });

  test('equal bytes, written again, are another version (ABA)', async () => {
    const key = newKey();
    const versions = [(await holder33.put(key, 'A', { token: 33 })).version];
    const late = holder33.update(key, { token: 33 }, async () => {
      versions.push((await holder34.put(key, 'B', { token: 34 })).version);
      versions.push((await holder34.put(key, 'A', { token: 35 })).version);
      versions.push((await holder34.put(key, 'A', { token: 35 })).version);
      return 'late';
    });
    await expect(late).rejects.toMatchObject({ code: 'stale-token', highest: 35n });
    expect(new Set(versions).size).toBe(4);
    expect(await holder33.get(key)).toMatchObject({ token: 35n, version: versions[3] });
  });

  test('a holder writes several times with its token, and the next holder continues', async () => {
    const key = newKey();
    for (const token of [33, '33', 33n, 33, 40]) await holder33.put(key, `${token}`, { token });
    expect(await holder33.highest(key)).toBe(40n);
    expect(text(await holder34.get(key))).toBe('40');
  });

  test('no concurrent increment is lost', async () => {
    const key = newKey();
    const workers = Array.from({ length: 6 }, () => staged().store({ attemptsMax: 200 }));
    const increment = (current: Current | null): string => String(Number(text(current) ?? 0) + 1);
    const written: Written[] = [];
    await Promise.all(
      workers.map(async (worker) => {
        for (let i = 0; i < 5; i++) written.push(await worker.update(key, { token: 7 }, increment));
      }),
    );
    expect(text(await holder33.get(key))).toBe('30');
    expect(new Set(written.map(({ writeId }) => writeId)).size).toBe(30);
  });

  test('an update that keeps losing fails with a conflict, and its value is not stored', async () => {
    const key = newKey();
    const losing = holder33.update(key, { token: 5, attemptsMax: 3 }, async () => {
      await holder34.put(key, 'other', { token: 5 });
      return 'losing';
    });
    await expect(losing).rejects.toThrow(ConflictError);
    await expect(losing).rejects.toMatchObject({ attempts: 3 });
    expect(text(await holder34.get(key))).toBe('other');
  });

  test('an error of edit is passed on, and nothing is written', async () => {
    const key = newKey();
    const { version } = await holder33.put(key, 'kept', { token: 1 });
    const own = new Error('no');
    await expect(holder33.update(key, { token: 2 }, () => Promise.reject(own))).rejects.toBe(own);
    expect(await holder33.get(key)).toMatchObject({ version, token: 1n });
  });

  test('after a claim, the value is the same and lower tokens are refused', async () => {
    const key = newKey();
    const kept = {
      contentType: 'text/plain',
      cacheControl: 'no-store',
      metadata: { author: 'ada' },
    };
    await holder33.put(key, 'value', { token: 33, ...kept });
    await holder34.claim(key, { token: 34 });
    const claimed = await holder34.get(key);
    expect(claimed).toMatchObject({ token: 34n, ...kept });
    expect(text(claimed)).toBe('value');
    await expect(holder33.put(key, 'late', { token: 33 })).rejects.toThrow(StaleTokenError);
    await holder34.claim(key, { token: 34 });
    expect(await holder34.get(key)).toEqual(claimed);
  });

  test('claimAndGet returns the value, and lower tokens are refused', async () => {
    const key = newKey();
    await holder33.put(key, 'value', { token: 33 });
    const read = await holder34.claimAndGet(key, { token: 34 });
    expect(text(read)).toBe('value');
    expect(read).toEqual(await holder34.get(key));
    await expect(holder33.put(key, 'late', { token: 33 })).rejects.toThrow(StaleTokenError);
  });

  test('a plain read takes no token, names the call that does, and writes nothing', async () => {
    const key = newKey();
    await holder33.put(key, 'value', { token: 33 });
    const options = { token: 34 } as object;
    for (const [name, call] of [
      ['claimAndGet', () => holder34.get(key, options)],
      ['claimAndGet', () => holder34.get([key], options)],
      ['claimAndGetStream', () => holder34.getStream(key, options)],
    ] as const)
      await expect(call()).rejects.toMatchObject({
        code: 'invalid-argument',
        message: expect.stringContaining(`call ${name},`),
      });
    expect(await holder34.highest(key)).toBe(33n);
  });

  test('after a claim of a key without a value, there is no value and lower tokens are refused', async () => {
    const key = newKey();
    expect(await holder34.highest(key)).toBe(0n);
    expect(await holder34.claimAndGet(key, { token: 34 })).toBeNull();
    expect(await holder34.highest(key)).toBe(34n);
    await expect(holder33.put(key, 'late', { token: 33 })).rejects.toThrow(StaleTokenError);
    await holder34.claim(key, { token: 35 });
    await holder34.update(key, { token: 35 }, (current) => `${current}`);
    expect(text(await holder34.get(key))).toBe('null');
  });

  test('metadata of the greatest allowed size fits every write, however long the history grows', async () => {
    const metadata = Object.fromEntries(
      Array.from({ length: 52 }, (_, i) => [`name-${i + 10}`, '7 bytes']),
    );
    const key = newKey();
    for (let i = 0; i < 20; i++) await holder33.put(key, `${i}`, { token: 1, metadata });
    await holder34.claim(key, { token: 2n ** 63n - 1n });
    expect(await holder34.get(key)).toMatchObject({ metadata });
  });

  test('an update keeps the headers that it does not set', async () => {
    const key = newKey();
    await holder33.put(key, 'a', {
      token: 1,
      contentType: 'text/plain',
      metadata: { author: 'ada' },
    });
    await holder33.update(key, { token: 1 }, () => ({ body: 'b', contentType: 'text/html' }));
    expect(await holder33.get(key)).toMatchObject({
      contentType: 'text/html',
      metadata: { author: 'ada' },
    });
  });

  test('a foreign object counts as token 0, and can be read, updated, deleted and listed', async () => {
    const foreign = async (key: string, headers: object = {}): Promise<string> => {
      const given = { Bucket: bucket, Key: key, Body: 'plain', ContentType: 'text/x-plain' };
      await staged().client.send(new PutObjectCommand({ ...given, ...headers }));
      return key;
    };
    const key = await foreign(newKey(), { Metadata: { author: 'ada' } });
    expect(await holder33.highest(key)).toBe(0n);
    const read = await holder33.get(key);
    expect(read).toMatchObject({
      token: 0n,
      contentType: 'text/x-plain',
      metadata: { author: 'ada' },
    });
    expect(text(read)).toBe('plain');
    const updated = await foreign(newKey());
    await holder33.update(updated, { token: 1 }, (current) => `${text(current)} and more`);
    expect(text(await holder34.get(updated))).toBe('plain and more');
    const put = await foreign(newKey());
    await holder33.put(put, 'new', { token: 1 });
    const deleted = await foreign(newKey());
    await holder33.delete(deleted, { token: 1 });
    expect(await holder34.get(deleted)).toBeNull();
  });

  test('a claim of an object that another program wrote keeps its bytes, or is refused', async () => {
    const key = newKey();
    const foreign = { Bucket: bucket, Key: key, Body: 'PAR1', ContentType: 'text/x-plain' };
    await staged().client.send(new PutObjectCommand(foreign));
    const before = await raw(key);
    for (const claim of [
      () => holder34.claim(key, { token: 3 }),
      () => holder34.claimAndGet(key, { token: 3 }),
      () => holder34.claimAndGetStream(key, { token: 3 }),
    ])
      if (staged().capabilities.distinctEtags) {
        await claim();
        const { bytes, ContentEncoding } = await raw(key);
        expect({ bytes, ContentEncoding }).toEqual({ ...before, ContentEncoding: undefined });
        await expect(holder33.put(key, 'late', { token: 2 })).rejects.toThrow(StaleTokenError);
      } else {
        await expect(claim()).rejects.toThrow(UnsupportedByStoreError);
        await expect(claim()).rejects.toThrow('Write it once by update or put');
        expect(await raw(key)).toEqual(before);
      }
    await holder34.update(key, { token: 3 }, (current) => current?.body ?? '');
    await holder34.claim(key, { token: 4 });
    expect(await holder33.get(key)).toMatchObject({ token: 4n, contentType: 'text/x-plain' });
    expect(text(await holder33.get(key))).toBe('PAR1');
    await expect(holder33.put(key, 'late', { token: 3 })).rejects.toThrow(StaleTokenError);
  });

  test('a gzip object that another program wrote is decompressed, and other encodings are refused', async () => {
    const key = newKey();
    const foreign = { Bucket: bucket, Key: key, Body: gzipSync('text'), ContentEncoding: 'gzip' };
    await staged().client.send(new PutObjectCommand(foreign));
    expect(text(await holder33.get(key))).toBe('text');
    const stream = await holder33.getStream(key);
    expect(Buffer.concat(await Array.fromAsync(stream?.body ?? [])).toString()).toBe('text');
    await staged().client.send(new PutObjectCommand({ ...foreign, ContentEncoding: 'br' }));
    await expect(holder33.get(key)).rejects.toThrow(UnsupportedByStoreError);
    await staged().client.send(new PutObjectCommand({ ...foreign, Body: 'no gzip' }));
    await expect(holder33.get(key)).rejects.toThrow(CorruptObjectError);
  });

  test('an object that was restored from an older copy is a lost ratchet, too', async () => {
    const key = newKey();
    await holder33.put(key, 'old', { token: 33 });
    const { bytes, Metadata } = await raw(key);
    await holder33.put(key, 'new', { token: 34 });
    const older = { Bucket: bucket, Key: key, Body: bytes, Metadata, ContentEncoding: 'gzip' };
    await staged().client.send(new PutObjectCommand(older));
    await expect(holder33.get(key)).rejects.toThrow(RatchetLostError);
    // A write upon the newer object is refused. The older object may come from a cache in front of
    // an applied write. So only the next write, which reads first, tells of the loss.
    const put = () => holder33.put(key, 'x', { token: 34 });
    await expect(put()).rejects.toThrow(OutcomeUnknownError);
    await expect(put()).rejects.toThrow(RatchetLostError);
  });

  test('a reply to a read that is older than a later one is not taken for a lost ratchet', async () => {
    const key = newKey();
    const reads: Promise<unknown>[] = [];
    for (let token = 1; token <= 20; token++) {
      reads.push(holder33.highest(key), holder33.get(key));
      await holder33.put(key, 'x', { token });
    }
    await Promise.all(reads);
  });

  test('similar keys have their own values and tokens, or are refused', async () => {
    const mine = newKey();
    const pairs = [
      [`/${mine}`, mine],
      [`${mine}/A`, `${mine}/a`],
      [`${mine}/caf\u00e9`, `${mine}/cafe\u0301`],
      [`${mine}/a+b`, `${mine}/a b`],
      [`${mine}/${'x'.repeat(250)}1`, `${mine}/${'x'.repeat(250)}2`],
    ] as const;
    for (const [first, second] of pairs) {
      const isTaken = await holder33.put(first, first, { token: 33 }).then(
        () => true,
        // The server refuses the key, so no object of that key exists.
        () => false,
      );
      if (!isTaken) continue;
      const [put] = await Promise.allSettled([holder34.put(second, second, { token: 1 })]);
      if (put.status === 'rejected')
        expect(['corrupt-object', 'invalid-argument']).toContain(put.reason.code);
      else expect(text(await holder33.get(second))).toBe(second);
      expect(await holder34.highest(first)).toBe(33n);
      expect(text(await holder34.get(first))).toBe(first);
    }
  });

  test('a copy under another key is refused if another tool made it', async () => {
    const [from, to, ours] = [newKey(), newKey(), newKey()];
    await holder33.put(from, 'x', { token: 33 });
    const { client } = staged();
    const source = encodeURIComponent(`${bucket}/${from}`);
    await client.send(new CopyObjectCommand({ Bucket: bucket, Key: to, CopySource: source }));
    await expect(holder33.get(to)).rejects.toThrow(CorruptObjectError);
    await expect(holder33.put(to, 'y', { token: 34 })).rejects.toThrow(CorruptObjectError);
    await holder33.put(ours, (await holder33.get(from))?.body ?? '', { token: 1 });
    expect(text(await holder34.get(ours))).toBe('x');
  });

  test.each([
    [undefined, 'edit must return the new value'],
    [null, 'an object with a body such as'],
    [7, 'an object with a body such as'],
    [{ name: 'a document' }, 'an object with a body such as'],
    [{ contentType: 'text/plain' }, 'an object with a body such as'],
    [{ body: 'y', token: 99 }, 'unknown field token in the result of edit'],
    [{ body: 'y', ifMatch: '"e"' }, 'unknown field ifMatch in the result of edit'],
    [{ body: 'y', ContentType: 'text/plain' }, 'the field is called contentType'],
    [{ body: 7 }, 'body must be a string'],
  ])('an update that returns %j writes nothing', async (edited, message) => {
    const key = newKey();
    await holder33.put(key, 'x', { token: 33 });
    const update = holder33.update(key, { token: 33 }, () => edited as never);
    await expect(update).rejects.toMatchObject({
      code: 'invalid-argument',
      message: expect.stringContaining(message),
    });
    expect(text(await holder33.get(key))).toBe('x');
  });

  test('a delete removes the value and keeps the token', async () => {
    const key = newKey();
    await holder33.put(key, 'value', { token: 33, metadata: { author: 'ada' } });
    const { token, writeId } = await holder34.delete(key, { token: 34 });
    expect(token).toBe(34n);
    expect((await staged().history(key))[0]).toBe(shortId(writeId));
    expect(await holder33.get(key)).toBeNull();
    expect(await holder33.getStream(key)).toBeNull();
    expect(await holder33.highest(key)).toBe(34n);
    await expect(holder33.put(key, 'late', { token: 33 })).rejects.toThrow(StaleTokenError);
    await expect(holder33.delete(key, { token: 33 })).rejects.toThrow(StaleTokenError);
    await holder34.update(key, { token: 34 }, (current) => `was ${current}`);
    expect(await holder33.get(key)).toMatchObject({ metadata: {} });
    const absent = newKey();
    await holder33.delete(absent, { token: 7 });
    expect(await holder34.highest(absent)).toBe(7n);
  });

  test('several keys are read at once', async () => {
    const keys = Array.from({ length: 20 }, newKey);
    await Promise.all(keys.map((key, i) => holder33.put(key, `${i}`, { token: i + 1 })));
    const absent = newKey();
    const found = await holder34.get([...keys, absent, keys[0] ?? '']);
    expect([...found.keys()]).toEqual([...keys, absent]);
    expect(keys.map((key) => text(found.get(key)))).toEqual(keys.map((_, i) => `${i}`));
    expect(found.get(absent)).toBeNull();
    expect(await holder34.get([])).toEqual(new Map());
  });
}
