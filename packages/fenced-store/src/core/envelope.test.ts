import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  envelopeHeader,
  envelopeTrailer,
  HEADER_BYTES,
  parseHeader,
  parseTrailer,
} from './envelope.js';
import { CorruptObjectError } from './errors.js';
import { TOKEN_MAX } from './token.js';

const stamps = fc.record({
  token: fc.bigInt({ min: 1n, max: TOKEN_MAX }),
  writeId: fc
    .uint8Array({ minLength: 16, maxLength: 16 })
    .map((id) => Buffer.from(id).toString('hex')),
});

test('the stamp (token and write id) is read back from the header that has it', () => {
  fc.assert(
    fc.property(stamps, fc.uint8Array(), fc.nat(2 ** 32 - 1), (stamp, data, crc32) => {
      const member = Buffer.concat([envelopeHeader(stamp), data]);
      expect(parseHeader('k', member)).toEqual(stamp);
      const trailer = envelopeTrailer(crc32, 2 ** 32 + 5);
      expect(parseTrailer('k', trailer)).toEqual({ crc32, lengthMod2e32: 5 });
    }),
  );
});

test('a header with a changed byte is refused, or shows another stamp', () => {
  fc.assert(
    fc.property(
      stamps,
      fc.nat(HEADER_BYTES - 1),
      fc.integer({ min: 1, max: 255 }),
      (stamp, at, flip) => {
        const header = envelopeHeader(stamp);
        header[at] = (header[at] ?? 0) ^ flip;
        const parse = () => parseHeader('k', header);
        if (at < HEADER_BYTES - 24) expect(parse).toThrow(CorruptObjectError);
        else expect(() => expect(parse()).toEqual(stamp)).toThrow();
      },
    ),
  );
});

test.each([
  ['nothing', new Uint8Array()],
  ['half a header', envelopeHeader({ token: 1n, writeId: '0'.repeat(32) }).subarray(0, 30)],
  ['plain text', Buffer.from('a'.repeat(100))],
  [
    'token 0',
    Buffer.concat([envelopeHeader({ token: 0n, writeId: '0'.repeat(32) }), Buffer.alloc(10)]),
  ],
  [
    'token 2^63',
    Buffer.concat([
      envelopeHeader({ token: 2n ** 63n, writeId: '0'.repeat(32) }),
      Buffer.alloc(10),
    ]),
  ],
])('%s is no stored body', (_, bytes) => {
  expect(() => parseHeader('k', bytes)).toThrow(CorruptObjectError);
});

test('an object of a later layout is refused, and the error names the layout', () => {
  const header = envelopeHeader({ token: 1n, writeId: '0'.repeat(32) });
  header[16] = 2;
  expect(() => parseHeader('k', header)).toThrow('layout=2');
});
