import { execFile, execFileSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { setTimeout } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import {
  AbortMultipartUploadCommand,
  GetObjectCommand,
  ListMultipartUploadsCommand,
  type MultipartUpload,
} from '@aws-sdk/client-s3';
import type { Objects } from '@fenced/client';
import { ConflictError, InvalidArgumentError, StaleTokenError } from '@fenced/store';
import type { FencedS3, Progress, S3Calls } from '@fenced/store/s3';
import { findProgram, WorkerProcess } from '@fenced/testbed';
import { beforeAll, expect, test } from 'vitest';
import { type Stage, type Staged, shortId } from './harness/stage.js';

const MIB = 2 ** 20;
const STREAM_WRITER = new URL('./harness/stream-writer.ts', import.meta.url);
/** Size of the largest stream in MiB. `FENCED_STREAM_MIB=1024` for a nightly run. */
const LARGE_MIB = Number(process.env.FENCED_STREAM_MIB ?? 16);

/** A body of that size in pieces. gzip shortens it by about half. */
async function* body(mib: number, onPiece?: (at: number) => Promise<void> | void) {
  const half = randomBytes(MIB / 2);
  for (let at = 0; at < mib; at++) {
    half.writeUInt32BE(at);
    const piece = Buffer.concat([half, Buffer.alloc(MIB / 2, `line ${at}\n`)]);
    await onPiece?.(at);
    yield piece;
  }
}

async function digestOf(source: AsyncIterable<Uint8Array>): Promise<string> {
  const hash = createHash('sha256');
  for await (const piece of source) hash.update(piece);
  return hash.digest('hex');
}

/** Returns the pieces of the source, and the digest of those that a reader took. */
function hashed(source: AsyncIterable<Uint8Array>) {
  const hash = createHash('sha256');
  const pieces = (async function* () {
    for await (const piece of source) {
      hash.update(piece);
      yield piece;
    }
  })();
  return { pieces, digest: () => hash.digest('hex') };
}

/** The uploads that are neither completed nor aborted. */
async function uploadsUnder(
  { client, bucket }: Stage<unknown>,
  prefix: string,
): Promise<readonly MultipartUpload[]> {
  const command = new ListMultipartUploadsCommand({ Bucket: bucket, Prefix: prefix });
  return (await client.send(command)).Uploads ?? [];
}

/** The temporary files of all stores of this machine. */
async function spooled(): Promise<string[]> {
  return (await readdir(tmpdir())).filter((name) => /^fenced-[0-9a-f]{32}$/.test(name));
}

/** Tests of large bodies: they are sent in parts, in bounded memory, completely or not at all. */
export function streams(staged: Staged<Objects>): void {
  let store: Objects;
  beforeAll(() => {
    store = staged().store({ partBytes: 5 * MIB, partsInFlight: 3 });
  });

  // Waits until no upload is left. A gateway notices a little late that its caller is gone.
  const noneLeft = (key: string) =>
    expect.poll(() => uploadsUnder(staged(), key), { timeout: 10_000 }).toEqual([]);

  test.each([0, 5, LARGE_MIB])(
    'a stream of %d MiB is stored, and read back by us, gunzip and Python',
    { timeout: 60_000 + LARGE_MIB * 500 },
    async (mib) => {
      const key = staged().newKey();
      const { pieces, digest } = hashed(body(mib));
      const progress: Progress[] = [];
      const onProgress = (one: Progress) => progress.push(one);
      const memory = { before: process.memoryUsage().rss, most: 0 };
      const watch = setInterval(() => {
        memory.most = Math.max(memory.most, process.memoryUsage().rss);
      }, 20);
      const written = await store.put(key, pieces, { token: 33, onProgress });
      const expected = digest();
      expect(progress.at(-1)?.bodyBytes).toBe(mib * MIB);
      const found = await store.claimAndGetStream(key, { token: 34 });
      expect(found).toMatchObject({ token: 34n });
      expect(await digestOf(found?.body ?? Readable.from([]))).toBe(expected);
      clearInterval(watch);
      if (mib === LARGE_MIB && mib > 500)
        expect(memory.most - memory.before).toBeLessThan(300 * MIB);
      expect((await staged().history(key))[1]).toBe(shortId(written.writeId));
      const late = store.put(key, body(6), { token: 33 });
      await expect(late).rejects.toThrow(StaleTokenError);
      await noneLeft(key);
      expect(await spooled()).toEqual([]);
      if (mib > 16) return;
      const { Body } = await staged().client.send(
        new GetObjectCommand({ Bucket: staged().bucket, Key: key }),
      );
      const input = (await Body?.transformToByteArray()) ?? new Uint8Array();
      const options = { input, maxBuffer: 64 * MIB };
      const unzipped = [execFileSync('gunzip', ['-c'], options)];
      const python = findProgram('python3');
      const program =
        'import gzip,sys;sys.stdout.buffer.write(gzip.decompress(sys.stdin.buffer.read()))';
      if (python !== undefined) unzipped.push(execFileSync(python, ['-c', program], options));
      for (const bytes of unzipped) expect(await digestOf(Readable.from([bytes]))).toBe(expected);
    },
  );

  test('an abort of a stream leaves no upload, and ends the source', async () => {
    for (const waits of [false, true]) {
      const key = staged().newKey();
      await store.put(key, 'before', { token: 1 });
      const abort = new AbortController();
      const reason = new Error('enough');
      const source = Readable.from(
        body(30, async (at) => {
          if (at < 12) return;
          abort.abort(reason);
          // A source that hangs.
          if (waits) await new Promise(() => undefined);
        }),
      );
      const put = store.put(key, source, { token: 1, signal: abort.signal });
      await expect(put).rejects.toBe(reason);
      if (!waits) await expect.poll(() => source.destroyed).toBe(true);
      await noneLeft(key);
      expect(await spooled()).toEqual([]);
      expect(Buffer.from((await store.get(key))?.body ?? []).toString()).toBe('before');
    }
  });

  test('if a source fails, or yields a piece of a wrong type, the caller gets the error and nothing is written', {
    timeout: 60_000,
  }, async () => {
    const key = staged().newKey();
    const own = new Error('the disk is gone');
    const breaking = body(30, (at) => {
      if (at === 12) throw own;
    });
    await expect(store.put(key, breaking, { token: 1 })).rejects.toBe(own);
    const wrong = Readable.from([Buffer.alloc(6 * MIB), 42], { objectMode: true });
    await expect(store.put(key, wrong, { token: 1 })).rejects.toThrow(InvalidArgumentError);
    const notAStream = store.put(key, () => null as never, { token: 1 });
    await expect(notAStream).rejects.toThrow(InvalidArgumentError);
    expect(await store.highest(key)).toBe(0n);
    await noneLeft(key);
  });

  test('web streams and streams of strings are written', async () => {
    const key = staged().newKey();
    await store.put(key, new Blob(['web']).stream() as AsyncIterable<Uint8Array>, { token: 1 });
    expect(Buffer.from((await store.get(key))?.body ?? []).toString()).toBe('web');
    await store.put(key, Readable.from(['strings ', 'too']), { token: 1 });
    expect(Buffer.from((await store.get(key))?.body ?? []).toString()).toBe('strings too');
  });

  test('a reader may be slower than the time limit of a request', async () => {
    const key = staged().newKey();
    await store.put(key, body(12), { token: 1 });
    const expected = await digestOf((await store.getStream(key))?.body ?? Readable.from([]));
    const found = await staged().store({ requestTimeoutMs: 1_000 }).getStream(key);
    const slowly = (async function* () {
      let isFirst = true;
      for await (const piece of found?.body ?? []) {
        // Waits longer than the time limit of the request, while its body is not read.
        if (isFirst) await setTimeout(1_500);
        isFirst = false;
        yield piece as Uint8Array;
      }
    })();
    expect(await digestOf(slowly)).toBe(expected);
  });

  test('a reader may stop early, or never begin', async () => {
    const key = staged().newKey();
    await store.put(key, body(12), { token: 1 });
    for (let i = 0; i < 60; i++) (await store.getStream(key))?.body.destroy();
    const found = await store.getStream(key);
    for await (const _ of found?.body ?? []) break;
    const abort = new AbortController();
    const aborted = await store.getStream(key, { signal: abort.signal });
    abort.abort(new Error('enough'));
    await expect(digestOf(aborted?.body ?? Readable.from([]))).rejects.toThrow('enough');
    expect(await store.highest(key)).toBe(1n);
  });
}

/** The requests that streams make. */
export function uploads(staged: Staged): void {
  let store: FencedS3;
  beforeAll(() => {
    store = staged().store({ partBytes: 5 * MIB, partsInFlight: 3 });
  });

  test('a claim of a large object lets the server copy all parts but the first, if the server can', async () => {
    const key = staged().newKey();
    const bytes = randomBytes(21 * MIB);
    await store.put(key, Readable.from([bytes]), { token: 1, metadata: { author: 'ada' } });
    const names: string[] = [];
    const send = (command: object, options: object) => {
      names.push(command.constructor.name);
      return staged().client.send(command as GetObjectCommand, options);
    };
    const client = { send } as S3Calls;
    const claimer = staged().store({ partBytes: 5 * MIB, client });
    for (const token of [2, 3]) {
      await claimer.claim(key, { token });
      const sent = names.splice(0).filter((name) => name.startsWith('UploadPart'));
      // Before the first claim, the store checks this kind of write with requests of its own.
      if (token === 3)
        expect(sent).toEqual(
          staged().capabilities.conditionalComplete
            ? ['UploadPartCommand', ...Array(4).fill('UploadPartCopyCommand')]
            : [],
        );
      const read = await store.get(key);
      expect(read).toMatchObject({ token: BigInt(token), metadata: { author: 'ada' } });
      expect(Buffer.compare(read?.body ?? Buffer.alloc(0), bytes)).toBe(0);
      await expect(store.put(key, 'late', { token: 1 })).rejects.toThrow(StaleTokenError);
    }
    expect(await uploadsUnder(staged(), key)).toEqual([]);
  });

  test('a slow connection slows the source down: it is at most a few parts ahead', async () => {
    let ahead = 0;
    const sent: Progress[] = [];
    const { pieces } = hashed(
      body(40, (at) => {
        ahead = Math.max(ahead, at - (sent.at(-1)?.storedBytes ?? 0) / MIB);
      }),
    );
    const plain = staged().store({ partBytes: 5 * MIB, partsInFlight: 2, gzipLevel: 0 });
    await plain.put(staged().newKey(), pieces, { token: 1, onProgress: (one) => sent.push(one) });
    const shrunk: Progress[] = [];
    await store.put(staged().newKey(), body(5), {
      token: 1,
      onProgress: (one) => shrunk.push(one),
    });
    expect(shrunk.at(-1)?.storedBytes).toBeLessThan(5 * MIB * 0.6 + 1_000);
    if (staged().capabilities.conditionalComplete) expect(ahead).toBeLessThan(2 * 5 + 15);
  });

  test('a stream that lost a race is sent again only if its source can be opened again, or its bytes were kept', async () => {
    const key = staged().newKey();
    const other = staged().store();
    const disturbed = () =>
      body(12, async (at) => {
        if (at === 10 && ++disturbances < 3) await other.put(key, `${disturbances}`, { token: 1 });
      });
    let disturbances = 0;
    await store.put(key, disturbed, { token: 1 });
    expect((await store.get(key))?.body).toHaveLength(12 * MIB);
    disturbances = 1;
    const once = store.put(key, disturbed(), { token: 1 });
    if (staged().capabilities.conditionalComplete)
      await expect(once).rejects.toThrow(ConflictError);
    else await once;
    expect(await uploadsUnder(staged(), key)).toEqual([]);
  });

  const written = async (key: string) => Buffer.from((await store.get(key))?.body ?? []).toString();
  const asked = (key: string, stream: { readonly mib: number; readonly hangs?: boolean }) => {
    const { bucket, service } = staged();
    const { endpoint, region, accessKeyId, secretAccessKey } = service;
    const address = { endpoint, region, accessKeyId, secretAccessKey };
    return JSON.stringify({ service: address, bucket, key, ...stream });
  };

  test('a killed writer leaves the value as it was, and at most an unfinished upload', async () => {
    const key = staged().newKey();
    await store.put(key, 'before', { token: 1 });
    const taken = Promise.withResolvers<unknown>();
    const writer = await WorkerProcess.start(STREAM_WRITER, {
      args: [asked(key, { mib: 24, hangs: true })],
      onLine: taken.resolve,
    });
    void writer.exited.then(() => taken.reject(new Error(writer.stderr)));
    await taken.promise;
    await writer.kill();
    expect(await written(key)).toBe('before');
    expect(await spooled()).toEqual([]);
    const { client, bucket, capabilities } = staged();
    const uploads = await uploadsUnder(staged(), key);
    expect(uploads).toHaveLength(capabilities.conditionalComplete ? 1 : 0);
    await store.put(key, 'after', { token: 1 });
    for (const { UploadId } of uploads)
      await client.send(new AbortMultipartUploadCommand({ Bucket: bucket, Key: key, UploadId }));
    expect(await uploadsUnder(staged(), key)).toEqual([]);
    expect(await written(key)).toBe('after');
  });

  test.each([
    // No file may have more than 10 MiB.
    ['is full', '.', 'ulimit -f 20480', 'EFBIG'],
    ['is not there', 'nowhere', ':', 'ENOENT'],
  ])(
    'if the folder for temporary files %s, the error says so, and nothing is written',
    async (...row) => {
      const [, name, first, code] = row;
      const key = staged().newKey();
      await store.put(key, 'before', { token: 1 });
      const folder = await mkdtemp(join(tmpdir(), 'full-'));
      const args = [process.execPath, fileURLToPath(STREAM_WRITER), asked(key, { mib: 24 })];
      const { stdout } = await promisify(execFile)(
        'sh',
        ['-c', `${first} && exec "$0" "$@"`, ...args],
        { env: { ...process.env, TMPDIR: join(folder, name) } },
      );
      if (staged().capabilities.conditionalComplete) expect(stdout).toMatch(/^written$/m);
      else {
        expect(stdout).toMatch(/^the stream was ended$/m);
        expect(stdout).toMatch(/^StoreSetupError: .* make room there, or set TMPDIR path=/m);
        expect(stdout).toContain(`path=${folder}/`);
        expect(stdout).toContain(code);
        expect(await written(key)).toBe('before');
      }
      expect(await readdir(folder)).toEqual([]);
      await rm(folder, { recursive: true });
    },
  );
}
