import { createHmac, randomBytes } from 'node:crypto';
import { TOKEN_MAX } from '@fenced/store';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { createSeal, SealError, type SealKey, type SealSubject } from './seal.js';

const NOW_MS = 1_795_000_000_000;
const END_MS = NOW_MS + 60_000;
const k1: SealKey = { id: 'k1', secret: randomBytes(32) };
const k2: SealKey = { id: 'k2', secret: randomBytes(32) };
const now = (): number => NOW_MS;
/** Most tests are about tokens of one resource. */
function sealOf(keys: readonly SealKey[], nowMs: () => number) {
  const all = createSeal(keys, nowMs);
  return {
    all,
    seal: (token: bigint, resource: string, endMs: number) =>
      all.seal(token, { purpose: 'token', resource }, endMs),
    open: (text: string, resource: string) => all.open(text, { purpose: 'token', resource }),
  };
}
const seal = sealOf([k1], now);

const tokens = fc.bigInt({ min: 1n, max: TOKEN_MAX });
const resources = fc.string({ unit: 'binary', maxLength: 60 });

function faultOf(open: () => bigint): string {
  try {
    return `opened as ${open()}`;
  } catch (error) {
    return error instanceof SealError ? error.fault : `threw ${error}`;
  }
}

test('what was sealed opens for its resource, and looks as it is documented', () => {
  expect(seal.seal(34n, 'invoice/42', END_MS)).toMatch(/^34\.k1\.1795000060000\.[\w-]{43}$/);
  const property = fc.property(tokens, resources, (token, resource) => {
    expect(seal.open(seal.seal(token, resource, END_MS), resource)).toBe(token);
  });
  fc.assert(property);
});

test('it opens for no other resource', () => {
  const property = fc.property(tokens, resources, resources, (token, resource, other) => {
    fc.pre(resource !== other);
    const text = seal.seal(token, resource, END_MS);
    expect(faultOf(() => seal.open(text, other))).toBe('refused');
  });
  fc.assert(property);
  const text = seal.seal(34n, 'a', END_MS);
  for (const other of ['a/', '/a', 'A', 'a\0', '', 'ä', 'a","b'])
    expect(faultOf(() => seal.open(text, other))).toBe('refused');
});

test('a seal for one purpose opens nothing for another, whatever the names are', () => {
  const names = fc.oneof(resources, fc.constantFrom('a', 'b@a', '', 'null', 'a","b'));
  const subjects: fc.Arbitrary<SealSubject> = fc.oneof(
    fc.record({ purpose: fc.constant('token' as const), resource: names }),
    fc.record({ purpose: fc.constant('lease' as const), resource: names, owner: names }),
  );
  const property = fc.property(tokens, subjects, subjects, (token, one, other) => {
    const text = seal.all.seal(token, one, END_MS);
    expect(seal.all.open(text, one)).toBe(token);
    fc.pre(JSON.stringify(one) !== JSON.stringify(other));
    expect(faultOf(() => seal.all.open(text, other))).toBe('refused');
  });
  fc.assert(property);
});

test('no character of it can be changed, left out or added', () => {
  const text = seal.seal(34_567n, 'invoice/42', END_MS);
  const edits = fc.record({
    at: fc.nat({ max: text.length }),
    drop: fc.nat({ max: 3 }),
    insert: fc.string({ maxLength: 3 }),
  });
  const property = fc.property(edits, ({ at, drop, insert }) => {
    const changed = text.slice(0, at) + insert + text.slice(at + drop);
    fc.pre(changed !== text);
    expect(faultOf(() => seal.open(changed, 'invoice/42'))).toMatch(/^(malformed|refused)$/);
  });
  fc.assert(property, { numRuns: 2_000 });
});

test('of any other text nothing is made, and it is never another error', () => {
  const parts = fc.oneof(
    fc.string({ unit: 'binary' }),
    fc
      .tuple(
        fc.oneof(tokens.map(String), fc.constantFrom('0', '-1', '034', '9'.repeat(19))),
        fc.constantFrom('k1', 'k2', '__proto__', 'constructor', ''),
        fc.oneof(fc.maxSafeNat().map(String), fc.constantFrom('0', '1e9', '9'.repeat(16))),
        fc
          .base64String({ minLength: 40, maxLength: 46 })
          .map((text) => text.replaceAll('/', '_').replaceAll('+', '-')),
      )
      .map((list) => list.join('.')),
  );
  const property = fc.property(parts, (text) => {
    expect(faultOf(() => seal.open(text, 'a'))).toMatch(/^(malformed|refused)$/);
  });
  fc.assert(property, { numRuns: 1_000 });
});

