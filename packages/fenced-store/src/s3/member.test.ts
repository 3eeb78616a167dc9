import { execFileSync } from 'node:child_process';
import { gunzipSync } from 'node:zlib';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { CorruptObjectError, InvalidArgumentError } from '../core/errors.js';
import { TOKEN_MAX } from '../core/token.js';
import { open, seal, stamped } from './member.js';

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
const levels = fc.integer({ min: 0, max: 9 });

test('any body and stamp come back, to us and to every gzip reader', async () => {
  await fc.assert(
    fc.asyncProperty(bodies, stamps, levels, async (body, stamp, level) => {
      const member = stamped(await seal(body, level), stamp);
      const opened = await open('k', member);
      expect(opened.stamp).toEqual(stamp);
      expect(Buffer.compare(opened.body, body)).toBe(0);
      expect(Buffer.compare(gunzipSync(member), body)).toBe(0);
    }),
  );
});

test('gunzip reads a stored body', async () => {
  const body = Buffer.from('Schrödinger\n'.repeat(1000));
  const member = stamped(await seal(body, 6), { token: 34n, writeId: '0f'.repeat(16) });
  expect(Buffer.compare(execFileSync('gunzip', ['-c'], { input: member }), body)).toBe(0);
});

test('the same body with the same token is stored as other bytes each time', async () => {
  const member = await seal(Buffer.from('same'), 6);
  const first = stamped(member, { token: 1n, writeId: '00'.repeat(16) });
  expect(Buffer.compare(first, stamped(member, { token: 1n, writeId: '01'.repeat(16) }))).not.toBe(
    0,
  );
});

test('a body that its owner changes while it is compressed is refused', async () => {
  const body = Buffer.alloc(1_000_000, 'a');
  const sealing = seal(body, 6);
  body.fill('b');
  await expect(sealing).rejects.toThrow(InvalidArgumentError);
});

test('one damaged byte anywhere is found, or changes neither body nor stamp', async () => {
  await fc.assert(
    fc.asyncProperty(
      bodies,
      stamps,
      levels,
      fc.nat(),
      fc.integer({ min: 1, max: 255 }),
      async (body, stamp, level, place, flip) => {
        const member = stamped(await seal(body, level), stamp);
        const at = place % member.length;
        member[at] = (member[at] ?? 0) ^ flip;
        const opened = await open('k', member).catch((error: unknown) => error);
        if (opened instanceof CorruptObjectError) return;
        // A changed stamp is a valid other stamp; the copy in the metadata is what finds it.
        const { stamp: found, body: bytes } = opened as Awaited<ReturnType<typeof open>>;
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

test('a member that is cut short, has a second one behind it, or rubbish, is refused', async () => {
  const member = stamped(await seal(Buffer.from('value'), 6), {
    token: 1n,
    writeId: '00'.repeat(16),
  });
  for (let length = 0; length < member.length; length++)
    await expect(open('k', member.subarray(0, length))).rejects.toThrow(CorruptObjectError);
  await expect(open('k', Buffer.concat([member, member]))).rejects.toThrow(CorruptObjectError);
  await expect(open('k', Buffer.concat([member, Buffer.from([0])]))).rejects.toThrow(
    CorruptObjectError,
  );
});
