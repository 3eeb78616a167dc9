import { describe, expect, test } from 'vitest';
import { Random } from '../simulation/random.ts';
import { toEdn } from './edn.ts';
import type { Operation } from './history.ts';
import { fromJsonLines, toJsonLines } from './json-lines.ts';
import { judge } from './judge.ts';
import { plant } from './plant.ts';
import { isTelling } from './verdict.ts';

let values = 0;
function operation(
  callNs: number,
  returnNs: number,
  facts: Partial<Operation> & Pick<Operation, 'kind'>,
): Operation {
  const object = facts.kind === 'acquire' ? 'lock/r' : 's3/r';
  return { process: 'c1', object, callNs, returnNs, outcome: 'ok', ...facts };
}
const put = (callNs: number, returnNs: number, token: number, facts: Partial<Operation> = {}) => {
  values += 1;
  return operation(callNs, returnNs, {
    kind: 'put',
    token: `${token}`,
    value: `v${values}`,
    ...facts,
  });
};
const refused = (callNs: number, returnNs: number, token: number, highest: number) =>
  put(callNs, returnNs, token, { outcome: 'refused', highest: `${highest}` });
const update = (callNs: number, returnNs: number, from: string | null, value: string, token = 1) =>
  operation(callNs, returnNs, { kind: 'update', token: `${token}`, from, value });
const read = (callNs: number, returnNs: number, value: string | null, highest?: number) =>
  operation(callNs, returnNs, {
    kind: 'read',
    value,
    ...(highest !== undefined && { highest: `${highest}` }),
  });
const claim = (callNs: number, returnNs: number, token: number, value: string | null) =>
  operation(callNs, returnNs, { kind: 'claim', token: `${token}`, value });
const acquire = (callNs: number, returnNs: number, token: number) =>
  operation(callNs, returnNs, { kind: 'acquire', token: `${token}` });
const unknown = (one: Operation): Operation => ({ ...one, outcome: 'unknown', returnNs: null });

describe('these histories are correct:', () => {
  test.each<[string, Operation[]]>([
    ['nothing happened', []],
    ['tokens grow', [acquire(0, 1, 5), acquire(2, 3, 6)]],
    ['acquisitions that overlap have no order', [acquire(0, 5, 6), acquire(1, 4, 5)]],
    ['a holder writes twice', [put(0, 1, 5), put(2, 3, 5)]],
    ['a stale write is refused', [put(0, 1, 5), refused(2, 3, 4, 5)]],
    ['a refusal comes from a write that overlaps', [put(0, 9, 5), refused(1, 2, 4, 5)]],
    ['updates follow each other', [update(0, 1, null, 'a'), update(2, 3, 'a', 'b')]],
    [
      'an update that failed changed nothing',
      [
        update(0, 1, null, 'a'),
        { ...update(2, 3, 'a', 'b'), outcome: 'failed' },
        read(4, 5, 'a', 1),
      ],
    ],
    [
      'an unknown update was applied late',
      [unknown(update(0, 1, null, 'a')), read(2, 3, null, 0), read(4, 5, 'a', 1)],
    ],
    ['an unknown update was never applied', [unknown(update(0, 1, null, 'a')), read(2, 3, null)]],
    ['an unknown claim explains a refusal', [unknown(claim(0, 1, 7, null)), refused(2, 3, 6, 7)]],
    [
      'a claim keeps the value',
      [put(0, 1, 5, { value: 'a' }), claim(2, 3, 6, 'a'), read(4, 5, 'a', 6)],
    ],
    [
      'a refused claim had raised the ratchet before',
      [
        put(0, 1, 5, { value: 'a' }),
        { ...refused(2, 9, 6, 7), kind: 'claim', value: undefined },
        read(3, 4, 'a', 6),
        claim(5, 6, 7, 'a'),
      ],
    ],
    [
      'a value is written again after another one',
      [
        put(0, 1, 5, { value: 'a' }),
        put(2, 7, 5, { value: 'b' }),
        put(3, 9, 5, { value: 'a' }),
        read(8, 10, 'a', 5),
        read(11, 12, 'a', 5),
      ],
    ],
    ['objects are independent', [put(0, 1, 5), { ...put(2, 3, 4), object: 'records/r' }]],
  ])('%s', (_, history) => {
    expect(judge(history)).toEqual([]);
  });
});

