import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ProtocolError } from './errors.js';
import { Frames } from './frames.js';
import { JuteReader, JuteWriter } from './jute.js';
import { create, PERSISTENT, remove, transaction } from './operations.js';

/** The body of a frame. */
const body = (to: JuteWriter): Buffer => to.frame().subarray(4);

describe('records', () => {
  test('a reader returns the values that were written', () => {
    const to = new JuteWriter()
      .int(-7)
      .long(2n ** 62n)
      .bool(true)
      .string('a/€')
      .bytes(Buffer.of());
    const from = new JuteReader(body(to));
    expect([from.int(), from.long(), from.bool(), from.string()]).toEqual([
      -7,
      2n ** 62n,
      true,
      'a/€',
    ]);
    expect(from.bytes()).toHaveLength(0);
  });

  test('the length -1 means no bytes, and an empty list', () => {
    const from = new JuteReader(body(new JuteWriter().int(-1).int(-1)));
    expect(from.bytes()).toHaveLength(0);
    expect(from.strings()).toEqual([]);
  });

  test.each([
    ['a number that is cut off', Buffer.of(0, 0), (from: JuteReader) => from.int()],
    [
      'a longer text than there are bytes',
      body(new JuteWriter().int(5).int(0)),
      (from: JuteReader) => from.string(),
    ],
    ['a negative length', body(new JuteWriter().int(-2)), (from: JuteReader) => from.bytes()],
    ['a huge list', body(new JuteWriter().int(2 ** 31 - 1)), (from: JuteReader) => from.strings()],
    [
      'a list that is cut off',
      body(new JuteWriter().int(2).string('a').int(9)),
      (from: JuteReader) => from.strings(),
    ],
  ])('%s is refused', (_, bytes, read) => {
    expect(() => read(new JuteReader(bytes))).toThrow(ProtocolError);
  });
});

describe('frames', () => {
  test('the same frames are found, in whatever pieces the bytes arrive', () => {
    const bodies = fc.array(fc.uint8Array({ maxLength: 300 }), { maxLength: 8 });
    const cuts = fc.array(fc.integer({ min: 1, max: 200 }), { minLength: 1, maxLength: 40 });
    fc.assert(
      fc.property(bodies, cuts, (list, sizes) => {
        const all = Buffer.concat(
          list.map((one) => new JuteWriter().bytes(one).frame().subarray(4)),
        );
        const frames = new Frames();
        const found: Buffer[] = [];
        for (let at = 0, turn = 0; at < all.length; turn += 1) {
          const size = sizes[turn % sizes.length] ?? 1;
          found.push(...frames.add(all.subarray(at, at + size)));
          at += size;
        }
        expect(found.map((frame) => [...frame])).toEqual(list.map((one) => [...one]));
      }),
    );
  });

  test.each([-1, -(2 ** 31), 8 * 1024 * 1024 + 1, 2 ** 31 - 1])(
    'a length of %i is refused',
    (length) => {
      expect(() => new Frames().add(body(new JuteWriter().int(length)))).toThrow(
        'impossible length',
      );
    },
  );
});

describe('results of a transaction', () => {
  const operation = transaction([create('/a', '', PERSISTENT, []), remove('/b')]);
  const end = (to: JuteWriter): JuteWriter => to.int(-1).bool(true).int(-1);
  const read = (to: JuteWriter): unknown => operation.read(new JuteReader(body(end(to))));

  test('all are returned', () => {
    const to = new JuteWriter().int(1).bool(false).int(0).string('/a').int(2).bool(false).int(0);
    expect(read(to)).toEqual(['/a', undefined]);
  });

  test('a refusal names the operation', () => {
    const to = new JuteWriter();
    for (const code of [0, -101]) to.int(-1).bool(false).int(code).int(code);
    expect(() => read(to)).toThrow(expect.objectContaining({ code: -101, index: 1 }));
  });

  test.each([
    ['fewer results', new JuteWriter().int(1).bool(false).int(0).string('/a')],
    ['results of other operations', new JuteWriter().int(2).bool(false).int(0)],
    [
      'more results',
      [1, 2, 3].reduce((to) => to.int(-1).bool(false).int(0).int(0), new JuteWriter()),
    ],
  ])('%s are no reply', (_, to) => {
    expect(() => read(to)).toThrow(ProtocolError);
  });
});
