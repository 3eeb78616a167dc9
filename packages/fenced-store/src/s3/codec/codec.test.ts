import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import { crc32, deflateRawSync, gunzipSync, inflateRawSync } from 'node:zlib';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { envelopeHeader, envelopeTrailer, HEADER_BYTES } from '../../core/envelope.js';
import { CorruptObjectError, InvalidArgumentError } from '../../core/errors.js';
import type { Stamp } from '../../core/stored.js';
import { TOKEN_MAX } from '../../core/token.js';
import { decode, decodeStream } from './decode.js';
import { type Encoding, encode, encodeStream, writeStamp } from './encode.js';
import { bytesOf, regrouped } from './pieces.js';

const bodies = fc.oneof(
  fc.uint8Array({ maxLength: 5_000 }),
  fc.string().map((text) => Buffer.from(text.repeat(50))),
);
const stamps = fc.record({
  token: fc.bigInt({ min: 1n, max: TOKEN_MAX }),
  writeId: fc
    .uint8Array({ minLength: 16, maxLength: 16 })
    .map((id) => Buffer.from(id).toString('hex')),
});
const gzip = (gzipLevel: number): Encoding => ({ layout: 'gzip', gzipLevel });
const stamped = (member: Uint8Array, stamp: Stamp): Uint8Array => {
  const copy = new Uint8Array(member);
  writeStamp(copy, { ...stamp, layout: 'gzip' });
  return copy;
};
const levels = fc.integer({ min: 0, max: 9 });

test('every body and stamp can be read back, also by gzip', async () => {
  await fc.assert(
    fc.asyncProperty(bodies, stamps, levels, async (body, stamp, level) => {
      const member = stamped(await encode(body, gzip(level)), stamp);
      const opened = await decode('k', member, 2 ** 30);
      expect(opened.stamp).toEqual(stamp);
      expect(Buffer.compare(opened.body, body)).toBe(0);
      expect(Buffer.compare(gunzipSync(member), body)).toBe(0);
    }),
  );
});

test('stored blocks are read as zlib reads them, whatever the data', async () => {
  const block = fc.uint8Array({ maxLength: 40 }).map((bytes) => {
    const head = Buffer.from([0, bytes.length, 0, 255 - bytes.length, 255]);
    return Buffer.concat([head, bytes]);
  });
  const end = fc.constant(Buffer.of(3, 0));
  const others = fc.uint8Array({ maxLength: 8 });
  const pieces = fc
    .tuple(fc.array(fc.oneof({ weight: 9, arbitrary: block }, end, others)), end)
    .map(([blocks, last]) => Buffer.concat([...blocks, last]));
  const damage = fc.option(fc.tuple(fc.nat(), fc.integer({ min: 1, max: 255 })));
  const stamp = { token: 1n, writeId: '00'.repeat(16) };
  let read = 0;
  await fc.assert(
    fc.asyncProperty(
      pieces,
      damage,
      fc.option(fc.nat(), { freq: 3 }),
      async (whole, hit, length) => {
        const data = whole.subarray(0, length === null ? whole.length : length % whole.length);
        const at = (hit?.[0] ?? 0) % (data.length || 1);
        if (hit !== null && data.length > 0) data[at] = (data[at] ?? 0) ^ hit[1];
        const body = inflatedWhole(data);
        const trailer = envelopeTrailer(crc32(body ?? data), (body ?? data).length);
        const member = Buffer.concat([envelopeHeader(stamp), data, trailer]);
        for (const pieceBytes of [3, member.length]) {
          const copy = Buffer.from(member);
          const chunks = Array.fromAsync(decodeStream('k', stamp, cut(copy, pieceBytes)));
          const back = await chunks.then(Buffer.concat, () => null);
          expect(back).toEqual(body);
        }
        if (body !== null) read++;
      },
    ),
    { numRuns: 500 },
  );
  expect(read).toBeGreaterThan(20);
});

/** The body, as zlib reads it; null if the data are damaged, cut short, or too long. */
function inflatedWhole(data: Uint8Array): Buffer | null {
  try {
    const { buffer, engine } = inflateRawSync(data, { info: true } as object) as unknown as {
      readonly buffer: Buffer;
      readonly engine: { readonly bytesWritten: number };
    };
    return engine.bytesWritten === data.length ? buffer : null;
  } catch {
    return null;
  }
}

