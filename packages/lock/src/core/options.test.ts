import { expect, test } from 'vitest';
import { LockArgumentError } from './errors.js';
import {
  checkNodeNames,
  checkResources,
  checkTtlMs,
  checkWaitMs,
  resolveOptions,
} from './options.js';

const wrong: [string, () => unknown][] = [
  ['no resource', () => checkResources([])],
  ['an empty resource', () => checkResources('')],
  ['a resource that is no string', () => checkResources(42 as never)],
  ['a list with no string', () => checkResources(['a', null] as never)],
  ['a resource named twice', () => checkResources(['a', 'b', 'a'])],
  ['half a character', () => checkResources('\ud800')],
  ['a resource of 1025 characters', () => checkResources('x'.repeat(1025))],
  ['a TTL of 0', () => checkTtlMs(0, 60_000)],
  ['a negative TTL', () => checkTtlMs(-1, 60_000)],
  ['a TTL of 9 ms', () => checkTtlMs(9, 60_000)],
  ['a TTL that is no number', () => checkTtlMs('1000' as never, 60_000)],
  ['a TTL of NaN', () => checkTtlMs(Number.NaN, 60_000)],
  ['an endless TTL', () => checkTtlMs(Number.POSITIVE_INFINITY, 60_000)],
  ['a TTL with a fraction', () => checkTtlMs(1000.5, 60_000)],
  ['a TTL above maxTtlMs', () => checkTtlMs(60_001, 60_000)],
  ['a negative wait', () => checkWaitMs(-1)],
  ['a wait that timers cannot count', () => checkWaitMs(2 ** 31)],
  ['no nodes', () => checkNodeNames([])],
  ['16 nodes', () => checkNodeNames(Array.from({ length: 16 }, (_, at) => `n${at}`))],
  ['a name used twice', () => checkNodeNames(['a', 'b', 'a'])],
  ['a maxTtlMs of two days', () => resolveOptions({ maxTtlMs: 172_800_000 })],
  ['a fence shorter than a lease', () => resolveOptions({ maxTtlMs: 60_000, fenceTtlMs: 59_999 })],
  ['no key prefix', () => resolveOptions({ keyPrefix: '' })],
  ['a key prefix with half a character', () => resolveOptions({ keyPrefix: 'a\ud800' })],
  ['a first token of 0', () => resolveOptions({ firstToken: 0n })],
  ['a first token above 2^53-1', () => resolveOptions({ firstToken: 2n ** 53n })],
  ['a first token that is no bigint', () => resolveOptions({ firstToken: 33 as never })],
];
test.each(wrong)('%s is refused', (_, call) => {
  expect(call).toThrow(LockArgumentError);
});

test('the defaults are those of the documentation, also if an option is undefined', () => {
  const defaults = {
    maxTtlMs: 60_000,
    firstMaxTtlMs: 86_400_000,
    keyPrefix: '{fenced}:',
    fenceTtlMs: 300_000,
    firstToken: null,
  };
  expect(resolveOptions({})).toEqual(defaults);
  expect(resolveOptions({ maxTtlMs: undefined, keyPrefix: undefined } as never)).toEqual(defaults);
});

test('by default, a node remembers a resource for at least as long as the longest lease', () => {
  expect(resolveOptions({ maxTtlMs: 3_600_000 })).toMatchObject({ fenceTtlMs: 3_600_000 });
});

test('the order in which a set of resources is listed does not matter', () => {
  expect(checkResources(['b', 'a'])).toEqual(checkResources(['a', 'b']));
  expect(checkResources('invoice/42')).toEqual(['invoice/42']);
});
