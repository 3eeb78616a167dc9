import fc from 'fast-check';
import { expect, test } from 'vitest';
import { InvalidTokenError } from './errors.js';
import { shown } from './shown.js';
import { parseToken, TOKEN_MAX } from './token.js';

test('a token is read alike from a bigint, its digits and, where that is exact, a number', () => {
  fc.assert(
    fc.property(fc.bigInt({ min: 1n, max: TOKEN_MAX }), (token) => {
      expect(parseToken(token)).toBe(token);
      expect(parseToken(token.toString())).toBe(token);
      if (token <= BigInt(Number.MAX_SAFE_INTEGER)) expect(parseToken(Number(token))).toBe(token);
      else expect(() => parseToken(Number(token))).toThrow(InvalidTokenError);
    }),
  );
});

const notTokens: unknown[] = [
  0,
  0n,
  -1,
  -1n,
  1.5,
  Number.NaN,
  Number.POSITIVE_INFINITY,
  2 ** 53,
  TOKEN_MAX + 1n,
  '',
  '0',
  '00',
  '01',
  '-1',
  '+1',
  '1.0',
  '1e3',
  '0x10',
  ' 1',
  '1 ',
  '9223372036854775808',
  '1'.repeat(400),
  null,
  undefined,
  true,
  {},
  [],
  [1],
  Symbol('1'),
  () => 1,
  Object.create(null),
];
test.each(notTokens.map((value) => [shown(value), value]))('%s is no token', (_, value) => {
  expect(() => parseToken(value as bigint)).toThrow(InvalidTokenError);
});