test('gunzip reads a stored body', async () => {
  const body = Buffer.from('Schrödinger\n'.repeat(1000));
  const member = stamped(await encode(body, gzip(6)), { token: 34n, writeId: '0f'.repeat(16) });
  expect(Buffer.compare(execFileSync('gunzip', ['-c'], { input: member }), body)).toBe(0);
});

test('the same body with the same token is stored as other bytes each time', async () => {
  const member = await encode(Buffer.from('same'), gzip(6));
  const first = stamped(member, { token: 1n, writeId: '00'.repeat(16) });
  expect(Buffer.compare(first, stamped(member, { token: 1n, writeId: '01'.repeat(16) }))).not.toBe(
    0,
  );
});

test('a body that changes while it is compressed is refused', async () => {
  const body = Buffer.alloc(1_000_000, 'a');
  const encoding = encode(body, gzip(6));
  body.fill('b');
  await expect(encoding).rejects.toThrow(InvalidArgumentError);
});

test('a damaged byte is an error, or leaves the body as it was', async () => {
  await fc.assert(
    fc.asyncProperty(
      bodies,
      stamps,
      levels,
      fc.nat(),
      fc.integer({ min: 1, max: 255 }),
      async (body, stamp, level, place, flip) => {
        const member = stamped(await encode(body, gzip(level)), stamp);
        const at = place % member.length;
        member[at] = (member[at] ?? 0) ^ flip;
        const opened = await decode('k', member, 2 ** 30).catch((error: unknown) => error);
        if (opened instanceof CorruptObjectError) return;
        // A damaged stamp reads as another valid one. Only the copy in the metadata shows that.
        const { stamp: found, body: bytes } = opened as Awaited<ReturnType<typeof decode>>;
        expect(Buffer.compare(bytes, body)).toBe(0);
        const inStamp = at >= 17 && at < 41;
        if (inStamp) expect(found).not.toEqual(stamp);
        else {
          expect(found).toEqual(stamp);
          expect(at >= 41 && at < member.length - 8).toBe(true);
        }
      },
    ),
    { numRuns: 2_000 },
  );
});

test('a second gzip member is refused, also behind an empty first one', async () => {
  const stamp = { token: 1n, writeId: '00'.repeat(16) };
  const members = ['', 'value'].map(async (body) =>
    stamped(await encode(Buffer.from(body), gzip(6)), stamp),
  );
  const two = Buffer.concat(await Promise.all(members));
  expect(gunzipSync(two).toString()).toBe('value');
  await expect(decode('k', two, 1_000)).rejects.toThrow(CorruptObjectError);
  const streamed = Array.fromAsync(decodeStream('k', stamp, cut(two, two.length)));
  await expect(streamed).rejects.toThrow(CorruptObjectError);
});

test('a gzip member that is cut short, or has more bytes after it, is refused', async () => {
  for (const body of ['value', 'value '.repeat(400)]) {
    const stamp = { token: 1n, writeId: '00'.repeat(16) };
    const member = stamped(await encode(Buffer.from(body), gzip(6)), stamp);
    for (let length = 0; length < member.length; length++)
      await expect(decode('k', member.subarray(0, length), 2 ** 30)).rejects.toThrow(
        CorruptObjectError,
      );
    for (const more of [member, Buffer.from([0])])
      await expect(decode('k', Buffer.concat([member, more]), 2 ** 30)).rejects.toThrow(
        CorruptObjectError,
      );
  }
});

/** Cuts a gzip member into pieces of that size. */
async function* cut(member: Uint8Array, pieceBytes: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < member.length; at += pieceBytes) yield member.subarray(at, at + pieceBytes);
}

