import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type Binding, bindLeases } from './bindings.js';

const ofYears: Binding = { keys: 'objects/reports/{year}/*', lease: 'reports/{year}' };

test('without a rule, the lease of the same name guards a key', () => {
  const leaseOf = bindLeases([]);
  fc.assert(
    fc.property(
      fc.constantFrom('objects', 'records'),
      fc.array(fc.string({ unit: 'grapheme', minLength: 1 }), { minLength: 1 }),
      (kind, segments) => {
        const name = segments.join('/');
        expect(leaseOf(`${kind}/${name}`)).toBe(name);
      },
    ),
  );
});

test.each([
  ['objects/reports/2026/a', 'reports/2026'],
  ['objects/reports/2026/a/b', 'reports/2026'],
  ['objects/reports/2026', 'reports/2026'],
  ['objects/reports/{year}/a', 'reports/{year}'],
  ['objects/reports/*/a', 'reports/*'],
  ['objects/reports', 'reports'],
  ['records/reports/2026', 'reports/2026'],
  ['objects/mirror/a/b', 'copies/a/b'],
  ['objects/mirror', 'mirror'],
  ['records/free/a', null],
  ['records/freed/a', 'freed/a'],
  ['records/swap/a', 'a'],
  ['objects/constructor', 'constructor'],
])('%s is guarded by the lease %s', (stored, lease) => {
  const leaseOf = bindLeases([
    ofYears,
    { keys: 'objects/mirror/*', lease: 'copies/*' },
    { keys: 'records/free/*', anyLease: true },
    { keys: 'records/swap/{id}', lease: '{id}' },
  ]);
  expect(leaseOf(stored)).toBe(lease);
});

test('the first matching rule counts', () => {
  const leaseOf = bindLeases([ofYears, { keys: 'objects/*', lease: 'rest' }]);
  expect(leaseOf('objects/reports/2026/a')).toBe('reports/2026');
  expect(leaseOf('objects/reports/2026')).toBe('rest');
});

test.each([
  [{ keys: 'objects/a' }, 'either lease or anyLease'],
  [{ keys: 'objects/a', anyLease: false }, 'either lease or anyLease'],
  [{ keys: 'objects/a', lease: 'a', anyLease: true }, 'either lease or anyLease'],
  [{ keys: 'leases/a', lease: 'a' }, 'begin with'],
  [{ keys: 'objects', lease: 'a' }, 'begin with'],
  [{ keys: '*', anyLease: true }, 'begin with'],
  [{ keys: 'objects/*/a', lease: 'a' }, 'each segment'],
  [{ keys: 'objects/a*', lease: 'a' }, 'each segment'],
  [{ keys: 'objects/{a', lease: 'a' }, 'each segment'],
  [{ keys: 'objects/a-{b}', lease: 'a' }, 'each segment'],
  [{ keys: 'objects//a', lease: 'a' }, 'each segment'],
  [{ keys: 'objects/../a', lease: 'a' }, 'each segment'],
  [{ keys: 'objects/a', lease: '' }, 'each segment'],
  [{ keys: 'objects/a', lease: 'a/' }, 'each segment'],
  [{ keys: 'objects/*', lease: '*/a' }, 'each segment'],
  [{ keys: 'objects/{a}/{a}', lease: 'a' }, 'twice'],
  [{ keys: 'objects/{a}', lease: '{b}' }, 'lease has {b}'],
  [{ keys: 'objects/a', lease: 'a/*' }, 'lease has *'],
])('a rule that would not do what it seems to is refused: %#', (binding, message) => {
  expect(() => bindLeases([binding])).toThrow(message);
});