test.each([
  ['a bare number', '34'],
  ['the highest number', '9223372036854775807'],
  ['an empty text', ''],
  ['two of them', `${seal.seal(34n, 'a', END_MS)}, ${seal.seal(34n, 'a', END_MS)}`],
  ['one with a space', ` ${seal.seal(34n, 'a', END_MS)}`],
  ['one with a line behind it', `${seal.seal(34n, 'a', END_MS)}\n`],
  ['another way to write the number', seal.seal(34n, 'a', END_MS).replace(/^34/, '034')],
])('%s is malformed', (_, text) => {
  expect(faultOf(() => seal.open(text, 'a'))).toBe('malformed');
});

test('the secret alone makes no seal: the facts are kept apart from each other and from other uses', () => {
  const forge = (message: string): string =>
    `34.k1.${END_MS}.${createHmac('sha256', k1.secret).update(message).digest('base64url')}`;
  for (const message of [`34.k1.${END_MS}`, JSON.stringify(['34', 'a', END_MS]), `34a${END_MS}`])
    expect(faultOf(() => seal.open(forge(message), 'a'))).toBe('refused');
});

test('with a key that nobody knows, no secret is one that everybody knows', () => {
  const facts = JSON.stringify(['fenced-seal-2', 'token', 'k9', '34', String(END_MS), 'a', null]);
  const mac = createHmac('sha256', '').update(facts).digest('base64url');
  expect(faultOf(() => seal.open(`34.k9.${END_MS}.${mac}`, 'a'))).toBe('refused');
});

test('no digit can be moved from one part to the next', () => {
  const [, , end = '', mac = ''] = seal.seal(345n, '1a', END_MS).split('.');
  expect(faultOf(() => seal.open(`34.k1.5${end}.${mac}`, '1a'))).toBe('refused');
  expect(faultOf(() => seal.open(`345.k1.${end}1.${mac}`, 'a'))).toBe('refused');
  expect(faultOf(() => seal.open(`345.k1.${end.slice(0, -1)}.${mac}`, `${end.at(-1)}1a`))).toBe(
    'refused',
  );
});

describe('the end of a seal', () => {
  test.each([
    [END_MS - 1, 'opened as 34'],
    [END_MS, 'expired'],
    [END_MS + 1, 'expired'],
  ])('at %d', (nowMs, outcome) => {
    const text = seal.seal(34n, 'a', END_MS);
    expect(faultOf(() => sealOf([k1], () => nowMs).open(text, 'a'))).toBe(outcome);
  });

  test('is told only of a seal that was good', () => {
    const forged = seal.seal(34n, 'b', 1);
    expect(faultOf(() => seal.open(forged, 'a'))).toBe('refused');
  });
});

test('keys rotate without a gap: new behind old, new before old, old taken away', () => {
  const fleets = [[k1], [k1, k2], [k2, k1], [k2]].map((keys) => sealOf(keys, now));
  for (const [step, mine] of fleets.entries()) {
    const text = mine.seal(34n, 'a', END_MS);
    // While a step is rolled out, gateways of the step before and after it run as well.
    for (const theirs of fleets.slice(Math.max(0, step - 1), step + 2))
      expect(theirs.open(text, 'a')).toBe(34n);
  }
  const [old, , , last] = fleets;
  expect(faultOf(() => last?.open(old?.seal(34n, 'a', END_MS) ?? '', 'a') ?? 0n)).toBe('refused');
});

test('two gateways with one key id and other secrets refuse each other', () => {
  const other = sealOf([{ id: 'k1', secret: randomBytes(32) }], now);
  expect(faultOf(() => other.open(seal.seal(34n, 'a', END_MS), 'a'))).toBe('refused');
});

test.each([
  [[], 'at least one seal key'],
  [[{ id: 'a.b', secret: k1.secret }], 'id of a seal key'],
  [[{ id: '', secret: k1.secret }], 'id of a seal key'],
  [[k1, { ...k2, id: 'k1' }], 'two seal keys have one id'],
  [[{ id: 'k1', secret: randomBytes(31) }], 'at least 32 bytes'],
])('keys that would protect nothing are refused: %#', (keys, message) => {
  expect(() => createSeal(keys, now)).toThrow(message);
});

test('nothing is sealed that could not be opened', () => {
  expect(() => seal.seal(0n, 'a', END_MS)).toThrow('not a fencing token');
  expect(() => seal.seal(TOKEN_MAX + 1n, 'a', END_MS)).toThrow('not a fencing token');
  for (const end of [0, 1.5, Number.NaN, Number.POSITIVE_INFINITY, -1])
    expect(() => seal.seal(1n, 'a', end)).toThrow('expiresAtMs');
});