test('body and stored form may arrive in pieces of any size', async () => {
  const pieces = fc.array(fc.oneof(fc.uint8Array({ maxLength: 300 }), fc.string()), {
    maxLength: 20,
  });
  await fc.assert(
    fc.asyncProperty(
      pieces,
      stamps,
      levels,
      fc.integer({ min: 1, max: 200 }),
      async (given, stamp, level, pieceBytes) => {
        const body = Buffer.concat(given.map((piece) => Buffer.from(piece as string)));
        const read: number[] = [];
        const stored = encodeStream(bytesOf(Readable.from(given)), gzip(level), (bytes) =>
          read.push(bytes),
        );
        const member = stamped(Buffer.concat(await Array.fromAsync(stored)), stamp);
        expect(read.at(-1) ?? 0).toBe(body.length);
        expect(Buffer.compare((await decode('k', member, 2 ** 30)).body, body)).toBe(0);
        const back = await Array.fromAsync(
          decodeStream('k', stamp, cut(Uint8Array.from(member), pieceBytes)),
        );
        expect(Buffer.compare(Buffer.concat(back), body)).toBe(0);
      },
    ),
  );
});

const MIB = 2 ** 20;

/** A body of many chunks, from a source that reuses one buffer for all pieces. */
async function* overwriting(chunks: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  const memory = Buffer.alloc(100_000);
  for await (const piece of cut(Buffer.concat(chunks), memory.length)) {
    memory.set(piece);
    yield memory.subarray(0, piece.length);
    memory.fill(0);
  }
}

test('a long stream is compressed where that helps, and can be read back', async () => {
  const [random, text] = [randomBytes(MIB), Buffer.alloc(MIB, 'a line of text\n')];
  const chunks = [random, text, text, text, random, random, random, ...Array(12).fill(text)];
  const body = Buffer.concat(chunks);
  const copies: Uint8Array[] = [];
  for await (const piece of encodeStream(overwriting(chunks), gzip(6), () => undefined))
    copies.push(Uint8Array.from(piece));
  const stamp = { token: 1n, writeId: '00'.repeat(16) };
  const member = stamped(Buffer.concat(copies), stamp);
  expect(member.length).toBeLessThan(13 * MIB);
  expect(Buffer.compare(gunzipSync(member), body)).toBe(0);
  for (const pieceBytes of [999, 65_536, 3_000_000]) {
    const back = await Array.fromAsync(
      decodeStream('k', stamp, cut(Uint8Array.from(member), pieceBytes)),
    );
    expect(Buffer.compare(Buffer.concat(back), body)).toBe(0);
  }
});

test('compressed blocks may refer to stored blocks that the reader has overwritten', async () => {
  const stamp = { token: 1n, writeId: '00'.repeat(16) };
  for (const blocks of [1, 2, 5]) {
    const stored = Array.from({ length: blocks }, () => randomBytes(20_000));
    const before = Buffer.concat(stored);
    const [dictionary, after] = [before.subarray(-32_768), before.subarray(-20_000)];
    const head = Buffer.of(0, 20_000 & 255, 20_000 >> 8, ~20_000 & 255, (~20_000 >> 8) & 255);
    const body = Buffer.concat([before, after]);
    const member = Buffer.concat([
      envelopeHeader(stamp),
      ...stored.flatMap((block) => [head, block]),
      deflateRawSync(after, { dictionary }),
      envelopeTrailer(crc32(body), body.length),
    ]);
    for (const pieceBytes of [7, 10_000, 1_000_000]) {
      const copies: Uint8Array[] = [];
      for await (const piece of decodeStream('k', stamp, cut(Buffer.from(member), pieceBytes))) {
        copies.push(Uint8Array.from(piece));
        piece.fill(0);
      }
      expect(Buffer.compare(Buffer.concat(copies), body)).toBe(0);
    }
  }
});

test('a long incompressible stream needs memory for a few chunks, and no zlib to be read', async () => {
  const chunks = Array.from({ length: 32 }, () => randomBytes(MIB));
  const memories = new Set<ArrayBufferLike>();
  const copies: Uint8Array[] = [];
  for await (const piece of encodeStream(Readable.from(chunks), gzip(6), () => undefined)) {
    if (piece.length > 1_000) memories.add(piece.buffer);
    copies.push(Uint8Array.from(piece));
  }
  expect(memories.size).toBeLessThanOrEqual(4);
  const stamp = { token: 1n, writeId: '00'.repeat(16) };
  const arriving = await Array.fromAsync(cut(stamped(Buffer.concat(copies), stamp), 65_536));
  let bytes = 0;
  for await (const piece of decodeStream('k', stamp, Readable.from(arriving))) {
    // The reader gets the received bytes without a copy, except for the piece with the header.
    if (bytes > 65_536) expect(piece.buffer).toBe(arriving[1]?.buffer);
    bytes += piece.length;
  }
  expect(bytes).toBe(32 * MIB);
});

