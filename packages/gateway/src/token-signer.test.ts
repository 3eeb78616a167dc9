import { createHmac, randomBytes } from 'node:crypto';
import { TOKEN_MAX } from '@fenced/store';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  createTokenSigner,
  SignatureError,
  type SignatureSubject,
  type SigningKey,
} from './token-signer.js';

const NOW_MS = 1_795_000_000_000;
const END_MS = NOW_MS + 60_000;
const k1: SigningKey = { id: 'k1', secret: randomBytes(32) };
const k2: SigningKey = { id: 'k2', secret: randomBytes(32) };
const now = (): number => NOW_MS;
/** A signer for tokens of resources. `all` is the whole signer, which has other purposes, too. */
function signerOf(keys: readonly SigningKey[], nowMs: () => number) {
  const all = createTokenSigner(keys, nowMs);
  return {
    all,
    sign: (token: bigint, resource: string, endMs: number) =>
      all.sign(token, { purpose: 'token', resource }, endMs),
    verify: (text: string, resource: string) => all.verify(text, { purpose: 'token', resource }),
  };
}
const signer = signerOf([k1], now);

const tokens = fc.bigInt({ min: 1n, max: TOKEN_MAX });
const resources = fc.string({ unit: 'binary', maxLength: 60 });

function faultOf(verify: () => bigint): string {
  try {
    return `verified as ${verify()}`;
  } catch (error) {
    return error instanceof SignatureError ? error.fault : `threw ${error}`;
  }
}

test('a signed token is accepted for its resource, and has the documented form', () => {
  expect(signer.sign(34n, 'invoice/42', END_MS)).toMatch(/^34\.k1\.1795000060000\.[\w-]{43}$/);
  const property = fc.property(tokens, resources, (token, resource) => {
    expect(signer.verify(signer.sign(token, resource, END_MS), resource)).toBe(token);
  });
  fc.assert(property);
});

test('a signed token is accepted for no other resource', () => {
  const property = fc.property(tokens, resources, resources, (token, resource, other) => {
    fc.pre(resource !== other);
    const text = signer.sign(token, resource, END_MS);
    expect(faultOf(() => signer.verify(text, other))).toBe('refused');
  });
  fc.assert(property);
  const text = signer.sign(34n, 'a', END_MS);
  for (const other of ['a/', '/a', 'A', 'a\0', '', 'ä', 'a","b'])
    expect(faultOf(() => signer.verify(text, other))).toBe('refused');
});

test('a signature for one purpose is invalid for another, whatever the names are', () => {
  const names = fc.oneof(resources, fc.constantFrom('a', 'b@a', '', 'null', 'a","b'));
  const subjects: fc.Arbitrary<SignatureSubject> = fc.oneof(
    fc.record({ purpose: fc.constant('token' as const), resource: names }),
    fc.record({ purpose: fc.constant('lease' as const), resource: names, owner: names }),
  );
  const property = fc.property(tokens, subjects, subjects, (token, one, other) => {
    const text = signer.all.sign(token, one, END_MS);
    expect(signer.all.verify(text, one)).toBe(token);
    fc.pre(JSON.stringify(one) !== JSON.stringify(other));
    expect(faultOf(() => signer.all.verify(text, other))).toBe('refused');
  });
  fc.assert(property);
});

test('no character can be changed, removed or added', () => {
  const text = signer.sign(34_567n, 'invoice/42', END_MS);
  const edits = fc.record({
    at: fc.nat({ max: text.length }),
    drop: fc.nat({ max: 3 }),
    insert: fc.string({ maxLength: 3 }),
  });
  const property = fc.property(edits, ({ at, drop, insert }) => {
    const changed = text.slice(0, at) + insert + text.slice(at + drop);
    fc.pre(changed !== text);
    expect(faultOf(() => signer.verify(changed, 'invoice/42'))).toMatch(/^(malformed|refused)$/);
  });
  fc.assert(property, { numRuns: 2_000 });
});

test('any other text is refused, and never another error', () => {
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
    expect(faultOf(() => signer.verify(text, 'a'))).toMatch(/^(malformed|refused)$/);
  });
  fc.assert(property, { numRuns: 1_000 });
});