describe('these histories are violations:', () => {
  test.each<[string, Operation[]]>([
    ['a later token is lower', [acquire(0, 1, 6), acquire(2, 3, 5)]],
    ['a token is given twice', [acquire(0, 5, 6), acquire(1, 4, 6)]],
    ['a stale write is accepted', [put(0, 1, 5), put(2, 3, 4)]],
    ['a fresh write is refused', [put(0, 1, 5), refused(2, 3, 5, 5)]],
    ['a refusal reports a token that nobody presented', [put(0, 1, 5), refused(2, 3, 4, 6)]],
    [
      'two updates replace the same value',
      [update(0, 1, null, 'a'), update(2, 9, 'a', 'b'), update(3, 8, 'a', 'c')],
    ],
    [
      'a read returns a replaced value',
      [update(0, 1, null, 'a'), update(2, 3, 'a', 'b'), read(4, 5, 'a')],
    ],
    ['a read reports a lower token', [put(0, 1, 5, { value: 'a' }), read(2, 3, 'a', 4)]],
    [
      'a claim reads a replaced value',
      [put(0, 1, 5, { value: 'a' }), put(2, 3, 5, { value: 'b' }), claim(4, 5, 6, 'a')],
    ],
    [
      'a refused write had raised the ratchet before',
      [put(0, 1, 5, { value: 'a' }), refused(2, 9, 6, 7), read(3, 4, 'a', 6), claim(5, 6, 7, 'a')],
    ],
    ['a claim is refused by a lower token', [{ ...refused(0, 1, 6, 5), kind: 'claim' }]],
    [
      'a refused write is read',
      [put(0, 1, 5), { ...refused(2, 3, 4, 5), value: 'x' }, read(4, 5, 'x')],
    ],
    [
      'an unknown write appears, and then the value before it',
      [
        put(0, 1, 5, { value: 'a' }),
        unknown(put(2, 3, 5, { value: 'b' })),
        read(4, 5, 'b'),
        read(6, 7, 'a'),
      ],
    ],
  ])('%s', (_, history) => {
    expect(judge(history)).toHaveLength(1);
  });
});

test('in EDN, a process has one operation at a time, also of a set of locks', () => {
  const set = ['a', 'b'].map((name) => ({ ...acquire(0, 9, 1), object: `lock/${name}` }));
  const numbers = [...set, acquire(9, 10, 2), unknown(put(11, 12, 2)), put(13, 14, 2)];
  const events = toEdn(numbers).matchAll(/:process (\d+) :type :(\w+)/g);
  expect([...events].map(([, process, type]) => `${process} ${type}`)).toEqual([
    ...['0 invoke', '1 invoke', '0 ok', '1 ok', '0 invoke', '0 ok'],
    ...['0 invoke', '0 info', '2 invoke', '2 ok'],
  ]);
});

test('in EDN, an update that ended before its value was computed writes nothing', () => {
  const refusedUpdate = { ...refused(0, 1, 5, 6), kind: 'update' as const };
  expect(toEdn([{ ...refusedUpdate, value: 'a' }])).toContain('[[:r "s3/r" nil] [:w "s3/r" "a"]]');
  const events = toEdn([{ ...refusedUpdate, value: undefined }]);
  expect(events).toContain(':value [[:r "s3/r" nil]]');
  expect(events).toContain(':highest 6 :outcome :refused');
});

test('a violation is planted if the history has a single place for it, and only then', () => {
  const objects = Array.from({ length: 200 }, (_, at) => ({ ...put(0, 1, 5), object: `s3/${at}` }));
  const kind = 'stale write accepted';
  expect(plant(objects, kind, new Random(1, 'plants'))).toBe(null);
  const planted = plant(
    [...objects, { ...put(2, 3, 5), object: 's3/7' }],
    kind,
    new Random(1, 'p'),
  );
  expect(judge(planted ?? [])).toHaveLength(1);
});

test.each<[string, object]>([
  ['outcome', { outcome: 'success' }],
  ['kind', { kind: 'write' }],
  ['kind', { kind: 'acquire' }],
  ['token', { token: 5 }],
  ['token', { object: 'lock/r', kind: 'acquire', token: undefined }],
  ['token', { token: String(2n ** 63n) }],
  ['highest', { outcome: 'refused' }],
  ['returnNs', { returnNs: null }],
  ['returnNs', { returnNs: 0 }],
])('a line of a history with a wrong %s is named: %j', (field, facts) => {
  const lines = toJsonLines([put(1, 2, 5), { ...put(3, 4, 5), ...facts }]);
  expect(() => fromJsonLines(lines)).toThrow(`line 2: ${field} is missing or wrong`);
});

test('a history is not telling if no object has two results that can be compared', () => {
  expect(isTelling([acquire(0, 1, 1), put(2, 3, 1), unknown(put(4, 5, 1))])).toBe(false);
  expect(isTelling([acquire(0, 1, 1), acquire(2, 3, 2)])).toBe(true);
});