test('a stream that is cut short, damaged or too long ends with an error', async () => {
  const stamp = { token: 1n, writeId: '00'.repeat(16) };
  const read = (bytes: Uint8Array): Promise<unknown> =>
    Array.fromAsync(decodeStream('k', stamp, cut(bytes, 7)));
  const text = Buffer.from('value '.repeat(400));
  const member = stamped(await encode(text, gzip(6)), stamp);
  const asItIs = stamped(await encode(text.subarray(0, 600), gzip(0)), stamp);
  for (const whole of [member, asItIs]) {
    for (let length = 0; length < whole.length; length++)
      await expect(read(whole.subarray(0, length))).rejects.toThrow(CorruptObjectError);
    const damaged = Uint8Array.from(whole);
    damaged[whole.length - 6] = 1 ^ (damaged[whole.length - 6] ?? 0);
    const wrongLength = Uint8Array.from(whole);
    wrongLength[HEADER_BYTES + 1] = 1 ^ (wrongLength[HEADER_BYTES + 1] ?? 0);
    for (const bytes of [
      damaged,
      wrongLength,
      Buffer.concat([whole, whole]),
      Buffer.concat([whole, Buffer.alloc(30)]),
    ])
      await expect(read(bytes)).rejects.toThrow(CorruptObjectError);
  }
  const other = { token: 2n, writeId: '00'.repeat(16) };
  await expect(Array.fromAsync(decodeStream('k', other, cut(member, 7)))).rejects.toThrow(
    'of different writes',
  );
});

test('a reader that stops early ends the source', async () => {
  let ended = false;
  const stamp = { token: 1n, writeId: '00'.repeat(16) };
  const member = stamped(await encode(randomBytes(500_000), gzip(6)), stamp);
  const source = async function* (): AsyncGenerator<Uint8Array> {
    try {
      yield* cut(member, 1_000);
    } finally {
      ended = true;
    }
  };
  for await (const _ of decodeStream('k', stamp, source())) break;
  await expect.poll(() => ended).toBe(true);
});

test('an incompressible body grows by less than 1 %', async () => {
  const body = randomBytes(3_000_000);
  expect((await encode(body, gzip(9))).length).toBeLessThan(body.length * 1.001 + 100);
  for (const bytes of [1, 1_400, 1_401, 16_384]) {
    const zeros = await encode(Buffer.alloc(bytes), gzip(9));
    expect(zeros.length < 100).toBe(bytes === 1 || bytes > 1_400);
  }
  const text = Buffer.from('text '.repeat(600_000));
  expect((await encode(text, gzip(1))).length).toBeLessThan(text.length / 50);
  expect((await encode(text, gzip(0))).length).toBeGreaterThan(text.length);
});

test('a plain body is stored as it is, in a copy', async () => {
  const body = Buffer.from('plain');
  const stored = await encode(body, { layout: 'plain', gzipLevel: 6 });
  body.fill(0);
  writeStamp(stored, { token: 1n, writeId: '00'.repeat(16), layout: 'plain' });
  expect(stored).toEqual(Uint8Array.from(Buffer.from('plain')));
});

test('pieces are regrouped to the requested size', async () => {
  const sizes = fc.array(fc.nat(20), { maxLength: 20 });
  await fc.assert(
    fc.asyncProperty(sizes, fc.integer({ min: 1, max: 15 }), async (lengths, size) => {
      const pieces = lengths.map((length, i) => Buffer.alloc(length, i));
      const groups = await Array.fromAsync(regrouped(Readable.from(pieces), size));
      expect(Buffer.concat(groups)).toEqual(Buffer.concat(pieces));
      expect(groups.slice(0, -1).every((group) => group.length === size)).toBe(true);
    }),
  );
});