test.each([
  ['a bare number', '34'],
  ['the highest number', '9223372036854775807'],
  ['an empty text', ''],
  ['two of them', `${signer.sign(34n, 'a', END_MS)}, ${signer.sign(34n, 'a', END_MS)}`],
  ['one with a space', ` ${signer.sign(34n, 'a', END_MS)}`],
  ['one with a line behind it', `${signer.sign(34n, 'a', END_MS)}\n`],
  ['another way to write the number', signer.sign(34n, 'a', END_MS).replace(/^34/, '034')],
])('%s is malformed', (_, text) => {
  expect(faultOf(() => signer.verify(text, 'a'))).toBe('malformed');
});

test('the signature separates its facts from each other and from other uses of the secret', () => {
  const forge = (message: string): string =>
    `34.k1.${END_MS}.${createHmac('sha256', k1.secret).update(message).digest('base64url')}`;
  for (const message of [`34.k1.${END_MS}`, JSON.stringify(['34', 'a', END_MS]), `34a${END_MS}`])
    expect(faultOf(() => signer.verify(forge(message), 'a'))).toBe('refused');
});

test('an unknown key id has no guessable secret', () => {
  const facts = JSON.stringify([
    'fenced-signed-token-1',
    'token',
    'k9',
    '34',
    String(END_MS),
    'a',
    null,
  ]);
  const mac = createHmac('sha256', '').update(facts).digest('base64url');
  expect(faultOf(() => signer.verify(`34.k9.${END_MS}.${mac}`, 'a'))).toBe('refused');
});

test('no digit can be moved from one part to the next', () => {
  const [, , end = '', mac = ''] = signer.sign(345n, '1a', END_MS).split('.');
  expect(faultOf(() => signer.verify(`34.k1.5${end}.${mac}`, '1a'))).toBe('refused');
  expect(faultOf(() => signer.verify(`345.k1.${end}1.${mac}`, 'a'))).toBe('refused');
  expect(faultOf(() => signer.verify(`345.k1.${end.slice(0, -1)}.${mac}`, `${end.at(-1)}1a`))).toBe(
    'refused',
  );
});

describe('the end of a signature', () => {
  test.each([
    [END_MS - 1, 'verified as 34'],
    [END_MS, 'expired'],
    [END_MS + 1, 'expired'],
  ])('at %d', (nowMs, outcome) => {
    const text = signer.sign(34n, 'a', END_MS);
    expect(faultOf(() => signerOf([k1], () => nowMs).verify(text, 'a'))).toBe(outcome);
  });

  test('is reported only of a valid signature', () => {
    const forged = signer.sign(34n, 'b', 1);
    expect(faultOf(() => signer.verify(forged, 'a'))).toBe('refused');
  });
});

test('no gateway refuses a token while keys rotate: the new key is added, comes first, the old one goes', () => {
  const fleets = [[k1], [k1, k2], [k2, k1], [k2]].map((keys) => signerOf(keys, now));
  for (const [step, mine] of fleets.entries()) {
    const text = mine.sign(34n, 'a', END_MS);
    // During a rollout, gateways of neighbouring steps run at the same time.
    for (const theirs of fleets.slice(Math.max(0, step - 1), step + 2))
      expect(theirs.verify(text, 'a')).toBe(34n);
  }
  const [old, , , last] = fleets;
  expect(faultOf(() => last?.verify(old?.sign(34n, 'a', END_MS) ?? '', 'a') ?? 0n)).toBe('refused');
});

test('two gateways with one key id and different secrets refuse each other', () => {
  const other = signerOf([{ id: 'k1', secret: randomBytes(32) }], now);
  expect(faultOf(() => other.verify(signer.sign(34n, 'a', END_MS), 'a'))).toBe('refused');
});

test.each([
  [[], 'at least one signing key'],
  [[{ id: 'a.b', secret: k1.secret }], 'id of a signing key'],
  [[{ id: '', secret: k1.secret }], 'id of a signing key'],
  [[k1, { ...k2, id: 'k1' }], 'two signing keys have one id'],
  [[{ id: 'k1', secret: randomBytes(31) }], 'at least 32 bytes'],
])('keys that would protect nothing are refused: %#', (keys, message) => {
  expect(() => createTokenSigner(keys, now)).toThrow(message);
});

test('the signer refuses values that could not be verified', () => {
  expect(() => signer.sign(0n, 'a', END_MS)).toThrow('not a fencing token');
  expect(() => signer.sign(TOKEN_MAX + 1n, 'a', END_MS)).toThrow('not a fencing token');
  for (const end of [0, 1.5, Number.NaN, Number.POSITIVE_INFINITY, -1])
    expect(() => signer.sign(1n, 'a', end)).toThrow('expiresAtMs');
});
